"""How far the clocks of nodes are apart, and times by one clock: as they were asked, or by the steps of their ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import nlargest
from statistics import median

from clusterproof.plugins.case.records import Collected, Event, Fact, Offset, Span
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.record import replace

FEWEST_STEPS = 3  # that nodes have in common, for their times to say anything
FEWEST_NODES = 3  # of which one that is wrong can be told
Times = Mapping[int, float]  # of steps


def by_asking(began: float, seconds: float, asked: float, answered: float) -> Offset:
    """Of a node that ran something between a question and its answer; nothing is said of what is within both."""
    least, most = began + seconds - answered, began - asked
    middle, half = (least + most) / 2, abs(most - least) / 2
    is_apart = abs(middle) > half
    return Offset(middle if is_apart else 0.0, half if is_apart else half + abs(middle), "as it was asked")


def by_steps(steps: Iterable[tuple[str, Times]]) -> dict[str, Offset]:
    """Of nodes whose ranks tell of the same steps: these end at once, as each waits for all others.

    Of two nodes nobody can tell which is right: then they are that far apart, and none is corrected.
    """
    of_node: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for node, times in steps:
        for step, time in times.items() if node else ():
            of_node[node][step].append(time)
    of_step: dict[int, list[float]] = defaultdict(list)
    for each in of_node.values():
        for step, own in each.items():
            of_step[step].append(median(own))
    found = {}
    for node, each in of_node.items():
        shared = [step for step in each if len(of_step[step]) > 1]
        off = sorted(median(each[step]) - median(of_step[step]) for step in shared)
        if len(shared) < FEWEST_STEPS:
            continue
        middle, apart_s = median(off), (off[-1] - off[0]) / 2
        is_sure = len(of_node) >= FEWEST_NODES and abs(middle) > max(apart_s, limits().clocks_apart_s)
        words = "by the steps of its ranks"
        found[node] = Offset(middle, apart_s, words) if is_sure else Offset(0.0, apart_s + abs(middle), words)
    return found


def apart_s(case: Collected) -> float:
    """How far apart two clocks may be, once they are corrected."""
    return max(limits().clocks_apart_s, sum(nlargest(2, (one.apart_s for one in case.clocks.values()))))


def of_event(event: Event, clocks: Mapping[str, Offset]) -> Event:
    """The event at its time by one clock."""
    off = clocks.get(event.node)
    return replace(event, when=corrected(event.when, off)) if off and off.seconds else event


def of_fact(fact: Fact, clocks: Mapping[str, Offset]) -> Fact:
    """The same of evidence."""
    off = clocks.get(fact.node)
    return replace(fact, when=corrected(fact.when, off)) if off and off.seconds and not fact.is_of_run else fact


def corrected(when: Span, off: Offset | None) -> Span:
    """A time of a clock that is so far off."""
    seconds = off.seconds if off else 0.0
    return Span(*(None if time is None else time - seconds for time in (when.begins, when.ends)))
