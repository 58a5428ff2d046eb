"""Exceptions in output: those that break off before their name or message, and those that no sign matches."""

from __future__ import annotations

import re

from clusterproof.plugins.catalog.causes import CASCADE, CAUSE, SUSPICION, Sign, signs

CUT, CUT_CPP, UNCAUGHT = "exception_cut_off", "cpp_exception_cut_off", "exception_unknown"  # signs of causes.toml
HEADERS = {CUT: "Traceback (most recent call last)", CUT_CPP: "terminate called after throwing an instance of"}
SHORTEST = 6  # characters of the half of a header
LAUNCHER_PREFIXES = ("srun:", "slurmstepd", "mpirun", "prterun")  # who tell of a rank's end, and not of its exception
MESSAGE = 6  # lines behind the name of an exception that may be of its message
NCCL_LAST_ERROR = "Last error:"
Key = tuple[str, "int | None", str]  # of an event: its sign, rank and node

OF_MPIRUN = (  # with --timestamp-output; SageMaker's names the host, and Horovod's has the rank alone
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?"
    r"\[(?:1,)?(?:mpirank:)?(\d{1,7})(?:,([\w.-]{1,253}))?\]<std\w{3,4}>"
)
_BEFORE = re.compile(  # torchrun's own label has a role, and the rank's number on its node
    rf" {{0,7}}(?:(?:{OF_MPIRUN}:|\d{{1,7}}:(?= )|\[rank\d{{1,7}}\]:?|\[[A-Za-z]\w{{0,40}}\d{{1,7}}\]:) ?)+"
)
NAME_OF_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]{0,200}: |^[A-Za-z_]\w{0,100}(?:\.\w{1,100}){1,9}$"
    r"|(?:^|[\s>])[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?::(?= |$)|$)"
)
_MESSAGE = re.compile(r"^\s{0,8}what\(\):")


class Exceptions:
    """Collects exceptions line by line; `begun` has, by rank, the exception that is not complete yet."""

    def __init__(self) -> None:
        self.begun: dict[int | None, str] = {}

    def completes(self, line: str, rank: int | None, sign: Sign | None) -> bool:
        """Whether this line completes an exception that had begun."""
        rest = rest_of(line)
        begun = self.begun.get(rank, "")
        if not begun or rest.startswith(LAUNCHER_PREFIXES) or HEADERS[begun] in rest:
            return False
        form = _MESSAGE if begun == CUT_CPP else NAME_OF_EXCEPTION
        is_explained = sign is not None and sign.role != CASCADE and not sign.unexplained
        is_complete = bool(form.search(rest)) or is_explained
        if is_complete:
            del self.begun[rank]
        return is_complete

    def begins(self, line: str, rank: int | None, sign: Sign | None) -> str:
        """The sign of an exception that begins in this line; empty if none does."""
        rest = rest_of(line)
        is_half = len(rest) >= SHORTEST
        for name, header in HEADERS.items() if not sign else ():
            if header in rest or (is_half and header.startswith(rest)):
                self.begun[rank] = name
                return name
        return ""

    def forget(self, rank: int | None) -> None:
        """Drop an incomplete exception of a rank: it ended nothing."""
        self.begun.pop(rank, None)

    def drop_incomplete(self) -> None:
        """Drop incomplete ones: the next lines of the file are not the next in the job."""
        self.begun.clear()


class Messages:
    """The lines after the name of an exception: they may contain the cause if its first line does not.

    For example, NCCL's `Last error:` stands below PyTorch's DistBackendError: only such a line replaces the first
    line's sign.
    """

    def __init__(self) -> None:
        self.open: dict[int | None, tuple[Key, int, bool]] = {}  # for how many more lines; whether NCCL's error is next

    def begin(self, line: str, key: Key) -> None:
        """Take the event of an exception's first line, if it is one."""
        self.open.pop(key[1], None)
        if signs()[key[0]].role == SUSPICION and NAME_OF_EXCEPTION.search(rest_of(line)):
            self.open[key[1]] = key, MESSAGE, False

    def first_of(self, line: str, rank: int | None, sign: Sign | None) -> Key | None:
        """The event of the first line, if this line of the same message is more specific."""
        key, left, is_next = self.open.pop(rank, (None, 0, False))
        rest = rest_of(line)
        if key is None or rest.startswith(LAUNCHER_PREFIXES) or rest[:1].isspace() or HEADERS[CUT] in rest:
            return None
        is_untold = signs()[key[0]].unexplained and rank is not None  # a file of all ranks has others' lines between
        says_more = sign and (sign.role == CAUSE or (is_untold and sign.role == SUSPICION and not sign.unexplained))
        if says_more and (is_next or is_untold):
            return key
        if left > 1:
            self.open[rank] = key, left - 1, NCCL_LAST_ERROR in rest
        return None


def rest_of(line: str) -> str:
    """A line without the labels of its rank."""
    before = _BEFORE.match(line)
    return line[before.end() :] if before else line
