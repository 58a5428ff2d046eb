"""Selects lines of a kernel log: relevant ones, and of similar lines or entries the first and last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from clusterproof.plugins.agent.pattern import Pattern

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    Read = tuple[float, bytes, int]  # seconds since boot, the text, its level
    Line = tuple[int, float, str, int]  # its number, seconds since boot, the text, its level
    Entry = tuple[Line, ...]  # lines that belong together

# Relevant beginnings of messages, in lower case: they contain no text of users, and others are rejected quickly.
DEVICE = rb"[\w.-]+ [0-9a-f:.]+(?: ?[\w.-]+)?: "  # a driver, and the address and name of its device
MATTERS = Pattern(
    rb"nvrm|nvidia|neuron|efa[ :]|infiniband|lustre|lnet|nfs|libc|ceph|cifs|beegfs: m|mlx4|linux version \d"
    rb"|(?:amdgpu|\[drm).*(?:hardware e|poison|gpu reset|nvidia|\*error\* ring)"
    rb"|mlx5_core(?!.*access_reg).*(?:fatal|health|time|firmware [ov]|synd|bad dev|fail|or state|link |cable |high t"
    rb"|pci_err)"
    rb"|ena .*(?:timeout|not in run|lost tx|fail|unhealthy|paused|responsive|reset comp|msi.?x issue)"
    rb"|netdev w|unregister_n|ib\w+: trans|tcp: [ot]|(?:nf_conn|neighb).*(?:full|overf)"
    rb"|[\w.-]+: (?:\(slave .*def|now running w|link status def)"
    rb"|" + DEVICE + rb"(?:aer: |pcie |detec|tx.t|hmc|adap|contr|dpc:? |rp_pio|.{0,8}slot\(|card |.{5,9} ch|refused"
    rb"|not rea|netd|error \(|.{0,30}link is|rebui|malic|broken|retr|data l|.{0,6}fw in)"
    rb"|dmar: (?:\[|.*time-?out)|.{0,40}amd-vi: [eci]|\w+ device=|arm-smmu.*(?:timeout|error|event 0|e mode)"
    rb"|mpt.sas_\w+: [fs]"
    rb"|mce|core: u|edac|bert:|\S* ?\[hardw|soft.?offl|memory (?:fail|cg)|nmi|uhhu|serror|internal e"
    rb"|cpu\d+: pack|thermal.* critical temp|clocksource: tim|tsc: m|irq \d+: nob"
    rb"|ipmi.*(?:incor|err|enab|fail)|out of mem|oom|system is d|vfs: file-m|cgroup: f"
    rb"|bug: |kernel [bp]|unable to handle|oops|general prot|invalid op"
    rb"|stack seg|divide|list_\w+ corr|refcount_t|warning: [cp]|info: |rcu: "
    rb"|watchdog: |traps: |.{1,15}?(?:\[\d+\]: segf|: page alloc| invoked oom)"
    rb"|nvme.{0,14}: (?:probe |.* timeout, |co|dev|rem|dis|froz|rest|resetting c|iden|io q|pci f|\d+/)"
    rb"|block nvme.*no av|buffer i/o"
    rb"|[\w /:]+ error, dev|\w+-err|sd .*offline"
    rb"|ata\d.*(?:emask|giving|failed c)|md.*(?:fail|kick|recovery d)|device-mapper: (?:mul|thin)"
    rb"|ext4-fs |jbd2: |aborting j|xfs[ :]|btrfs.*(?:err|forc|crit)"
)
ERROR, UNKNOWN = 3, 7  # the kernel's levels of errors, below which all are worse; and the value if a source shows none
OURS = Pattern(
    rb"amdgpu|bnxt|efa|ena |i40e|ice |infiniband|irdma|mlx5|nvidia|nvme|nvrm|neuron"
)  # beginnings of our devices' names
BOOT_S = 1.0  # a log that begins later has lost its beginning
EACH = 16  # similar lines to keep: the first ones, and the last ones
MAX_CHARACTERS = 1000  # of one line
MAX_TOTAL_CHARACTERS = 1_500_000  # of all lines
MAX_USERS_CHARACTERS = 300_000  # of lines that may contain users' text
# Netfilter's, with more of its words than a process's name can have: the author of the rule chose its beginning.
FILTERED = Pattern(rb".{0,140}IN=\S* OUT=\S* .{0,9}(?:[^ =]*=\S* ){4}", re.DOTALL)


class Kept:
    """The lines to send, and how many were read and omitted."""

    def __init__(self, sequence: int = -1, seconds: float = -1.0) -> None:
        self.has_cursor = seconds >= 0  # seconds up to which lines were seen in an earlier read
        self.is_at_cursor = True
        self.sequence = sequence  # of the last record that was read
        self.seconds = seconds  # since boot, of the last line read
        self._kinds = Kinds(MAX_KINDS)
        self._lines_by_kind: dict[str, _LinesOfKind] = {}  # by their kind
        self.truncated = False  # whether records of this boot are lost
        self.is_lost = False  # whether some are lost before the next record
        self.is_unfinished = False  # whether there was no time for the rest
        self._whole_from = 0.0  # seconds since boot from which on no record is lost

    def of(self, lines: Iterable[Read]) -> dict[str, object]:
        """Read a log to its end."""
        read = matter = 0
        paired = Paired()
        for seconds, text, level in lines:
            if self.is_lost or (read == 0 and seconds >= BOOT_S and not self.has_cursor):
                self.truncated, self.is_lost, self._whole_from = True, False, seconds
            read += 1
            self.seconds = max(self.seconds, seconds)
            topic = topic_of(text, level)
            if topic:
                matter += 1
                line = (read, seconds, text.decode("utf-8", "replace")[:MAX_CHARACTERS], level)
                self._keep(paired.of(line), topic[0].decode())
        self._keep(paired.rest(), KILLS_AT)
        kept = self._lines()
        return {
            "lines": kept,
            "read": read,
            "dropped": matter - len(kept),
            "uncounted": sum(self._lines_by_kind[kind].left_out for kind in self._kinds.mixed),
            "folded": self._folded(),
            "truncated": self.truncated or self.is_unfinished,
            "whole_from": None if self.is_unfinished else self._whole_from,
            **({"unfinished": True} if self.is_unfinished else {}),
        }

    def _keep(self, entries: Iterable[Entry], topic: str) -> None:
        for entry in entries:
            self._lines_by_kind.setdefault(self._kinds.of(entry, topic), _LinesOfKind()).add(entry)

    def _folded(self) -> dict[str, int]:
        """How many lines with varying users' text were omitted, by class."""
        folded: dict[str, int] = {}
        for kind, name in self._kinds.folded.items():
            folded[name] = folded.get(name, 0) + self._lines_by_kind[kind].left_out
        return {name: count for name, count in folded.items() if count}

    def _lines(self) -> list[list[object]]:
        """The kept lines in order; fewer of each kind if there are too many.

        The first line after omitted ones of its kind has their number; an error also has its level.
        """
        own: dict[str, _LinesOfKind] = {}
        of_users: dict[str, _LinesOfKind] = {}
        for kind, lines in self._lines_by_kind.items():
            (of_users if lines.is_of_users else own)[kind] = lines
        uncountable = self._kinds.mixed.union(self._kinds.folded)
        kept = [
            line
            for lines, most in ((own, MAX_TOTAL_CHARACTERS), (of_users, MAX_USERS_CHARACTERS))
            for line in _bounded(lines, most, uncountable)
        ]
        return [[*line[1:3], *further(line[4], line[3])] for line in sorted(kept)]


