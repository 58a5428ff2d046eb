"""Exact arithmetic under load: what GPUs and cores computed, wrong results, and data types that were not tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any, TypeVar
from clusterproof.plugins.core.verdict import Recording, part
from clusterproof.plugins.evidence.exact.on_node.locations import MAX_BITS
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    boolean,
    integer,
    known,
    objects_as,
    optional,
    text,
    values,
)
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document

T = TypeVar("T")
WRONG, RIGHT = "wrong", "right"
FEWEST = 3  # nodes that show a library's fault, as any one of them may say what is not so
TILE = 256 * 128  # elements that one block of threads computes, at most


def small_numbers(data: object) -> tuple[int, ...]:
    """A list of whole numbers, empty where there is none."""
    return tuple(integer(entry) for entry in values([] if data is None else data))


def every_alone(kind: Callable[[dict[str, Any]], T]) -> Callable[[object], tuple[T, ...]]:
    """A decoder like `every`, except that an invalid entry does not affect others: it counts as not reported."""
    return lambda data: tuple(kind(entry if isinstance(entry, dict) else {}) for entry in values(data))


def made_unless(error: str | None, made: tuple[T, ...] | None, what: str) -> tuple[T, ...]:
    """What a GPU or rank has made, at least one `what` unless an error ended it. Raises Incomplete."""
    return tuple(made or ()) if error else tuple(at_least_one([*(made or ())], what))


def bits_in_words(bits: tuple[int, ...]) -> str:
    """`bit 3`, `bits 3, 4`; `bits 0, 1, 2, 3, 4, 5, 6, 7 or more`, as a node names no more."""
    more = " or more" if len(bits) >= MAX_BITS else ""
    return f"bit{'s' if len(bits) > 1 else ''} {listed(map(str, bits))}{more}"


def gpu_called(number: int, address: str | None) -> str:
    """A GPU by its number, which depends on those that a process is given, and its place on the PCI bus if known."""
    return f"GPU {number} ({address})" if address else f"GPU {number}"


@record
class WrongResult(Reported):
    """One wrong result, and how often it was wrong again when repeated."""

    where = Field(text)
    data_set = Field(optional(text), "set")
    elements = Field(optional(integer))
    bits = Field(small_numbers)
    again = Field(optional(integer))
    of = Field(optional(integer))
    alike = Field(optional(boolean))
    operands_changed = Field(optional(boolean))
    core = Field(optional(integer))
    type = Field(optional(text))

    @property
    def is_steady(self) -> bool:
        """Whether it occurred in every repetition, with the same value."""
        return bool(self.of and self.again == self.of and self.alike)

    @property
    def description(self) -> str:
        """`row 5, column 9, bit 3 (wide by narrow; 8 of 8 times again, always alike)`."""
        differing = f", {bits_in_words(self.bits)}" if self.bits else ""
        repeated = f"{self.again} of {self.of} times again" if self.of else "not repeated"
        same_value = ", always alike" if self.alike and self.again == self.of else ""
        changed = "; its operands changed in memory" if self.operands_changed else ""
        return (
            f"{self.where}{differing} ({f'{self.data_set}; ' if self.data_set else ''}{repeated}{same_value}{changed})"
        )


@record
class TypeProducts(Reported):
    """The products of one data type."""

    type = Field(text)
    products = Field(optional(integer))
    cores = Field(optional(integer))  # number of cores that multiplied it
    wrong_cores = Field(optional(integer))
    wrong_products = Field(integer)
    wrong = Field(objects_as(WrongResult))
    why = Field(optional(text))  # it was not multiplied
    has_none = Field(optional(text))  # by its make the hardware lacks the type

    @property
    def gap(self) -> str:
        """Why a type that the hardware supports is not proven; empty if it is. Raises Incomplete."""
        has_products = (self.products or 0) > 0 or bool(self.has_none)
        return "" if has_products else self.why or "no result could be verified"


@record
class ExactGpu(Reported):
    """The results of one GPU."""

    name = Field(text)
    address = Field(optional(text))  # on the PCI bus
    sms = Field(optional(integer))
    size = Field(optional(integer))  # rows and columns of its products
    error = Field(optional(text))  # why it computed no more
    _made = Field(optional(every_alone(TypeProducts)), "types")

    @property
    def types(self) -> tuple[TypeProducts, ...]:
        """Products by type, at least one unless there is an error. Raises Incomplete."""
        return made_unless(self.error, self._made, "type of data")

    @property
    def gap(self) -> str:
        """Why its products do not prove all types; empty if they do. Raises Incomplete."""
        if self.error:
            return self.error[:200]
        size, busy = self.size or 0, (self.size or 0) ** 2 // TILE
        if not size or busy >= (self.sms or 0):
            return ""
        return f"products of {size} x {size} keep {busy} of {self.sms} SMs busy, as little of its memory is free"


@record
class _Printed(Reported):
    gpus = Field(every_alone(ExactGpu))


@record
class GpuExact(Reported):
    """The results of a node's GPUs."""

    given = Field(optional(integer), "gpus")  # number of GPUs available to the measuring process

    @property
    def gpus(self) -> tuple[ExactGpu, ...]:
        """In PyTorch's order, which is nvidia-smi's. Raises Incomplete."""
        return tuple(at_least_one([*_Printed(document(ProgramRun(self.data))).gpus], "GPU"))


