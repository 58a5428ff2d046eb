"""Lines of output that end no process: warnings, and tracebacks after which the program continues."""

from __future__ import annotations

import math
import re
from collections import deque

from clusterproof.plugins.case import Event, Span
from clusterproof.plugins.case.exceptions import NAME_OF_EXCEPTION, OF_MPIRUN, rest_of
from clusterproof.plugins.catalog.causes import CASCADE, CAUSE, STOPPED, Block, Sign, blocks, first_words, signs
from clusterproof.plugins.core.record import field, record, replace

WARNED = "warned"  # the sign in causes.toml
LONGEST = 200  # lines of such a traceback, including interleaved ones

_FRAME = re.compile(r'(?:^|\s)File "[^"]{1,400}", line \d{1,7}')
_GLOG = re.compile(
    r"(?:\[?rank\d{1,7}\]:? ?|\d{1,7}: )?\[?W\d{4,8} \d\d:\d\d:\d\d\.\d{1,9} "
)  # of glog, Abseil and PyTorch
_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\[(?:E|error|fatal)[ \]]|\blevel=(?:error|fatal)")  # of loggers
_LABELS = re.compile(  # of times, ranks and Ray's processes
    rf"(?:{OF_MPIRUN}|"
    r"\[rank=?\d{1,7}\]|\[\d[^\[\]]{0,40}\]|\([^()]{1,100}\)|[\d\s:.,/TZ+-])*"
)
_BARS = ("it/s]", "s/it]")  # of tqdm, after which a line continues
_HEADER = "Traceback (most recent call last)"
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_MARKS = ("^", "~~")  # in traceback lines below source code


def as_logged(line: str, sign: Sign) -> Sign:
    """The sign of a line: if logged as a warning, its program continued, whatever cause it names."""
    warned = signs()[WARNED]
    if sign.role != CAUSE or sign.cause == STOPPED or any(other in line for other in warned.unless):
        return sign
    begins = min(at for phrase in sign.says if (at := line.find(phrase)) >= 0) if sign.says else 0
    error = _ERROR.search(line, 0, begins)
    most = error.start() if error else begins
    is_of_level = any(
        0 <= (at := line.find(level)) < most and not line.startswith("s", at + len(level)) for level in warned.says
    )
    return warned if is_of_level or _GLOG.match(line) else sign


@record
class TracebackLine:
    """What a line means for a known traceback: it is part of one that is left out, or its end."""

    is_left_out: bool = False
    is_end: bool = False
    sign: Sign | None = None  # overrides its exception's sign


OTHER_LINE = TracebackLine()