class _LinesOfKind:
    """Lines of one kind: the first, the last, and their number."""

    def __init__(self) -> None:
        self.first: list[Entry] = []
        self.last: deque[Entry] = deque(maxlen=EACH)
        self.count = 0
        self.is_of_users = False
        self.left_out = 0

    def add(self, entry: Entry) -> None:
        self.count += 1
        if len(self.first) < EACH:
            self.first.append(entry)
            self.is_of_users = bool(OF_USERS.match(entry[-1][2]))
        else:
            self.last.append(entry)

    def lines(self, each: int, is_countable: bool) -> Iterable[tuple[int, float, str, int, int]]:
        """The first and the last lines, each with how many are left out before it."""
        first, last = self.first[:each], list(self.last)[-each:]
        self.left_out = self.count - len(first) - len(last)
        for number, entry in enumerate(first + last):
            is_after = is_countable and number == len(first)
            for line in entry:
                yield (*line, self.left_out if is_after and line is entry[-1] else 0)


def _bounded(
    lines_by_kind: dict[str, _LinesOfKind], most: int, uncountable: set[str]
) -> list[tuple[int, float, str, int, int]]:
    """The lines of these kinds, limited to so many characters, but at least one first and one last line of each."""
    each = EACH
    while True:
        kept = [
            line for kind, of_kind in lines_by_kind.items() for line in of_kind.lines(each, kind not in uncountable)
        ]
        if each == 1 or sum(len(line[2]) for line in kept) <= most:
            return kept
        each //= 2


def topic_of(text: bytes, level: int) -> re.Match[bytes] | None:
    """The beginning of a line that is kept: a relevant one, or an error of a relevant device."""
    small = text.lower()
    if FILTERED.match(text):
        return None
    return MATTERS.match(small) or (OURS.match(small) if level <= ERROR else None)


def further(left_out: int, level: int) -> list[int]:
    """The additional values of a line, if not the usual ones."""
    return [left_out, level] if level <= ERROR else [left_out] if left_out else []


