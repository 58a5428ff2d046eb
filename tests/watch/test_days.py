"""A healthy day reports nothing; a fault is reported once, and its end once."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch.own_health import CLOCK, REBOOT
from tests.watch.days import BRAKE, EVERY_S, FAULTS, LOST, NODE, Day, Fault, evidence, healthy, lasting, slowed

pytestmark = [pytest.mark.long, pytest.mark.any_user]


@pytest.fixture
def day() -> Day:
    made = Day()
    assert made.said == [], "the demo's healthy node is to have no finding"
    return made


def test_a_healthy_day_with_noise_pauses_and_a_chattering_power_cap_says_nothing(day: Day) -> None:
    ticks = sum(1 for _ in healthy(day, int(86_400 // EVERY_S)))
    assert ticks == 8_640
    assert day.said == []
    assert day.watch.samples == 8_640


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_said_once_and_once_that_it_is_over(day: Day, fault: Fault) -> None:
    day.ticks(10)
    fault.begin(day)
    change = next(change for change in day.said if change.key.rule == fault.rule)
    assert (change.key.node, change.verdict.value) == (NODE, fault.verdict)
    assert fault.words in change.message
    if fault.rule not in ("watch.silent", "watch.source", "gpu.no_throttle"):
        day.ticks(20)
    assert day.of(fault.rule) in (["opened"], ["opened", "worse"])
    fault.end(day)
    assert day.of(fault.rule)[-1] == "closed"
    assert {change.key.rule for change in day.said} - {REBOOT} <= {fault.rule, *ALSO.get(fault.rule, ())}


# Other reports of the same fault: the suite evaluates all of its checks.
ALSO = {
    "gpu.no_uncorrected_ecc": ("gpu.recovery_action",),
    "gpu.gpu_answers": ("gpu.gpu_count", "gpu.gpu_identity", "gpu.gpu_uniform"),
    "gpu.nvlink_active": ("gpu.fabric_state",),
}


def test_each_gpu_and_code_is_an_event_of_its_own(day: Day) -> None:
    for bus in ("53", "64"):
        for code in (48, 79):
            day.log(f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=4242, name=python3, an error", 3)
    assert day.of("gpu.no_xid") == ["opened"] * 4
    assert len({change.key.device for change in day.said}) == 4


def test_errors_of_programs_are_no_event(day: Day) -> None:
    day.log("NVRM: Xid (PCI:0000:53:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS")
    assert all(change.verdict.value != "fail" for change in day.said)


def test_what_a_user_writes_in_the_kernels_words_is_no_event(day: Day) -> None:
    day.log("python3[4242]: segfault at 0 ip 0 sp 0 error 4: NVRM: Xid (PCI:0000:53:00): 79, gone")
    assert day.of("gpu.no_xid") == []


def test_a_clock_that_is_set_is_said_once(day: Day) -> None:
    day.ticks(5)
    day.stepped_s = -3600.0
    day.ticks(50)
    assert day.of(CLOCK) == ["happened"]
    assert "the clock was set by -3600 s" in day.said[-1].message


def test_a_reboot_is_said_and_a_connection_that_only_broke_is_not(day: Day) -> None:
    day.ticks(5)
    day.hello()
    assert day.said == []
    day.hello("boot-2")
    assert day.of(REBOOT) == ["happened"]


def test_more_lines_of_one_xid_than_are_kept_are_one_event_and_take_no_more_room(day: Day) -> None:
    for _ in range(24):
        day.log("NVRM: Xid (PCI:0000:53:00): 95, pid='<unknown>', name=<unknown>, Uncontained: FBHUB", 100)
    assert day.of("gpu.no_xid") == ["opened"]
    log = day.watch.evaluator._nodes[NODE].evidence.collectors["kernel_log"].value
    assert len(log["lines"]) <= 2_000


def test_a_day_takes_as_much_memory_as_an_hour(day: Day) -> None:
    def kept_after(ticks: int) -> int:
        for _ in healthy(day, ticks):
            pass
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = kept_after(360)
        assert kept_after(2_880) < first + 256 * 1024
    finally:
        tracemalloc.stop()


def test_evidence_without_gpus_is_evaluated_and_watched_too() -> None:
    made = Day()
    made.said += made.watch.evidence({NODE: evidence()}, 1.0)
    assert made.said == []


INDICES: tuple[object, ...] = ([], {}, None, "0", True)
LINES: tuple[object, ...] = (1, {}, [1] * 3_000, [[]] * 3_000, [[1.0, 2]] * 3_000)
GPU_BY_INDEX = [{"nvml": {"gpus": [{"index": index, "uuid": "GPU-1"}]}} for index in INDICES]
LOG_OF_LINES = [{"kernel_log": {"lines": lines}} for lines in LINES]


@pytest.mark.parametrize("reported", [*GPU_BY_INDEX, *LOG_OF_LINES])
def test_nothing_that_a_node_reports_ends_the_watch_of_others(reported: dict[str, dict[str, object]]) -> None:
    day = Day()
    day.visit(**reported)
    day.tick({0: {"lost": LOST}, 1: {"lost": LOST}})
    day.log("NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', GPU has fallen off the bus.")
    assert day.watch.samples == 1


def test_a_slowdown_is_not_over_while_nothing_is_known_of_it(day: Day) -> None:
    """Its sampler starts again, and the driver does not answer it; then it does, and the slowdown is over."""
    lasting(clocks_event_reasons=BRAKE)(day)
    assert day.of("gpu.no_throttle") == ["opened"]
    day.hello()
    for number in range(10):
        day.tick(late=10.0 * (number + 1))
    assert day.of("gpu.no_throttle") == ["opened"]
    day.ticks(7)
    assert day.of("gpu.no_throttle") == ["opened", "closed"]


def test_a_slowdown_of_a_watch_before_is_not_over_where_no_visit_reached_the_node() -> None:
    opened = Change(ChangeKind.OPENED, Key(NODE, "GPU 3", "gpu.no_throttle"), Verdict.FAIL, "braked", -60.0)
    resumed = Day(before=(opened,))
    for _ in range(10):
        resumed.tick({3: {"clocks_event_reasons": BRAKE, "slowdown": slowed(resumed.now, 1.0)}})
    assert resumed.of("gpu.no_throttle") == []
