"""Exact arithmetic under load: what GPUs and cores computed, what of it was wrong, and what they were not asked for."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    every,
    flag,
    optional,
    text,
    values,
    whole,
)
from clusterproof.plugins.evidence.perf.facts import Ran
from clusterproof.plugins.evidence.perf.gpu_speed import document


def small_numbers(data: object) -> tuple[int, ...]:
    """A list of whole numbers, empty where there is none."""
    return tuple(whole(entry) for entry in values([] if data is None else data))


@record
class Wrong(Reported):
    """One result that was wrong, and how often it was when it was computed again."""

    where = Field(text)
    data_set = Field(optional(text), "set")
    elements = Field(optional(whole))
    bits = Field(small_numbers)
    again = Field(optional(whole))
    of = Field(optional(whole))
    alike = Field(optional(flag))
    operands_changed = Field(optional(flag))
    core = Field(optional(whole))
    type = Field(optional(text))

    @property
    def words(self) -> str:
        """`row 5, column 9, bit 3 (wide by narrow; 8 of 8 times again, always alike)`."""
        differing = f", bit{'s' if len(self.bits) > 1 else ''} {listed(map(str, self.bits))}" if self.bits else ""
        repeated = f"{self.again} of {self.of} times again" if self.of else "not repeated"
        alike = ", always alike" if self.alike and self.again == self.of else ""
        changed = "; its operands changed in memory" if self.operands_changed else ""
        return f"{self.where}{differing} ({f'{self.data_set}; ' if self.data_set else ''}{repeated}{alike}{changed})"


@record
class TypeProducts(Reported):
    """Products of one data type."""

    type = Field(text)
    products = Field(optional(whole))
    wrong_products = Field(whole)
    wrong = Field(every(Wrong))
    why = Field(optional(text))  # it was not multiplied
    has_none = Field(optional(text))  # by its make the hardware lacks the type


@record
class ExactGpu(Reported):
    """One GPU."""

    name = Field(text)
    error = Field(optional(text))

    @property
    def types(self) -> tuple[TypeProducts, ...]:
        """Products by type, at least one. Raises Incomplete."""
        if self.error:
            raise Incomplete(f"{self.error[:200]}; expected products of every type")
        return tuple(at_least_one([*Field(every(TypeProducts), "types").__get__(self, ExactGpu)], "type of data"))


@record
class GpuExact(Reported):
    """The GPUs of a node."""

    given = Field(optional(whole), "gpus")  # GPUs, to the process that measured

    @property
    def gpus(self) -> tuple[ExactGpu, ...]:
        """In PyTorch's order, which is nvidia-smi's. Raises Incomplete."""
        report = Reported(document(Ran(self.data)))
        return tuple(at_least_one([*_Gpus(report.data).gpus], "GPU"))


@record
class _Gpus(Reported):
    gpus = Field(every(ExactGpu))


@record
class CoreError(Reported):
    """A core whose process did not answer."""

    core = Field(whole)
    error = Field(text)


@record
class Cores(Reported):
    """What all cores computed."""

    cores = Field(whole)
    types = Field(every(TypeProducts))
    wrong = Field(every(Wrong))
    errors = Field(every(CoreError))
    without_torch = Field(optional(text))


@record
class CpuExact(Reported):
    """The cores and the memory of a node."""

    @property
    def found(self) -> Cores:
        """What they answered, by PyTorch or without it. Raises Incomplete."""
        printed: Mapping[str, Any] = document(Ran(self.data)) if "output" in self.data else self.data
        return Cores(printed)
