"""What every check over the kernel log says alike: how often, when, which GPU, and that a cut log proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol, TypeVar

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, incomplete
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

FILE_SERVERS = "file_servers"
RECORDS_LOST = "part of the kernel log was overwritten"
MAX_NAMED = 6  # things of one kind in a message; the others are counted


class Logged(Protocol):
    """An event: when it was logged, and how many lines it stands for."""

    @property
    def time(self) -> float | None:
        """Seconds on the log's own clock."""

    @property
    def lines(self) -> int:
        """How many lines of the log."""


E = TypeVar("E", bound=Logged)


@record
class NamedGpu:
    """A GPU as NVML names it."""

    index: int
    uuid: str
    remap_is_due: bool

    @property
    def words(self) -> str:
        """`GPU 3, GPU-…`."""
        return f"GPU {self.index}, {self.uuid}" if self.uuid else f"GPU {self.index}"


def require_whole_log(node: Node, *, of_file_servers: bool = False) -> None:
    """Say that finding nothing proves nothing where records that count are lost. Raises Incomplete.

    Lines `of_file_servers` were cut from an answer apart from all others.
    """
    due = "of this boot" if node.since.is_boot else node.since.in_words
    cut = sum(count for name, count in node.kernel_lines_cut.items() if (name == FILE_SERVERS) == of_file_servers)
    if cut:
        incomplete(
            f"{cut} lines of the kernel log were cut: the answer was longer than its connection carries; "
            f"expected all that was logged {due} (--ssm-output)"
        )
    if node.kernel_log_is_cut:
        incomplete(f"{RECORDS_LOST}, and no journal has it; expected all that was logged {due}")


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
    """A moment of the kernel log by the log's or the node's own clock, else by its distance from boot."""
    is_dated = seconds >= CALENDAR_S
    try:
        moment = datetime.fromtimestamp(seconds if is_dated else node.boot.booted + seconds, timezone.utc)
    except (Incomplete, NotApplicable):
        return f"{seconds:.0f} s after boot"
    except (OverflowError, ValueError, OSError):
        return "at a time that is none" if is_dated else f"{seconds:.0f} s after boot"
    return f"at {moment:%Y-%m-%d %H:%M:%S} UTC"


def in_words(events: Iterable[E], words: Callable[[E], str], node: Node) -> list[str]:
    """Events alike in one: in these words, how often and when."""
    return [f"{what} ({how_often(found, node)})" for what, found in grouped(events, words).items()]


def grouped(events: Iterable[E], words: Callable[[E], str]) -> dict[str, list[E]]:
    """Events by the words that they have in common."""
    groups: dict[str, list[E]] = {}
    for event in events:
        groups.setdefault(words(event), []).append(event)
    return groups


def in_list(words: Iterable[str]) -> str:
    """The words in one line, the first few of many."""
    words = list(words)
    more = [f"and {len(words) - MAX_NAMED} more"] if len(words) > MAX_NAMED else []
    return "; ".join([*words[:MAX_NAMED], *more])


def gpus_by_address(node: Node) -> Mapping[str, NamedGpu]:
    """The GPUs whose PCI address is known, by it."""
    try:
        gpus = node.gpus
    except (Incomplete, NotApplicable):
        return {}
    named: dict[str, NamedGpu] = {}
    for gpu in gpus:
        data, _ = readings(gpu, "pci", "uuid", "remap_pending", "remap_failed")
        if "pci" in data:
            is_due = bool(data.get("remap_pending") or data.get("remap_failed"))
            named[data["pci"]] = NamedGpu(gpu.index, data.get("uuid", ""), is_due)
    return named