class TracebackReader:
    """Reads a file's lines in order, and recognises the tracebacks that causes.toml lists."""

    def __init__(self) -> None:
        self.of_ranks: dict[int | None, _Open] = {}

    def take(self, number: int, line: str, rank: int | None) -> TracebackLine:
        """What this line is."""
        is_candidate = any(text in line for text in first_words())
        if is_candidate and (row := next((row for row in blocks().values() if _begins(line, row)), None)):
            known = self.of_ranks.setdefault(rank, _Open(number, row))
            if not row.ends:
                count, due = (known.count + 1, known.due + 1) if not known.row.ends else (1, 1)
                self.of_ranks[rank] = _Open(number, row, count, due)
                return TracebackLine(is_left_out=True)
            self.of_ranks[rank] = known if not known.row.ends else _Open(number, row)
        if rank not in self.of_ranks:
            return OTHER_LINE
        known = self.of_ranks[rank]
        if number - known.begins > LONGEST:
            del self.of_ranks[rank]
            return OTHER_LINE
        return self._last_line(line, rank, known) if known.row.ends else self._goes_on(line, rank, known)

    def _last_line(self, line: str, rank: int | None, known: _Open) -> TracebackLine:
        """The end of a traceback that only its exception identifies: until that comes, it may be of any kind."""
        if _is_of_frames(rest_of(line)) or not NAME_OF_EXCEPTION.search(rest_of(line)):
            return OTHER_LINE
        del self.of_ranks[rank]
        is_known = any(text in line for text in known.row.ends)
        sign = signs().get(known.row.sign)
        return TracebackLine(is_left_out=is_known and sign is None, is_end=is_known, sign=sign if is_known else None)

    def _goes_on(self, line: str, rank: int | None, known: _Open) -> TracebackLine:
        """Read on to the block's exception; lines of other processes may come between; another traceback ends it."""
        rest = rest_of(line)
        is_frame, is_header = bool(_FRAME.search(rest)), _HEADER in rest
        is_chain = any(text in rest for text in _CHAINS)
        is_end = known.is_next and bool(NAME_OF_EXCEPTION.search(rest))
        is_code = known.is_in_frame and ("    " in rest or not NAME_OF_EXCEPTION.search(rest))
        is_part = is_frame or is_chain or is_header or (not known.is_cut and (is_code or _is_of_frames(rest)))
        is_over = not known.count and not is_chain
        if is_over or (is_header and not known.due) or (known.due and not is_part and not is_end):
            del self.of_ranks[rank]
            return OTHER_LINE
        if is_part:
            due = known.due - is_header + is_chain
            self.of_ranks[rank] = replace(
                known, count=max(known.count, 1), due=due, is_in_frame=is_frame, is_next=True, is_cut=False
            )
            return TracebackLine(is_left_out=True)
        count = known.count - is_end
        self.of_ranks[rank] = replace(known, count=count, is_in_frame=False, is_next=is_end, is_cut=not is_end)
        return TracebackLine(is_left_out=is_end)


@record
class _Open:
    """A traceback that is being read: its first line, and how many tracebacks of its chain are still `due`.

    `is_next`: its exception may be next; `is_cut`: it contained an unrelated line.
    """

    begins: int
    row: Block
    count: int = 0
    due: int = 0
    is_in_frame: bool = False
    is_next: bool = True
    is_cut: bool = False


def _begins(line: str, row: Block) -> bool:
    """Whether a line is the first of a block: only after times, ranks and progress bars."""
    at = next((at for text in row.says if (at := line.find(text)) >= 0), -1)
    if at < 0 or not row.is_first:
        return at >= 0
    before = line[:at]
    bar = max(before.rfind(end) + len(end) if end in before else 0 for end in _BARS)
    return bool(_LABELS.fullmatch(before[bar:]))


def _is_of_frames(rest: str) -> bool:
    """Whether a line belongs to a traceback, except its exception."""
    return rest[:1].isspace() or _HEADER in rest or rest.rstrip().endswith(_MARKS)


STEPS_AFTER = 3  # so many different steps after an apparently fatal line show that it was not fatal
TIMES_OF_STEPS = 64  # stored per rank
MAX_STEPPERS = 512  # ranks whose steps are tracked: more are not needed to see that the job continues
WHILE_IT_RUNS = ("not_a_number",)  # signs within lines about steps

_STEP = re.compile(
    r"(?:^|[\s\[({'\"])(?:iteration|iter|step|global_step|batch|update|num_updates)\b['\"]?[ :=#]{1,20}['\"]?(\d{1,18})"
    r"|(?:\bEpoch:? ?|\bTrain: \d{1,9} |\])\[ {0,8}(\d{1,9})/ {0,8}\d{1,9}[\] (]"  # torchvision, mmengine, timm
    r"|\bepoch \d{1,9}: {1,9}(\d{1,9}) / \d{1,9} "  # fairseq
    r"|:\d{1,9}-(\d{1,9})batch:"  # ESPnet
    r"|[| ](\d{1,9})/\d{1,9} \[[\d:]{4,12}<",  # a bar of tqdm
    re.IGNORECASE,
)


def step_of(line: str) -> int | None:
    """The training step in a line, if any; not the steps of jobs in Slurm's messages."""
    match = None if "slurmstepd" in line or "srun: " in line else _STEP.search(line)
    return int(match[match.lastindex or 1]) if match else None


