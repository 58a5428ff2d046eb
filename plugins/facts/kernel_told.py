"""What every check over the kernel log says alike: how often, when, which GPU, and that a cut log proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol

from clusterproof.plugins.facts.field import readings
from clusterproof.plugins.facts.window import since_boot
from clusterproof.plugins.verdict import Incomplete, NotApplicable, incomplete

if TYPE_CHECKING:
    from clusterproof.plugins.facts.node import Node

MOST_NAMED = 6  # things of one kind in a message; the others are counted


class Logged(Protocol):
    """An event: when it was logged, and how many lines it stands for."""

    @property
    def time(self) -> float | None:
        """Seconds on the log's own clock."""

    @property
    def lines(self) -> int:
        """How many lines of the log."""


@dataclass(frozen=True, slots=True)
class NamedGpu:
    """A GPU as NVML names it."""

    index: int
    uuid: str
    remap_is_due: bool

    @property
    def words(self) -> str:
        """`GPU 3, GPU-…`."""
        return f"GPU {self.index}, {self.uuid}" if self.uuid else f"GPU {self.index}"


def require_whole_log(node: Node) -> None:
    """Say that finding nothing proves nothing where records that count are lost. Raises Incomplete."""
    if node.kernel_log_is_cut:
        due = "of this boot" if node.since.is_boot else node.since.in_words
        incomplete(f"records of the kernel log are lost, and no journal has them; expected all that was logged {due}")


def total(events: Iterable[Logged]) -> int:
    """How many lines of the log the events stand for."""
    return sum(event.lines for event in events)


def how_often(events: Iterable[Logged], node: Node) -> str:
    """`3 times, last at 2026-03-01 08:00:00 UTC`; `at …` where it was once."""
    events = tuple(events)
    count = total(events)
    last = max((event.time for event in events if event.time is not None), default=None)
    at = "" if last is None else when(last, node)
    if count == 1:
        return at or "once"
    return f"{count} times, last {at}" if at else f"{count} times"


def when(seconds: float, node: Node) -> str:
    """A moment of the kernel log by the node's own clock, else by its distance from boot."""
    try:
        booted = node.boot.booted
        moment = datetime.fromtimestamp(booted + since_boot(seconds, booted), timezone.utc)
    except (Incomplete, OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after boot"
    return f"at {moment:%Y-%m-%d %H:%M:%S} UTC"


def in_list(words: Iterable[str]) -> str:
    """The words in one line, the first few of many."""
    words = list(words)
    more = [f"and {len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return "; ".join([*words[:MOST_NAMED], *more])


def gpus_by_address(node: Node) -> Mapping[str, NamedGpu]:
    """The GPUs that can tell their PCI address, by it."""
    try:
        gpus = node.gpus
    except (Incomplete, NotApplicable):
        return {}
    named: dict[str, NamedGpu] = {}
    for gpu in gpus:
        told, _ = readings(gpu, "pci", "uuid", "remap_pending", "remap_failed")
        if "pci" in told:
            is_due = bool(told.get("remap_pending") or told.get("remap_failed"))
            named[told["pci"]] = NamedGpu(gpu.index, told.get("uuid", ""), is_due)
    return named
