"""Identical training steps on GPUs: their digests, and a vote among GPUs of one kind and software."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, part
from clusterproof.plugins.evidence.exact.facts import every_alone, made_unless
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    integer,
    known,
    objects_as,
    optional,
    text,
    texts,
)
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document

MIN_ALIKE = 2  # GPUs with equal results that prove another one wrong
MIN_PASSES = 2  # before a GPU has repeated itself
BETWEEN = "\x1f"
DIGEST = Pattern(r"\S{1,64}")  # does not contain BETWEEN; redaction leaves other words


class Opinion(Enum):
    """The others' judgement of one GPU's result."""

    AGREES = "agrees"
    WRONG = "wrong"  # most others share one result, and it has a unique one
    EITHER = "either"  # the same, but no other GPU of its node has what most have: its node may have other software
    SOFTWARE = "software"  # several share each result: two GPUs do not break in the same way
    UNKNOWN = "unknown"  # there is none to compare with, or only one that disagrees


def opinion(own: str, votes: Mapping[str, int], neighbours: Collection[str]) -> Opinion:
    """The judgement of a result among all results of GPUs of one kind, driver and library, including its own.

    `neighbours` are those of other such GPUs of its own node, which share all other software with it.
    """
    whole_vote, most = sum(votes.values()), max(votes.values(), default=0)
    if 2 * most > whole_vote > 1:
        if votes.get(own, 0) == most:
            return Opinion.AGREES
        if votes.get(own, 0) > 1 or most < MIN_ALIKE:
            return Opinion.SOFTWARE
        return Opinion.WRONG if any(votes.get(result, 0) == most for result in neighbours) else Opinion.EITHER
    return Opinion.SOFTWARE if whole_vote > MIN_ALIKE else Opinion.UNKNOWN


@record
class Repeat(Reported):
    """A pass in which a GPU's steps differed from its first pass."""

    number = Field(integer, "pass")
    step = Field(integer)


def digests(data: object) -> tuple[str, ...]:
    """A list of single words. Raises TypeError."""
    written = texts(data)
    if not all(map(DIGEST.fullmatch, written)):
        raise TypeError
    return written


@record
class TypeDigests(Reported):
    """The steps in one data type."""

    type = Field(text)
    passes = Field(integer)
    digests = Field(digests)
    differing = Field(objects_as(Repeat))
    why = Field(optional(text))  # why no steps were made


@record
class StepGpu(Reported):
    """The steps of one GPU."""

    name = Field(text)
    sms = Field(integer)
    libraries = Field(texts)
    address = Field(optional(text))  # on the PCI bus
    error = Field(optional(text))  # why it made no more
    _made = Field(optional(every_alone(TypeDigests)), "types")

    @property
    def types(self) -> tuple[TypeDigests, ...]:
        """Steps by type, at least one unless there is an error. Raises Incomplete."""
        return made_unless(self.error, self._made, "type of data")


@record
class _Printed(Reported):
    torch = Field(text)
    cuda = Field(optional(text))
    gpus = Field(every_alone(StepGpu))


@record
class Steps:
    """One GPU's steps in one type; `configuration` is all that digests depend on, except the GPU itself."""

    gpu: int
    type: str
    configuration: str
    digests: tuple[str, ...]
    is_steady: bool
    address: str | None

    @property
    def vote(self) -> str:
        """The vote in the form that the group stores."""
        return BETWEEN.join((self.configuration, "steady" if self.is_steady else "unsteady", " ".join(self.digests)))


@record
class ExactStep(Reported):
    """The steps of a node's GPUs."""

    driver = Field(optional(text))
    given = Field(optional(integer), "gpus")  # number of GPUs available to the measuring process

    @property
    def printed(self) -> _Printed:
        """What PyTorch printed. Raises Incomplete."""
        return _Printed(document(ProgramRun(self.data)))

    @property
    def gpus(self) -> tuple[StepGpu, ...]:
        """In PyTorch's order, which is nvidia-smi's. Raises Incomplete."""
        return tuple(at_least_one([*self.printed.gpus], "GPU"))

    def steps(self) -> Iterator[Steps]:
        """The steps of every GPU that made any. Unreadable ones make that part of a check incomplete."""
        printed = self.printed
        for number, gpu in enumerate(self.gpus):
            for of_type in known(lambda: gpu.types, ()):  # noqa: B023
                with part:
                    if not of_type.why:
                        yield self._of(printed, number, gpu, of_type)

    def _of(self, printed: _Printed, number: int, gpu: StepGpu, of_type: TypeDigests) -> Steps:
        if not of_type.digests:
            raise Incomplete(f"GPU {number}, {of_type.type}: no digest; expected one for each step")
        if of_type.passes < MIN_PASSES:
            raise Incomplete(f"GPU {number}, {of_type.type}: steps were not repeated; expected the same ones again")
        software = (self.driver or "unknown driver", printed.torch, printed.cuda or "", *sorted(gpu.libraries))
        configuration = ", ".join((of_type.type, gpu.name, f"{gpu.sms} SMs", *software)).replace(BETWEEN, " ")
        address = known(lambda: gpu.address, None)
        return Steps(number, of_type.type, configuration, of_type.digests, not of_type.differing, address)


class Ballot:
    """The results of all GPUs of a group, by what their digests depend on; `own` are those of the node in question."""

    def __init__(self, values: Mapping[str, Mapping[str, str | None]], own: Sequence[Steps]) -> None:
        self.own = own
        self.results: dict[str, Counter[str]] = {}
        self.unsteady: Counter[str] = Counter()
        for votes in values.values():
            for vote in votes.values():
                configuration, steady, digests = (vote or "").split(BETWEEN)
                self.results.setdefault(configuration, Counter())[digests] += 1
                self.unsteady[configuration] += steady == "unsteady"

    def of(self, steps: Steps) -> Opinion:
        """The others' judgement."""
        neighbours = [" ".join(other.digests) for other in self._neighbours(steps)]
        return opinion(" ".join(steps.digests), self.results[steps.configuration], neighbours)

    def count(self, steps: Steps) -> tuple[int, int]:
        """How many have its result, out of how many."""
        votes = self.results[steps.configuration]
        return votes[" ".join(steps.digests)], sum(votes.values())

    def is_unsteady_alone(self, steps: Steps) -> bool:
        """Whether most GPUs, and all others of its own node, repeat their steps exactly, and it does not."""
        neighbours = self._neighbours(steps)
        is_alone = not steps.is_steady and bool(neighbours) and all(other.is_steady for other in neighbours)
        return is_alone and 2 * self.unsteady[steps.configuration] < self.count(steps)[1]

    def _neighbours(self, steps: Steps) -> list[Steps]:
        return [other for other in self.own if other.configuration == steps.configuration and other.gpu != steps.gpu]

    def first_step(self, steps: Steps) -> int:
        """The first step that differs from most others; steps are counted from 0."""
        most_common = self.results[steps.configuration].most_common(1)[0][0].split(" ")
        pairs = enumerate(zip(steps.digests, most_common, strict=False))
        return next((step for step, (own, others) in pairs if own != others), 0)


def votes_of(exact_step: ExactStep) -> Mapping[str, str | None]:
    """The votes of a node, by GPU and type."""
    return {f"{steps.gpu} {steps.type}": steps.vote for steps in exact_step.steps()}