MAX_KINDS = 1000  # kinds of lines with the same beginning
MAX_KINDS_OF_USERS = 64  # kinds of lines of one of the classes below
MAX_KIND = 120  # characters that must be equal in similar lines
MAX_COARSE_KIND = 60  # the same in a log of ever varying lines
BEGINNING = 4  # letters that must be equal at the beginning
KILLS_AT = "oom-kill:constraint="  # beginning of a line with the limit for which the next line kills a process
# Variable parts: addresses, Lustre targets, file servers, devices, and numbers that express severity make lines
# different. Other numbers, and memory addresses, do not.
NAMES_OR_NUMBERS = Pattern(
    r"(\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\d+\.\d+\.\d+\.\d+|(?:OST|MDT)[0-9a-f]{4}|server \S+"
    r"|\b(?:nvme|dm-|md|sd|GPU ?|MC|nd|mlx5_|e[nt]|ib|bond|efa_|rdmap|ata|nvidia-nvsw)\w*|(?:sd|thin:|path) [\d:]+"
    r"|order:\d+|severity\(\d+|Bank \d+: \w|CSTS=0xf*)"
    r"|0x[0-9a-f]+|\b[0-9a-f]{8,16}\b|\d+"
)
XID = Pattern(r"NVRM: Xid \([^()]{1,60}\): \d{1,6}|nvidia-nvswitch\d{1,4}: SXid \([^()]{1,60}\): \d{1,6}")
# Where text of users may occur: names of processes, groups, files, options and their own devices. The groups
# contain the kernel's words, which define the class of such lines.
OF_USERS = Pattern(
    r".{0,15}(: page allocation failure[.:,] {0,2}order:\d+|: vmalloc |: attempt to access| invoked oom-killer: )"
    r"|(?:traps: )?.{0,15}?(\[\d{1,10}\]:? | ?\(\d{1,10}\):? )(segf|general|trap|bad fr|unhandled|vsys)?"
    r"|(INFO: task )|(oom-kill:\w+=\w+|oom_reaper|(?:Memory cgroup o|O)ut of memory[^:]{0,40}: Kill)"
    r"|(cgroup: fork)|(\w+: [Uu]n\w+ (?:parameter|mount opt))|(EXT4-fs \w+ \(device [^)]{1,40}\))"
    r"|(NVRM: API mis)|(nfs: server)|(XFS: ).{1,15}\(\d+\) poss|(?:NMI )?(?:watchdog: )?(BUG: soft)"
    r"|[\w.-]{1,15}(: \(slave|: now running|: link status)|(unregister_n)",
    re.DOTALL,
)


class Kinds:
    """The known kinds of lines: by their text; by less of it in a log of varying lines."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, set[str]] = {}  # kinds by the beginning of their lines
        self.folded: dict[str, str] = {}  # kinds of lines with ever varying users' text, by their class
        self.mixed: set[str] = set()  # kinds of lines that have only the beginning in common

    def of(self, entry: Entry, topic: str) -> str:
        """What similar lines have in common; `topic` is their beginning."""
        text = entry[-1][2]
        xid, of_users = XID.match(text), OF_USERS.match(text)
        why = entry[0][2][len(KILLS_AT) :].split(",")[0] + " " if len(entry) > 1 else ""
        kind = why + (xid[0] if xid else without_numbers(text[:MAX_KIND]))
        if xid and (" Fatal" in text or ": Yes" in text):  # `RST: Yes`: the GPU must be reset
            kind += " Fatal"
        if of_users and not xid:
            user_text = "".join(filter(None, of_users.groups()))
            name = f"{why}*{without_numbers(user_text)}"
            if not self._is_known(name, kind, min(self._most, MAX_KINDS_OF_USERS)):
                kind = name
                self.folded[kind] = user_text.strip("[]():0123456789 ") or "other"
            return kind
        begins = text[:BEGINNING].lower()
        if not self._is_known(begins, kind, 3 * self._most if xid else self._most):
            kind = kind[:MAX_COARSE_KIND]
            if not self._is_known(begins, kind, 2 * self._most):
                kind = without_numbers(topic[-6:])
            self.mixed.add(kind)
        return kind

    def _is_known(self, begins: str, kind: str, most: int) -> bool:
        """Whether it is one of the kinds with this beginning; a new one is added if there is room."""
        known = self._known.setdefault(begins, set())
        if kind not in known and len(known) < most:
            known.add(kind)
        return kind in known


class Paired:
    """Puts the line with a limit before that of the resulting kill: neither is meaningful alone."""

    def __init__(self) -> None:
        self._limit: Entry = ()

    def of(self, line: Line) -> tuple[Entry, ...]:
        """The entries that are complete with this line."""
        if line[2].startswith(KILLS_AT):
            return (*self.rest(), *self._held(line))
        if self._limit and "ut of memory" in line[2][:80]:
            return ((*self._limit, *(line,)), *self._held())
        return ((line,),)

    def rest(self) -> tuple[Entry, ...]:
        """A line with a limit, for which nothing was killed."""
        limit, self._limit = self._limit, ()
        return (limit,) if limit else ()

    def _held(self, *lines: Line) -> tuple[()]:
        self._limit = lines
        return ()


def without_numbers(text: str) -> str:
    """What similar lines have in common."""
    return NAMES_OR_NUMBERS.sub(lambda match: match[1] or "#", text)