@record
class Steps:
    """The last few steps of each rank of a file, with their lines and times."""

    told: dict[int | None, deque[tuple[int, int]]] = field(default_factory=dict)
    times: dict[int | None, dict[int, float]] = field(default_factory=dict)

    def add(self, number: int, rank: int | None, step: int, stamp: Span) -> None:
        """Add a rank's step, from this line; a step may be logged more than once."""
        if rank not in self.told and len(self.told) == MAX_STEPPERS:
            return
        times = self.times.setdefault(rank, {})
        if stamp.begins is not None:
            times.setdefault(step, stamp.begins)
            if len(times) > TIMES_OF_STEPS:
                del times[next(iter(times))]
        known = self.told.setdefault(rank, deque(maxlen=STEPS_AFTER))
        if all(step != other for other, _ in known):
            known.append((step, number))

    def has_outlived(self, sign: str, rank: int | None, number: int) -> bool:
        """Whether the rank continued well after a line; or all ranks that log steps, if it never does."""
        if sign in WHILE_IT_RUNS or not self.told:
            return False
        steps_of_ranks = [self.told[rank]] if rank in self.told else self.told.values()
        return all(len(steps) == STEPS_AFTER and steps[0][1] > number for steps in steps_of_ranks)


class LastStep:
    """By when the last step of a file was logged. A bar may write steps without a time between those that have one."""

    def __init__(self) -> None:
        self.ends: float | None = None  # infinite if no time stands behind it, None if there is no step
        self._undated: int | None = None  # steps since the last one with a time
        self._most_undated = 0  # between two of them

    def add(self, when: Span) -> None:
        """Add a step, with the time of its line if it has one."""
        if when.ends is not None:
            self._most_undated = max(self._most_undated, self._undated or 0)
            self.ends, self._undated = when.ends, 0
            return
        self._undated = None if self._undated is None else self._undated + 1
        if self._undated is None or self._undated > self._most_undated:
            self.ends = math.inf

    def take_time(self, when: Span) -> None:
        """The time of a line: a step before it was not later."""
        self.ends = when.ends if self.ends == math.inf else self.ends


class LastLines:
    """When each rank of a file wrote its last line, and its last before the end of another was reported."""

    def __init__(self) -> None:
        self.wrote: dict[int | None, float] = {}
        self.ran: dict[int | None, float] = {}
        self.ended: set[int | None] = set()  # ranks that report such an end
        self._lived: float | None = None
        self._undated = 0  # lines since the last one with a time
        self._most_undated = 0  # between two of them

    def add(self, rank: int | None, when: Span, sign: Sign | None) -> None:
        """Add a line, with its time if it has one. Without a rank it may be of any, such as one that waits."""
        is_of_end = sign is not None and sign.role == CASCADE
        if is_of_end:
            self.ended.add(rank)
        if when.begins is None:
            self._undated += not is_of_end
            return
        self._take_time(when, is_of_end or (sign is not None and sign.cause == STOPPED))
        self.wrote[rank] = when.begins
        if rank not in self.ended and not (rank is None and self.ended):
            self.ran[rank] = when.begins

    def _take_time(self, when: Span, is_of_end: bool) -> None:
        if not is_of_end and self._lived is not None:
            self._most_undated = max(self._most_undated, self._undated)
        if not is_of_end or self._wrote_without_times:
            self._lived = when.ends
        self._undated = 0

    @property
    def _wrote_without_times(self) -> bool:
        """Whether more lines without a time came than those that belong to the last one with it."""
        return self._undated > self._most_undated

    @property
    def lived(self) -> float | None:
        """When the last line was written that is about no end; infinite if it has no time, None if none has."""
        return math.inf if self._lived is not None and self._wrote_without_times else self._lived

    def wrote_s(self, event: Event) -> float:
        """For how long its rank continued to write after an event."""
        return _since(event.when.begins, self.wrote.get(event.rank))

    def ran_s(self, event: Event) -> float:
        """The same, before the end of another was reported."""
        return _since(event.when.ends, self.ran.get(event.rank))


def _since(moment: float | None, last: float | None) -> float:
    return 0.0 if moment is None or last is None else max(last - moment, 0.0)
