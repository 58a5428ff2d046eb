"""Errors of main memory and CPUs, as reported by the kernel log and the memory controllers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.rounded import SIGNIFICANT, apart
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError
from clusterproof.plugins.evidence.kernel_log.wording import how_often, in_list, require_whole_log
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.host, mark.preflight, mark.prolog, mark.epilog]

DAY_S = 86400
T = TypeVar("T")


@mark.hyperpod_node_debugger("F")
@evidence(
    "journalctl -k -b | grep -E 'EDAC|Hardware Error|Memory fail'; grep . /sys/devices/system/edac/mc/mc*/*_count"
)
def test_mce_edac(node: Node) -> None:
    """Memory and CPU errors.

    Reported by the kernel log (machine checks, EDAC, firmware) and by the counters of the memory controllers, where the
    machine shows any; most virtual ones do not. An uncorrected error has destroyed data. Corrected ones are harmless
    until there are many. Errors of the previous boot that the firmware kept are a concern.

    Remedy (replace): Uncorrected: drain and replace the node. Many corrected ones: replace it when it is next idle.
    """
    logged, unread = known(lambda: errors(node))
    controllers, no_counters = known(lambda: node.memory_controllers)
    fatal = [event for event in logged if not event.is_corrected and not event.is_of_previous_boot]
    seen = [f"{event.words} ({how_often([event], node)})" for event in fatal]
    rates = [0.0]
    unread += no_counters
    for controller in controllers:
        data, why = readings(controller, "label", "uncorrected", "corrected_per_day")
        unread += why
        rates.append(data.get("corrected_per_day", 0.0))
        if data.get("uncorrected"):
            seen.append(f"{data.get('label', 'a memory controller')} counts {data['uncorrected']} uncorrected errors")
    assert not seen, f"{in_list(seen)}; expected no uncorrected error"
    require(unread)
    require_whole_log(node)
    rate, limit = max(*rates, logged_per_day(logged, node)), node.threshold("kernel_log.corrected_per_day")
    if rate > limit:
        named = ", ".join(controller.label for controller in controllers if controller.corrected)
        shown, most = apart(rate, limit, 3, SIGNIFICANT)
        concern(f"{shown} corrected errors a day ({named or 'in the log'}); expected at most {most}")
    earlier = [event.words for event in logged if not event.is_corrected]
    if earlier:
        concern(f"the boot before ended with {in_list(earlier)}; expected none")


def errors(node: Node) -> tuple[HardwareError, ...]:
    """The hardware errors of the kernel log. Raises Incomplete."""
    return tuple(event for event in node.kernel_events if isinstance(event, HardwareError))


def known(read: Callable[[], tuple[T, ...]]) -> tuple[tuple[T, ...], list[Incomplete | NotApplicable]]:
    """The values of a fact, or why it could not be read: a fault in one fact outranks that another is unknown."""
    try:
        return read(), []
    except (Incomplete, NotApplicable) as why:
        return (), [why]


def logged_per_day(events: Iterable[HardwareError], node: Node) -> float:
    """Corrected errors a day by the log; several sources may report the same error, so the one with the most counts."""
    counts: Counter[str] = Counter()
    for event in events:
        if event.is_corrected and not event.is_of_previous_boot:
            counts[event.source] += event.count * event.lines
    if not counts:
        return 0.0
    logged_s = node.boot.uptime_s - max(node.window_begins, 0.0)
    return max(counts.values()) / max(logged_s / DAY_S, 1.0)
