"""The watch's reports about itself: sources that do not answer, clocks that jump, failures of its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clusterproof.plugins.catalog.nvidia import clocks_event_reasons, unknown_clocks_event_reasons
from clusterproof.plugins.core.message import listed, number_of, printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import TOO_MANY, RuleResult
from clusterproof.plugins.watch.updates import Hello, Tick

SOURCE, CLOCK, SILENT, NO_LOG, REBOOT = "watch.source", "watch.clock", "watch.silent", "watch.log", "watch.reboot"
SAMPLED_RULES = {  # the watch's own rules whose findings stay open, and their subjects
    SILENT: "Samples of the node",
    SOURCE: "Sources that samples are read from",
    NO_LOG: "Kernel log of the node",
    TOO_MANY: "Number of findings of the node",
}
REASONS, SLOWDOWN = "clocks_event_reasons", "slowdown"  # GPU facts
THROTTLED = frozenset({REASONS, SLOWDOWN})
TICK_RULES = frozenset({SOURCE})
MAX_NODES = 120  # characters of a nodeset
GPU_SOURCE = "gpu"
IN_WORDS = {
    GPU_SOURCE: "the NVIDIA driver",
    "host": "/proc",
    "network": "the network's counters",
    "lustre": "Lustre",
    "mounts": "the list of mounts",
    "processes": "the list of processes",
    "ranks": "the list of ranks",
}


def late_sources(tick: Tick) -> dict[tuple[str, str], RuleResult]:
    """The sources that are late, each a finding; what hangs in the driver is attributed to the driver."""
    results = {}
    for name, (seconds, detail) in tick.late.items():
        if seconds:
            why = f": {detail}" if detail else ""
            verdict = Verdict.FAIL if name == GPU_SOURCE else Verdict.CONCERN
            message = f"{IN_WORDS.get(name, name)} has not answered for {seconds:.0f} s{why}; expected an answer"
            results[name, SOURCE] = RuleResult(verdict, message)
    return results


def clock_step(before: Hello, tick: Tick, least_s: float) -> str:
    """The message if the node's clock was set by at least so much between two moments; else empty."""
    step = step_s(before, tick)
    return f"the clock was set by {step:+.0f} s; expected a clock that runs evenly" if abs(step) >= least_s else ""


def is_slowed(facts: Mapping[str, Any]) -> bool:
    """Whether a GPU's clocks are held down for a reason that a check would report."""
    mask = facts.get(REASONS)
    if facts.get(SLOWDOWN):
        return True
    if not isinstance(mask, int) or mask < 0:
        return False
    known = any(reason.verdict != "none" for reason in clocks_event_reasons(mask))
    return known or bool(unknown_clocks_event_reasons(mask))


def step_s(before: Hello, after: Hello | Tick) -> float:
    """By how much a clock was set between two moments."""
    return (after.now - before.now) - (after.up - before.up)


def lines_lost(count: int) -> str:
    """A finding that the kernel overwrote log lines before they were read."""
    was = "was" if count == 1 else "were"
    return f"{number_of(count, 'line')} of the kernel log {was} overwritten unread; expected all of them"


def silent(seconds: float, why: str) -> RuleResult:
    """A finding that a node sends nothing, so that its state is unknown."""
    because = f" ({why})" if why else ""
    return RuleResult(Verdict.INCOMPLETE, f"no sample for {seconds:.0f} s{because}; expected one at each tick")


WHY = "{why}"


def in_one_line(why: object) -> str:
    """A reason on one safe line; for an exception without a message, its type."""
    return printable(" ".join(str(why).split())) or type(why).__name__


class UncheckedNodes:
    """Nodes that the last full check did not reach, each reported once."""

    def __init__(self, say: Callable[[str], object], nodes: Iterable[str] = ()) -> None:
        """`nodes`: those already reported."""
        self._say, self._nodes = say, set(nodes)

    def checked(self, reached: Iterable[str], reasons: Mapping[str, str]) -> None:
        """Record a full check: the nodes reached, and why others were not."""
        back = self._nodes.intersection(reached)
        new = {node: why for node, why in reasons.items() if node not in self._nodes}
        self._nodes = (self._nodes - back) | new.keys()
        if back:
            self._say(f"checked in full again: {within(fold(back), MAX_NODES)}")
        if new:
            nodes, why = within(fold(new), MAX_NODES), listed(new.values())
            self._say(f"not checked in full: {nodes} ({why}); tried again while samples come, and watching goes on")


class Outage:
    """The outage of one part of the watch."""

    def __init__(self, say: Callable[[str], object], failure: str, recovery: str) -> None:
        """`failure`: the message with a placeholder for the reason, `{why}`."""
        self._say, self._failure, self._recovery = say, failure, recovery
        self.is_failing = False

    def failed(self, why: object) -> None:
        """Record a failure."""
        if not self.is_failing:
            self._say(self._failure.replace(WHY, in_one_line(why)))
        self.is_failing = True

    def worked(self) -> None:
        """Record a success."""
        if self.is_failing:
            self._say(self._recovery)
        self.is_failing = False


SET = "the clock of this host was set by {} s; times that are recorded and sent follow it, nothing else does"


class HostClock:
    """This host's clock at the last look."""

    def __init__(self, least_s: float, say: Callable[[str], object]) -> None:
        """`least_s`: the smallest step to report."""
        self._least_s, self._say = least_s, say
        self._before = clocks_now()

    def check(self) -> None:
        """Report by how much the clock was set since the last check."""
        before, self._before = self._before, clocks_now()
        step = step_s(before, self._before)
        if abs(step) >= self._least_s:
            self._say(SET.format(f"{step:+.0f}"))


def clocks_now() -> Hello:
    """The current time: of the wall clock, and of one that also counts during suspend."""
    return Hello("", time.time(), time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))
