"""Why a job ended: its traces in order of time, and what they say about its nodes, its code and its limits.

Thin wrappers collect (`folder`, `slurm`), parsers turn text into events and facts, and pure functions decide. This
module: the records that all of them share.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from clusterproof.plugins.captures import node_name
from clusterproof.plugins.catalog.causes import CASCADE, UNKNOWN, Sign, signs
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import field, record


class CaseError(ClusterproofError, ValueError):
    """There is no case at the named place; the message says why."""


RESOLUTION_S = 1.0  # of log times without a fraction


@record
class Span:
    """When something happened, in seconds since 1970: not before `begins`, not after `ends`; None: unknown."""

    begins: float | None = None
    ends: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether both are known."""
        return self.begins is not None and self.ends is not None

    @property
    def shown(self) -> float | None:
        """The time to show: for a long span its end, by which it had surely happened."""
        return self.ends if self.is_long else self.begins

    @property
    def is_long(self) -> bool:
        """Whether it spans more than a second."""
        return self.begins is not None and self.ends is not None and self.ends - self.begins > RESOLUTION_S

    def is_before(self, other: Span, apart_s: float = 0.0) -> bool:
        """Whether it was surely before the other, if clocks may differ by so much."""
        return self.ends is not None and other.begins is not None and self.ends + apart_s < other.begins


NO_TIME = Span()


@record
class Event:
    """A significant line in the job's output, or in what its scheduler or Kubernetes reports about it.

    `source` is `file:line`; `count` is of similar lines; `waited_s` is for how long the rank had waited by then, and
    `wrote_s` for how long it continued to write, `ran_s` of that before the end of another was reported.
    """

    sign: str
    words: str
    source: str
    when: Span
    node: str = ""
    rank: int | None = None
    count: int = 1
    waited_s: float = 0.0
    wrote_s: float = 0.0
    ran_s: float = 0.0

    @property
    def row(self) -> Sign:
        """Its entry in the catalogue."""
        return signs()[self.sign]

    @property
    def position(self) -> tuple[str, int | None]:
        """The file that it is from, and its line; None for sources without lines."""
        file, _, line = self.source.rpartition(":")
        return (file, int(line)) if line.isdecimal() else (self.source, None)

    @property
    def is_cascade(self) -> bool:
        """Whether it only reports the end of other ranks."""
        return self.row.role == CASCADE

    @property
    def is_warning(self) -> bool:
        """Whether programs also write such a line and continue: then it has no consequences."""
        return self.row.unexplained and "exceptions" not in self.row.read_in


@record
class Fact:
    """Evidence from a node itself: its kernel log, or the suite's checks.

    `is_strong`: it fails a node by itself. `action` is what to do, `check` the check that found it.
    """

    node: str
    cause: str
    is_strong: bool
    words: str
    source: str
    check: str
    when: Span
    device: str = ""
    action: str = ""
    is_of_run: bool = False  # a check found it when it ran, rather than the node's log when it happened
    pid: int | None = None  # the process that the line is about
    jobs: tuple[str, ...] = ()  # Slurm jobs whose control groups it names
    is_of_job: bool | None = None  # whether these are the job's own; None if that is unknown


@record
class Job:
    """What the scheduler knows; empty values are unknown."""

    number: str = ""
    state: str = ""
    exit_code: str = ""
    nodes: tuple[str, ...] = ()
    ran: Span = field(default_factory=Span)


@record
class Lead:
    """A rank that differs from others, which is no cause. If it `is_late`, others waited for it: test its node.

    `words` follow its name; `line` is from its program, if its dump contains the last call of a collective.
    """

    rank: int
    words: str
    node: str = ""
    is_late: bool = True
    line: str = ""


@record
class Offset:
    """How far a node's clock is ahead, in seconds, plus or minus `apart_s`; `how` that is known."""

    seconds: float
    apart_s: float
    how: str


@record
class LogBegin:
    """When a kernel log begins, in seconds since 1970; and whether the node booted then: what was before is missing."""

    seconds: float
    is_boot: bool


