"""The data of a training run, read from its own files.

`formats` has a reader for each tool's files, using `files` for bounded, strict decoding. Their data types are here, in
`collectives`, `samples` and `placement`, and for a whole run in `run_data`. `rules` compute with it, and `run` is the
interface for checks. This module: operations of ranks, steps with their parts and kinds of work, and dumps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import field, record

MAX_RANKS = 8  # in a message


class RunError(ClusterproofError, ValueError):
    """A file of a run that cannot be read; the message has file, line, what was observed and what was expected."""


@record
class Position:
    """A rank's pipeline stage, and its replica, which is its data-parallel rank."""

    rank: int
    stage: int = 0
    replica: int | None = None


def rank_names(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 12, 14`, and how many more there are."""
    more = f" and {len(numbers) - MAX_RANKS} more" if len(numbers) > MAX_RANKS else ""
    shown = ", ".join(map(str, numbers[:MAX_RANKS])) + more
    return f"rank{'s' * (len(numbers) > 1)} {shown}"


@record
class Operation:
    """An operation of a step on one rank, and its seconds: `forward-compute`, `grads-reduce-scatter`."""

    position: Position
    step: int
    name: str
    seconds: float


@record
class Step:
    """One step of a rank, and the seconds of its timed parts: `forward`, `data`, `checkpoint`.

    A log line may stand for all `times` steps since the previous line: then `step` is the last of them, and all seconds
    are means over these steps.
    """

    position: Position
    step: int
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    times: int = 1
    saves: int = 0  # checkpoints saved in them, if counted
    work: str = ""  # the size of the work, `1024x4096`, if that may change: larger steps take longer
    is_unnamed: bool = False  # whether the file names no rank
    is_of_run: bool = False  # whether it is of all ranks, whichever of them logs it


KERNEL, OPERATOR = "kernel", "operator"
REST = "all others"


@record
class TimeSpent:
    """The time and number of calls of a kernel on a rank's GPU, or of an operator on its CPU with what it calls."""

    rank: int
    kind: str
    name: str
    seconds: float
    times: int


@record
class DataLoader:
    """A rank's data loader: its worker processes, and whether it copies batches to pinned memory."""

    rank: int
    workers: int | None = None
    pins_memory: bool | None = None

    @property
    def description(self) -> str:
        """`num_workers=4, pin_memory=False`, as far as known."""
        known = (("num_workers", self.workers), ("pin_memory", self.pins_memory))
        return ", ".join(f"{name}={value}" for name, value in known if value is not None)


@record
class StepLoop:
    """When the first step of a file began, and when the last one ended, in seconds since 1970."""

    began: float
    ended: float


@record
class CpuCount:
    """How many CPUs a node has, from its samples."""

    node: str
    count: int


@record
class CutFile:
    """A file that breaks off: its incomplete end is ignored."""


@record
class NoDuration:
    """A step or operation whose duration is negative or no number."""


@record
class OutOfRange:
    """A value that no GPU can have: DCGM reports one in some 200,000 samples (NVIDIA/DCGM#199)."""

    message: str  # `gpu of gpu3 is 2619; expected 0 to 100`


@record
class OtherLine:
    """A line among samples that is none of them: a warning of their tool, a message of srun's."""

    words: str


@record
class Unranked:
    """A file that does not name the rank of its compute times."""


COMPUTE, COMMUNICATION, DATA, EXPOSED = "compute", "communication", "data", "exposed"
CHECKPOINT, INIT, OTHER = "checkpoint", "init", "other"
BUSY = "busy"  # compute that is not compared between ranks
UNKNOWN = "unknown"  # an unknown name: taken for compute if there is nothing else
EXPOSED_ALONE, KERNELS = "exposed communication", "kernels"  # parts in traces; the latter of unknown stages

_WORDS = (  # the first kind that matches a word of the name: `forward-recv` waits for others
    (EXPOSED, "exposed"),
    (
        COMMUNICATION,
        """send recv receive isend irecv sendrecv reduce allreduce gather allgather scatter broadcast bcast all2all
        alltoall a2a nccl rccl p2p comm comms communication collective barrier wait sync synchronize idle bubble""",
    ),
    (CHECKPOINT, "checkpoint checkpointing ckpt save"),
    (INIT, "init initialization initialisation setup startup warmup"),
    (DATA, "data dataloader loader loading load batch fetch prefetch input dataset"),
    (COMPUTE, "compute forward fwd backward bwd"),
    (BUSY, "kernels"),
    (OTHER, "gc optimizer optim opt log logging eval evaluation validation step total zero grad"),
)
_KINDS = {word: kind for kind, written in reversed(_WORDS) for word in written.split()}
_ORDER = [kind for kind, _ in _WORDS]
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+2?[a-z]*|[0-9]+")
_TOGETHER = (  # words that have another meaning separately
    (re.compile(r"all[ _-]?to[ _-]?all", re.IGNORECASE), "alltoall"),
    (re.compile(r"(data|batch|input)([ _-]?load(er|ing))?[ _-]?wait", re.IGNORECASE), "dataloader"),
    (re.compile(r"wait[ _-]?((for|on)[ _-]?)?(data(?![ _-]?parallel)|batch|input)", re.IGNORECASE), "dataloader"),
)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """Whether a name means compute, communication, data loading, a checkpoint, another known thing, or is unknown."""
    for pattern, word in _TOGETHER:
        name = pattern.sub(word, name)
    parts = _PARTS.findall(name)
    kinds = {_KINDS[word.lower()] for word in parts if word.lower() in _KINDS}
    return next((kind for kind in _ORDER if kind in kinds), UNKNOWN)


@record
class GroupProgress:
    """A rank's progress in a process group: the last collective that it enqueued, and the last that ended."""

    enqueued: int
    ended: int

    def has_arrived(self, number: int) -> bool:
        """Whether it has enqueued a collective, and ended all before it."""
        return self.enqueued >= number and self.ended >= number - 1


@record
class PendingCollective:
    """The first collective of a process group that a rank enqueued and that has not ended.

    Whether its GPU has begun it is None if the dump does not say (TORCH_NCCL_ENABLE_TIMING=1 records it).
    """

    number: int
    name: str  # `all_to_all`
    has_begun: bool | None = None


@record
class PendingExchange:
    """The first send or receive with another rank that a rank enqueued and that has not ended."""

    group: str
    peer: int
    number: int
    name: str  # `recv from rank 8`


@record
class CollectiveArguments:
    """A rank's call of a collective, in the fields on which ranks must agree; `elements` is None where they need not.

    `where` is the line of its program, `train_step, train.py:120`; `time` is in seconds since 1970, by its own clock,
    and `timeout_s` is how long it waits for the others.
    """

    name: str
    elements: int | None = None
    dtype: str = ""
    where: str = ""
    time: float | None = None
    timeout_s: float = 0.0

    @property
    def description(self) -> str:
        """`all_reduce of 7 Float`."""
        size = "" if self.elements is None else f" of {self.elements:,}"
        return f"{self.name}{size}{f' {self.dtype}' if size and self.dtype else ''}"


@record
class Dump:
    """One rank's Flight Recorder dump: its process groups by name, and its progress in each."""

    rank: int
    members: Mapping[str, tuple[int, ...]]  # of each group: its ranks
    purposes: Mapping[str, str]  # purpose of each group, `TENSOR_MODEL_PARALLEL_GROUP`
    pending: Mapping[str, PendingCollective]
    enqueued: Mapping[str, int]  # for groups with an operation in the ring
    local: Mapping[str, str]  # for each group: the number by which only this rank knows it
    status: Mapping[str, GroupProgress]  # by that number
    exchanges: tuple[PendingExchange, ...] = ()  # one for each rank to which it sends, or from which it receives
    called: Mapping[str, Mapping[int, CollectiveArguments]] = field(default_factory=dict)  # some of each group
    with_sends: frozenset[str] = frozenset()  # also groups in which it only sends or receives
