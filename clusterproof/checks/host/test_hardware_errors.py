"""Errors of main memory and CPUs, as reported by the kernel log and the memory controllers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import SIGNIFICANT, format_pair, listed
from clusterproof.plugins.core.verdict import concern_if, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import reading_of
from clusterproof.plugins.evidence.host.facts_hardware import MemoryController
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError
from clusterproof.plugins.evidence.kernel_log.wording import (
    fail_by_log,
    how_often,
    joined,
    logged_days,
    report,
    require_whole_log,
)
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight, mark.prolog, mark.epilog]


@mark.hyperpod_node_debugger("F")
@evidence(
    "journalctl -k -b | grep -iE 'EDAC|hardware (error|memory)|memory failure|soft.?offlin|SError|external abort"
    "|NMI: |NMI rec'; grep . /sys/devices/system/edac/mc/mc*/*_count; "
    "grep HardwareCorrupted /proc/meminfo"
)
def test_mce_edac(node: Node) -> None:
    """Memory and CPU errors.

    Reads the kernel log (machine checks, EDAC, firmware) and the memory controllers' counters, which most virtual
    machines lack. An uncorrected error has destroyed data. Corrected errors are harmless until there are many. These
    are concerns: errors of the previous boot that the firmware kept, errors outside memory that the firmware calls
    recoverable, and memory pages that the kernel has taken offline.

    Remedy (replace): For uncorrected errors, drain and replace the node. For many corrected errors, replace it when it
    is next idle.
    """
    with part:
        evaluate_log(node)
    lost_kib = reading_of(node, "main_memory.corrupted_kib")
    with part:
        concern_if(lost_kib, f"{lost_kib} kB of memory taken offline because of errors; expected none")
    with part:
        for controller in node.memory_controllers:
            evaluate_controller(node, controller)


def evaluate_log(node: Node) -> None:
    """The verdict on errors that the kernel logged."""
    logged = [event for event in node.kernel_events if isinstance(event, HardwareError)]
    recovered = [f"{event.words} ({how_often([event], node)})" for event in logged if event.is_recovered]
    lost = [event for event in logged if not (event.is_corrected or event.is_recovered)]
    now = [f"{event.words} ({how_often([event], node)})" for event in lost if not event.is_of_previous_boot]
    fail_by_log(node, now, f"{joined(now)}; expected no uncorrected error")
    earlier = [event.words for event in lost if event.is_of_previous_boot]
    concern_if(recovered, f"{joined(recovered)}; expected no recovered error")
    concern_if(earlier, f"the previous boot ended with {joined(earlier)}; expected none")
    report(node, "host.mce_edac", "no page of memory lost, and no unexplained interrupt")
    rate, locations = logged_per_day(logged, node)
    too_many(node, rate, f"in the log: {listed(locations)}" if locations else "in the log")
    require_whole_log(node)


def evaluate_controller(node: Node, controller: MemoryController) -> None:
    """The verdict on errors that a memory controller counted."""
    where = reading_of(controller, "label", "a memory controller")
    is_of_now = not reading_of(controller, "of_all_boots")
    with part:
        count = controller.uncorrected
        fail_if(count and is_of_now, f"{where} counts {count} uncorrected errors; expected none")
        concern_if(
            count and not is_of_now,
            f"{where}: {count} uncorrected errors, in this boot or an earlier one; expected none",
        )
    with part:
        rate, most = controller.corrected_per_day, node.threshold("kernel_log.corrected_per_day")
        if is_of_now:
            too_many(node, rate, where)
        else:
            seen = f"{where}: {controller.corrected} corrected errors, in this boot or an earlier one"
            concern_if(rate > most, f"{seen}; expected at most {most:g} a day")


def too_many(node: Node, rate: float, where: str) -> None:
    """Report if there are too many corrected errors a day."""
    limit = node.threshold("kernel_log.corrected_per_day")
    shown, most = format_pair(rate, limit, 3, SIGNIFICANT)
    concern_if(rate > limit, f"{shown} corrected errors a day ({where}); expected at most {most}")


def logged_per_day(events: Iterable[HardwareError], node: Node) -> tuple[float, list[str]]:
    """Corrected errors a day in the log, and the modules that had them, the one with the most first.

    Several sources may report the same error, so the one with the most counts.
    """
    counts: Counter[str] = Counter()
    locations: Counter[str] = Counter()
    for event in events:
        if event.is_corrected and not event.is_of_previous_boot:
            counts[event.source] += event.count * event.lines
            locations[event.location] += event.count * event.lines
    named = [location for location, count in locations.most_common() if location and count]
    return (max(counts.values()) / logged_days(node), named) if counts else (0.0, [])