class MissingKind(Enum):
    """What is missing, for kinds that are reported in a special way."""

    LOGS, LOGS_OF_SOME = auto(), auto()  # kernel logs: of all nodes, or of some
    RECORD, OUTPUT = auto(), auto()
    OF_ANOTHER_TIME = auto()  # evidence that is not shown
    ACCOUNTING = auto()  # Slurm's, which keeps none for any job
    COMMAND = auto()  # how to save kernel logs by hand


@record
class Missing:
    """What was not available, and why, in words."""

    words: str
    kind: MissingKind | None = None


@record
class Collected:
    """All evidence of a case, and what is missing of it."""

    name: str
    job: Job
    events: tuple[Event, ...] = ()
    outlived: tuple[Event, ...] = ()  # the job continued after these: shown, and never the cause
    facts: tuple[Fact, ...] = ()
    leads: tuple[Lead, ...] = ()
    nodes_of_ranks: Mapping[int, str] = field(default_factory=dict)
    pids_of_ranks: Mapping[int, int] = field(default_factory=dict)
    nodes_with_log: tuple[str, ...] = ()
    nodes_in_part: tuple[str, ...] = ()  # those of them whose log was not read whole: what it has may be worse
    logs_begin: Mapping[str, LogBegin] = field(default_factory=dict)  # of these nodes, if known
    nodes_checked: tuple[str, ...] = ()  # checked by a run, whatever it found
    progress: float | None = None  # time of the last logged step, at the earliest
    stepped: float | None = None  # the same at the latest; infinite if that is not known
    last: float | None = None  # time of the last line of output
    lived: float | None = None  # of the last one that is about no end; infinite if it has no time
    read: tuple[str, ...] = ()  # descriptions of what was read
    lacks: tuple[Missing, ...] = ()
    cluster: str = ""  # as named for `clusterproof check`, if Kubernetes ran the job; else its nodes are asked by ssh
    names: Mapping[str, str] = field(default_factory=dict)  # of nodes, in Kubernetes
    clocks: Mapping[str, Offset] = field(default_factory=dict)  # of nodes, if known; applied to times

    @property
    def missing(self) -> tuple[str, ...]:
        """What was not available, in words."""
        return tuple(part.words for part in self.lacks)


MAX_SHOWN_CHARACTERS = 160  # characters of a line that are shown


def one_line(text: str, most: int = MAX_SHOWN_CHARACTERS) -> str:
    """Untrusted text for display: one line, without terminal control characters."""
    return printable(text[:most]).replace("\n", "\\n")


def label(node: str) -> str:
    """A node's name without its domain, because programs write both; empty for anything but a host name."""
    if node_name(node, "") != node:
        return ""
    return node if node.replace(".", "").isdecimal() else node.partition(".")[0]


ESTABLISHED, SUPPORTED, CANDIDATE, COMPLETED = "established", "supported", "candidate", "completed"
CRASH_PRIOR = 0.7  # that a crash logged by the kernel, in a library or a GPU kernel, is caused by the job's own code
DESYNC = "desync"  # a sign in dumps: ranks' own messages follow from it


@record
class CaseVerdict:
    """The cause, its confidence, the nodes responsible, and the reasons.

    `standing`: established (the node's own evidence, before everything else, and confirmed by one of its ranks),
    supported (the node's evidence alone), candidate (messages of the job or its scheduler), completed, unknown.
    `nodes` are blamed, `suspects` should be tested; `against` is contrary evidence, or findings that are no cause.
    """

    cause: str
    probability: float
    standing: str
    why: str
    first: Event | Fact | None = None
    nodes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    rank: int | None = None
    against: tuple[str, ...] = ()


def of_contest(event: Event, fact: Fact) -> CaseVerdict:
    """Unknown: the job's messages and a node's evidence disagree, and neither is known to be first."""
    reason = f"{event.row.meaning}, and {fact.node}: {fact.words}; no time tells which came first"
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, None, (), (fact.node,), event.rank)


def quoted(event: Event) -> str:
    """The meaning of an event, and its own words if they say more."""
    meaning = event.row.meaning
    return f"{meaning}: {event.words}" if event.row.quoted and event.words != meaning else meaning