def wrong_by_type(gpus: Iterable[ExactGpu]) -> Mapping[str, list[tuple[WrongResult, ...]]]:
    """By type, what each of these GPUs that multiplied it has wrong."""
    by_type: dict[str, list[tuple[WrongResult, ...]]] = {}
    with Recording():  # the check reports what cannot be read of it
        for kind in (kind for gpu in gpus for kind in known(lambda: gpu.types, ())):  # noqa: B023
            with part:
                if kind.products or kind.wrong:
                    by_type.setdefault(kind.type, []).append(kind.wrong)
    return by_type


def are_steady(wrong_by_gpu: Iterable[tuple[WrongResult, ...]]) -> bool:
    """Whether each of these GPUs is wrong, each time."""
    return all(of_gpu and all(wrong.is_steady for wrong in of_gpu) for of_gpu in wrong_by_gpu)


def wrong_everywhere(gpus: Iterable[ExactGpu]) -> Mapping[str, list[WrongResult]]:
    """By type, what is wrong on each of several GPUs, each time: a library's fault, as no two GPUs break alike."""
    return {
        name: [wrong for of_gpu in wrong_by_gpu for wrong in of_gpu]
        for name, wrong_by_gpu in wrong_by_type(gpus).items()
        if len(wrong_by_gpu) > 1 and are_steady(wrong_by_gpu)
    }


def votes_on_types(gpus: Iterable[ExactGpu]) -> Mapping[str, str | None]:
    """By type, whether every GPU of a node has it wrong, each time."""
    return {name: WRONG if are_steady(of_gpus) else RIGHT for name, of_gpus in wrong_by_type(gpus).items()}


def wrong_on_nodes(votes_of_nodes: Iterable[Mapping[str, str | None]]) -> Mapping[str, int]:
    """The types that every GPU of every node has wrong, each time, with the number of these nodes; of a few, none."""
    votes: dict[str, list[str | None]] = {}
    for votes_of_node in votes_of_nodes:
        for name, vote in votes_of_node.items():
            votes.setdefault(name, []).append(vote)
    return {name: len(of_type) for name, of_type in votes.items() if len(of_type) >= FEWEST and {*of_type} == {WRONG}}


def multiplied_by(gpus: Iterable[ExactGpu]) -> frozenset[tuple[str, str]]:
    """The names of GPUs, with each type that one of that name has multiplied."""
    made: set[tuple[str, str]] = set()
    with Recording():
        for gpu in gpus:
            with part:
                made |= {(gpu.name, kind.type) for kind in gpu.types if (kind.products or 0) > 0}
    return frozenset(made)


@record
class CoreError(Reported):
    """A core whose process gave no answer."""

    core = Field(integer)
    error = Field(text)


@record
class CoreResults(Reported):
    """The results of all cores."""

    cores = Field(integer)  # that the test could run on
    online = Field(optional(integer))  # of the node; 0 if not known, None in older recordings
    types = Field(every_alone(TypeProducts))
    wrong = Field(every_alone(WrongResult))
    errors = Field(objects_as(CoreError))
    without_torch = Field(optional(text))

    @property
    def wrong_everywhere(self) -> Mapping[str, list[WrongResult]]:
        """By type, what is wrong on each of several cores, each time, as for GPUs."""
        wrong_by_type: dict[str, list[WrongResult]] = {}
        with Recording(), part:
            for kind in self.types:
                wrong = [result for result in self.wrong if result.type == kind.type]
                is_everywhere = (kind.cores or 0) > 1 and kind.wrong_cores == kind.cores
                if wrong and is_everywhere and all(result.is_steady for result in wrong):
                    wrong_by_type[kind.type] = wrong
        return wrong_by_type


@record
class CpuExact(Reported):
    """The results of a node's cores and memory."""

    @property
    def found(self) -> CoreResults:
        """The answers of the cores, by PyTorch or without it. Raises Incomplete."""
        printed: Mapping[str, Any] = document(ProgramRun(self.data)) if "output" in self.data else self.data
        return CoreResults(printed)
