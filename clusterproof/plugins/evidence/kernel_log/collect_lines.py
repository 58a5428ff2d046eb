"""Which lines of a kernel log are kept: those that matter, and of lines alike the first and the last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from clusterproof.plugins.evidence.kernel_log.collect_kinds import KILLS_AT, MAX_KINDS, OF_USERS, Kinds, Paired

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from clusterproof.plugins.evidence.kernel_log.collect_kinds import Entry

    Read = tuple[float, bytes, int]  # seconds since boot, the text, its level

# By how the kernel's words begin, in small letters: no words of users stand there, and others are soon passed over.
DEVICE = rb"[\w.-]+ [0-9a-f:.]+(?: [\w.-]+)?: "  # a driver, and the address and name of what it speaks of
MATTERS = re.compile(
    rb"nvrm|nvidia|neuron|efa[ :]|infiniband|lustre|lnet|nfs|linux version \d"
    rb"|amdgpu .*(?:hardware err|poison|gpu reset|\*error\* ring)|\[drm.*(?:nvidia|\*error\* ring)"
    rb"|mlx5_core(?!.*access_reg).*(?:fatal|health|time|firmware [ov]|synd|bad dev|fail|or state|link |cable |high t)"
    rb"|ena .*(?:timeout|not in run|lost tx|fail|unhealthy|paused|responsive|reset comp|msi.?x issue)"
    rb"|bnxt_en .*tx time|netdev w|unregister_n|ib\w+: trans|tcp: (?:out|too)|(?:nf_conn|neighb).*(?:full|overf)"
    rb"|[\w.-]+: (?:\(slave .*def|now running w)"
    rb"|" + DEVICE + rb"(?:aer: |pcie bus|dpc: |rp_pio|pciehp: slot\(|unable to ch|refused|not ready \d+ms a|amd-vi: ev"
    rb"|netdev w|error \(timeout|nic link|rebuild f|malicious)"
    rb"|dmar: (?:\[|.*time-?out)|amd-vi: [ec]|arm-smmu.*(?:timeout|event 0|failure mode)"
    rb"|mce|edac|bert:|(?:\{\d+\})?\[hardw|soft.?offl|memory (?:fail|cg)|nmi: |uhhuh|serror|internal err"
    rb"|(?:mce: )?cpu\d+: pack|thermal.* critical temp|clocksource: tim|tsc: mark|irq \d+: nob"
    rb"|ipmi.*(?:incor|err|enab|fail)|out of mem|oom|system is d|vfs: file-m|cgroup: f"
    rb"|bug: |kernel [bp]|unable to handle|oops|general prot|invalid op"
    rb"|stack seg|divide|list_\w+ corr|refcount_t|warning: cpu|info: (?:task|rcu)|rcu: (?:info|rcu_\w+ k)"
    rb"|(?:nmi )?watchdog: (?:bug|cpu|watchdog det)|traps: |.{1,15}?(?:\[\d+\]: segf|: page alloc| invoked oom)"
    rb"|nvme nvme\d+: (?:.* timeout, |contr|dev|rem|dis|froz|rest|\d+/)|block nvme.*no av|buffer i/o"
    rb"|(?:blk_update_request: |print_req_error: )?(?:critical [\w ]+|i/o) error, dev|(?:read|write)-err|sd .*offline"
    rb"|ata\d.*(?:emask|giving|failed c)|md.*(?:fail|kicking|recovery done)|device-mapper: (?:mul|thin)"
    rb"|ext4-fs |aborting j|xfs(?: \(|:)|btrfs .*(?:error|forced)"
)
ERROR, UNKNOWN = 3, 7  # the kernel's levels: of errors, below which all are worse; and where a source shows none
OURS = re.compile(
    rb"amdgpu|bnxt|efa|ena |i40e|ice |infiniband|irdma|mlx5|nvidia|nvme|nvrm|neuron"
)  # so begin our devices'
BOOT_S = 1.0  # a log that begins later has lost its beginning
EACH = 16  # of lines alike: so many first, and so many last
MAX_CHARACTERS = 1000  # of one line
MAX_TOTAL_CHARACTERS = 1_500_000  # of all lines
MAX_USERS_CHARACTERS = 300_000  # of those in which users' words may stand
FILTERED = re.compile(rb".{0,140}IN=\S* OUT=\S* ", re.DOTALL)  # netfilter's: who made the rule chose how it begins


class Kept:
    """The lines that are sent, and how many were read and left out."""

    def __init__(self, sequence: int = -1, seconds: float = -1.0) -> None:
        self.has_cursor = seconds >= 0  # what came until then was looked at before
        self.is_at_cursor = True
        self.sequence = sequence  # of the last record read
        self.seconds = seconds  # since boot, of the last line read
        self._kinds = Kinds(MAX_KINDS)
        self._alike: dict[str, _Alike] = {}  # by their kind
        self.truncated = False  # whether records of this boot are lost
        self.is_lost = False  # whether some are lost before the next that comes
        self._whole_from = 0.0  # seconds since boot from which on none is lost

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
        data = self._lines()
        return {
            "lines": data,
            "read": read,
            "dropped": matter - len(data),
            "uncounted": sum(self._alike[kind].left_out for kind in self._kinds.mixed),
            "folded": self._folded(),
            "truncated": self.truncated,
            "whole_from": self._whole_from,
        }

    def _keep(self, entries: Iterable[Entry], topic: str) -> None:
        for entry in entries:
            self._alike.setdefault(self._kinds.of(entry, topic), _Alike()).add(entry)

    def _folded(self) -> dict[str, int]:
        """How many lines of ever different users' words are left out, by their class."""
        folded: dict[str, int] = {}
        for kind, name in self._kinds.folded.items():
            folded[name] = folded.get(name, 0) + self._alike[kind].left_out
        return {name: count for name, count in folded.items() if count}

    def _lines(self) -> list[list[object]]:
        """The kept lines in their order; fewer of each kind where all would be too much.

        The first line after those of its kind that are left out says how many they are; an error has its level as well.
        """
        own: dict[str, _Alike] = {}
        of_users: dict[str, _Alike] = {}
        for kind, alike in self._alike.items():
            (of_users if alike.is_of_users else own)[kind] = alike
        uncountable = self._kinds.mixed.union(self._kinds.folded)
        data = [
            line
            for alike, most in ((own, MAX_TOTAL_CHARACTERS), (of_users, MAX_USERS_CHARACTERS))
            for line in _bounded(alike, most, uncountable)
        ]
        return [[*line[1:3], *further(line[4], line[3])] for line in sorted(data)]


class _Alike:
    """Lines of one kind: the first, the last, and how many they are."""

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


def _bounded(alike: dict[str, _Alike], most: int, uncountable: set[str]) -> list[tuple[int, float, str, int, int]]:
    """The lines of these kinds, in at most so many characters as far as one first and one last of each allow."""
    each = EACH
    while True:
        data = [line for kind, lines in alike.items() for line in lines.lines(each, kind not in uncountable)]
        if each == 1 or sum(len(line[2]) for line in data) <= most:
            return data
        each //= 2


def topic_of(text: bytes, level: int) -> re.Match[bytes] | None:
    """How a line begins that is kept: one that may mean something, or an error of a device of ours."""
    small = text.lower()
    if FILTERED.match(text):
        return None
    return MATTERS.match(small) or (OURS.match(small) if level <= ERROR else None)


def further(left_out: int, level: int) -> list[int]:
    """What stands behind a line where it is not as most are."""
    return [left_out, level] if level <= ERROR else [left_out] if left_out else []
