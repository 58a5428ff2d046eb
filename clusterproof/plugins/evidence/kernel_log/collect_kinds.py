"""Which lines of a kernel log are alike, and which belong together; what users write takes no room of the kernel's."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    Line = tuple[int, float, str, int]  # its number, seconds since boot, the text, its level
    Entry = tuple[Line, ...]  # lines that say one thing together

MAX_KINDS = 1000  # of lines that begin alike
MAX_KINDS_OF_USERS = 64  # of lines of one class of those below
MAX_KIND = 120  # characters in which lines alike are alike
MAX_COARSE_KIND = 60  # and in a log of ever different lines
BEGINNING = 4  # letters in which lines begin alike
KILLS_AT = "oom-kill:constraint="  # so begins a line about the limit for which the next line kills a process
# What is not alike: addresses, targets of Lustre, file servers, devices, and numbers that say how bad it is. All others
# are, as are the addresses of memory.
NAMES_OR_NUMBERS = re.compile(
    r"(\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\d+\.\d+\.\d+\.\d+|(?:OST|MDT)[0-9a-f]{4}|server \S+"
    r"|\b(?:nvme|dm-|md|sd|GPU ?|MC|nd|mlx5_|e[nt]|ib|bond|efa_|rdmap|ata|nvidia-nvsw)\w*|(?:sd|thin:|path) [\d:]+"
    r"|order:\d+|severity\(\d+|Bank \d+: \w|CSTS=0xf*)"
    r"|0x[0-9a-f]+|\b[0-9a-f]{8,16}\b|\d+"
)
XID = re.compile(r"NVRM: Xid \([^()]{1,60}\): \d{1,6}|nvidia-nvswitch\d{1,4}: SXid \([^()]{1,60}\): \d{1,6}")
# Where words of a user's may stand: names of processes, groups, files, options and devices of their own. The groups are
# the kernel's words, by which such lines are of one class.
OF_USERS = re.compile(
    r".{0,15}(: page allocation failure[.:,] {0,2}order:\d+|: vmalloc |: attempt to access| invoked oom-killer: )"
    r"|(?:traps: )?.{0,15}?(\[\d{1,10}\]:? | ?\(\d{1,10}\):? )(segf|general|trap|bad fr|unhandled|vsys)?"
    r"|(INFO: task )|(oom-kill:\w+=\w+|oom_reaper|(?:Memory cgroup o|O)ut of memory[^:]{0,40}: Kill)"
    r"|(cgroup: fork)|(\w+: [Uu]n\w+ (?:parameter|mount opt))|(EXT4-fs \w+ \(device [^)]{1,40}\))"
    r"|(NVRM: API mis)|(nfs: server)|(XFS: ).{1,15}\(\d+\) poss|(?:NMI )?(?:watchdog: )?(BUG: soft)"
    r"|[\w.-]{1,15}(: \(slave|: now running)|(unregister_n)",
    re.DOTALL,
)


class Kinds:
    """The kinds of lines that there are: by their words; by less of these in a log of ever different lines."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, set[str]] = {}  # kinds by how their lines begin
        self.folded: dict[str, str] = {}  # kinds of lines of ever different users' words, by their class
        self.mixed: set[str] = set()  # kinds of lines that only begin alike

    def of(self, entry: Entry, topic: str) -> str:
        """What lines alike have in common; `topic` is how they begin."""
        text = entry[-1][2]
        xid, of_users = XID.match(text), OF_USERS.match(text)
        why = entry[0][2][len(KILLS_AT) :].split(",")[0] + " " if len(entry) > 1 else ""
        kind = why + (xid[0] if xid else without_numbers(text[:MAX_KIND]))
        if of_users and not xid:
            words = "".join(filter(None, of_users.groups()))
            name = f"{why}*{without_numbers(words)}"
            if not self._is_known(name, kind, min(self._most, MAX_KINDS_OF_USERS)):
                kind = name
                self.folded[kind] = words.strip("[]():0123456789 ") or "other"
            return kind
        begins = text[:BEGINNING].lower()
        if not self._is_known(begins, kind, 3 * self._most if xid else self._most):
            kind = kind[:MAX_COARSE_KIND]
            if not self._is_known(begins, kind, 2 * self._most):
                kind = without_numbers(topic[-6:])
            self.mixed.add(kind)
        return kind

    def _is_known(self, begins: str, kind: str, most: int) -> bool:
        """Whether it is one of the kinds of lines that begin so, which it becomes where there is room."""
        known = self._known.setdefault(begins, set())
        if kind not in known and len(known) < most:
            known.add(kind)
        return kind in known


class Paired:
    """Puts the line that names a limit before that of the kill for it: neither means anything without the other."""

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
        """A limit for which nothing was killed."""
        limit, self._limit = self._limit, ()
        return (limit,) if limit else ()

    def _held(self, *lines: Line) -> tuple[()]:
        self._limit = lines
        return ()


def without_numbers(text: str) -> str:
    """What lines alike have in common."""
    return NAMES_OR_NUMBERS.sub(lambda found: found[1] or "#", text)
