"""A case: why a job ended, from its output, its scheduler and its nodes, ordered in time.

Thin shells collect (`folder`, `slurm`), readers make events and facts of text, and pure functions decide. Here: the
records that all of them share.
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
    """Files or a job id that give no case; the message says why."""


RESOLUTION_S = 1.0  # of times that logs have without a fraction


@record
class Span:
    """When something happened, in seconds since 1970: between `begins` and `ends`; None where unknown."""

    begins: float | None = None
    ends: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether both are."""
        return self.begins is not None and self.ends is not None

    @property
    def shown(self) -> float | None:
        """The time that stands for it: of a long one its end, by which it had surely happened."""
        return self.ends if self.is_long else self.begins

    @property
    def is_long(self) -> bool:
        """Whether more than a second lies between both."""
        return self.begins is not None and self.ends is not None and self.ends - self.begins > RESOLUTION_S

    def is_before(self, other: Span, apart_s: float = 0.0) -> bool:
        """Whether it was surely before the other, by clocks that may be so far apart."""
        return self.ends is not None and other.begins is not None and self.ends + apart_s < other.begins


@record
class Event:
    """A line of a job's output, its scheduler or Kubernetes that the catalogue knows as a sign.

    `source` is `file:line`; `count` is of lines alike; `waited_s` is for how long the rank had waited by then,
    and `wrote_s` for how long it still wrote.
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

    @property
    def row(self) -> Sign:
        """What the catalogue says of it."""
        return signs()[self.sign]

    @property
    def is_cascade(self) -> bool:
        """Whether it is the end of others, as seen from here."""
        return self.row.role == CASCADE

    @property
    def is_warning(self) -> bool:
        """Whether programs write such a line and go on as well: it leads to nothing that says more."""
        return self.row.unexplained and "exceptions" not in self.row.read_in


@record
class Fact:
    """Evidence of a node itself: its kernel log, or checks of it.

    `is_strong`: that alone fails a node. `action` is what is due, `check` the check that says so.
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
    is_of_run: bool = False  # a check found it when it ran, and not the node's log when it happened
    pid: int | None = None  # of the process of which the line is
    jobs: tuple[str, ...] = ()  # of Slurm's whose control group it names


@record
class Job:
    """The scheduler's record of a job; empty where nothing says it."""

    number: str = ""
    state: str = ""
    exit_code: str = ""
    nodes: tuple[str, ...] = ()
    ran: Span = field(default_factory=Span)


@record
class Lead:
    """A rank that differs from the others, which proves no cause. Others waited for it if it `is_late`: test its node.

    `words` go on after its name; `line` is of its program, where its dump has the last that called a collective.
    """

    rank: int
    words: str
    node: str = ""
    is_late: bool = True
    line: str = ""


@record
class Offset:
    """How far a node's clock is ahead, in seconds, give or take `apart_s`; `how` says from what that is known."""

    seconds: float
    apart_s: float
    how: str


class MissingKind(Enum):
    """The kinds of missing evidence that are reported in their own way."""

    LOGS, LOGS_OF_SOME = auto(), auto()  # of kernels: of any node, or of some
    RECORD, OUTPUT = auto(), auto()
    OF_ANOTHER_TIME = auto()  # evidence that is not shown
    ACCOUNTING = auto()  # of Slurm, which has none for any job
    COMMAND = auto()  # how kernel logs are saved by hand


@record
class Missing:
    """Evidence that could not be had, and why."""

    words: str
    kind: MissingKind | None = None


@record
class Collected:
    """All evidence of a case, and what is missing of it."""

    name: str
    job: Job
    events: tuple[Event, ...] = ()
    outlived: tuple[Event, ...] = ()  # after which the job went on: shown, and never the cause
    facts: tuple[Fact, ...] = ()
    leads: tuple[Lead, ...] = ()
    nodes_of_ranks: Mapping[int, str] = field(default_factory=dict)
    pids_of_ranks: Mapping[int, int] = field(default_factory=dict)
    nodes_with_log: tuple[str, ...] = ()
    nodes_checked: tuple[str, ...] = ()  # by a run, whatever it found
    progress: float | None = None  # when the last step was logged
    last: float | None = None  # when the last line of output was
    read: tuple[str, ...] = ()  # what was read, in words
    lacks: tuple[Missing, ...] = ()
    cluster: str = ""  # as `clusterproof check` names it, where Kubernetes ran the job; else its nodes are asked by ssh
    names: Mapping[str, str] = field(default_factory=dict)  # of nodes, as Kubernetes has them
    clocks: Mapping[str, Offset] = field(default_factory=dict)  # of nodes, where they are known; times are by none

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be had, in words."""
        return tuple(part.words for part in self.lacks)


LONGEST_WORDS = 160  # of a line that are shown


def one_line(text: str, most: int = LONGEST_WORDS) -> str:
    """Words of others as they are shown: on one line, and with nothing that could steer a terminal."""
    return printable(text[:most]).replace("\n", "\\n")


def label(node: str) -> str:
    """A node's name without its domain: programs write both; empty of what is no name of a host."""
    if node_name(node, "") != node:
        return ""
    return node if node.replace(".", "").isdecimal() else node.partition(".")[0]


ESTABLISHED, SUPPORTED, CANDIDATE, COMPLETED = "established", "supported", "candidate", "completed"
OF_CRASH = 0.7  # that a crash which the kernel logged, of a library or of a kernel on a GPU, is the job's own code
DESYNC = "desync"  # of dumps: what ranks say of it in their own words came of it


@record
class CaseVerdict:
    """The cause, its probability, whose it is, and the reasons.

    `standing`: established (the node's own evidence, ahead of all else, and a rank of it says the same), supported
    (the node's evidence alone), candidate (the words of the job or its scheduler), completed, unknown.
    `nodes` are blamed, `suspects` are to be tested; `against` is what speaks against it, or was found and is no cause.
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
    """Unknown: the job's words and a node's evidence say two things, and neither is known to be the first."""
    reason = f"{event.row.meaning}, and {fact.node}: {fact.words}; no time tells which came first"
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, None, (), (fact.node,), event.rank)


def quoted(event: Event) -> str:
    """What an event means, and its own words where these say more."""
    meaning = event.row.meaning
    return f"{meaning}: {event.words}" if event.row.quoted and event.words != meaning else meaning
