"""Visits before they are due: to nodes that have rebooted, or that the last visit did not reach."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.watch import visits as visiting
from clusterproof.plugins.watch import watch as watching
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.own_health import UncheckedNodes
from clusterproof.plugins.watch.sampler_session import SamplerOptions, SessionEvent
from clusterproof.plugins.watch.updates import Hello, Tick
from clusterproof.plugins.watch.visits import Visited
from clusterproof.plugins.watch.watch import AGAIN_S, Watch
from tests.testbed.healthy import BOOT_ID
from tests.watch.days import EVERY_S, NODE, Day, evidence

NAMES = ("gpu001", "gpu002", "gpu003")
AGAIN = "tried again while samples come, and watching goes on"


@pytest.fixture
def day() -> Day:
    made = Day()
    made.ticks(3)
    return made


def in_vain(day: Day) -> None:
    """Ask for all evidence without reaching the node."""
    day.watch.visiting([NODE], day.now)
    day.said += day.watch.evidence({NODE: NodeEvidence(NODE, unreached=Unreached.REFUSED)}, day.now)


@pytest.mark.long
def test_an_answer_from_before_a_boot_is_no_visit_of_it(day: Day) -> None:
    answer = evidence(boot={"boot_id": day.boot_id})
    day.watch.visiting([NODE], day.now)
    day.hello("boot-2")
    day.said += day.watch.evidence({NODE: answer}, day.now)
    assert day.watch.due_visits(day.now + AGAIN_S) == [NODE]
    day.said += day.watch.evidence({NODE: evidence(boot={"boot_id": "boot-2"})}, day.now)
    assert day.watch.due_visits(day.now + 2 * AGAIN_S) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "boot", [{"boot_id": BOOT_ID}, {"boot_id": {"error": "ENOENT"}}], ids=["of an earlier boot", "of none"]
)
def test_an_answer_during_which_a_node_booted_twice_is_no_visit_of_it(boot: dict[str, object], day: Day) -> None:
    day.watch.visiting([NODE], day.now)
    day.hello("boot-2")
    day.hello("boot-3")
    day.said += day.watch.evidence({NODE: evidence(boot=boot)}, day.now)
    assert day.watch.due_visits(day.now) == [NODE]
    day.watch.visiting([NODE], day.now)
    day.hello("boot-3")
    day.said += day.watch.evidence({NODE: evidence(boot=boot)}, day.now)
    assert day.watch.due_visits(day.now + AGAIN_S) == []


@pytest.mark.long
def test_a_boot_between_the_first_visit_and_the_first_connection_is_said_and_visited(day: Day) -> None:
    day.watch = Watch(day.watch.evaluator, EVERY_S, [NODE], day.now)
    day.visit()
    day.hello("boot-2")
    assert day.of("watch.reboot") == ["happened"]
    assert day.watch.booted() == [NODE]


@pytest.mark.long
def test_a_sampler_that_does_not_know_its_boot_says_none(day: Day) -> None:
    day.hello("")
    day.hello()
    assert day.of("watch.reboot") == []


@pytest.mark.long
def test_a_boot_is_visited_until_a_visit_has_reached_the_node(day: Day) -> None:
    assert day.watch.due_visits(day.now) == []
    day.hello("boot-2")
    assert day.watch.due_visits(day.now) == day.watch.booted() == [NODE]
    began = day.now
    in_vain(day)
    day.tick()
    assert day.watch.booted() == []
    assert day.watch.due_visits(began + AGAIN_S - 1) == []
    assert day.watch.due_visits(began + AGAIN_S) == [NODE]
    day.hello("boot-3")
    assert day.watch.due_visits(day.now) == day.watch.booted() == [NODE]
    day.visit()
    assert day.watch.due_visits(day.now + AGAIN_S) == day.watch.booted() == []


@pytest.mark.long
def test_a_node_that_the_last_visit_did_not_reach_is_visited_when_its_silence_ends(day: Day) -> None:
    in_vain(day)
    day.silence(3 * EVERY_S)
    assert day.of("watch.silent") == ["opened"]
    assert day.watch.due_visits(day.now + AGAIN_S) == []
    day.hello()
    assert day.watch.due_visits(day.now) == [NODE]
    in_vain(day)
    day.tick()
    assert day.watch.due_visits(day.now + 2 * AGAIN_S) == [NODE]
    day.visit()
    assert day.watch.due_visits(day.now + 2 * AGAIN_S) == []


@pytest.mark.long
def test_a_connection_that_breaks_off_and_is_made_again_shortens_no_pause(day: Day) -> None:
    began = day.now
    in_vain(day)
    day.hello()
    assert day.watch.due_visits(began + AGAIN_S - 1) == []
    assert day.watch.due_visits(began + AGAIN_S) == [NODE]


@pytest.mark.long
def test_each_further_visit_in_vain_is_followed_by_a_longer_pause(day: Day) -> None:
    pauses = [pause_after_a_visit_in_vain(day) for _ in range(8)]
    assert [pause / AGAIN_S for pause in pauses] == [1, 2, 4, 8, 16, 32, 32, 32]
    day.visit()
    assert pause_after_a_visit_in_vain(day) == AGAIN_S


def pause_after_a_visit_in_vain(day: Day) -> float:
    """Seconds until a node that sends is visited again."""
    began = day.now
    in_vain(day)
    while not day.watch.due_visits(day.now):
        day.tick()
    return day.now - began


@pytest.mark.long
def test_a_visit_that_could_not_be_made_at_all_is_made_again(day: Day) -> None:
    began = day.now
    day.watch.visiting([NODE], began)  # without any evidence
    day.tick()
    assert day.watch.due_visits(began + AGAIN_S - 1) == []
    assert day.watch.due_visits(began + AGAIN_S) == [NODE]


def visits(
    monkeypatch: pytest.MonkeyPatch, say: Callable[[str], object], *outcomes: Exception | None
) -> list[list[str]]:
    """The nodes of each visit, one visit per outcome, throttled without one. The nodes send meanwhile."""
    made: list[list[str]] = []

    def throttled(cluster: Cluster, *_: object) -> dict[str, NodeEvidence]:
        made.append([target.name for target in cluster.targets])
        for name in NAMES:
            controller._events.put(SessionEvent(name, Tick(1.7e9, 5.0, (), ()), time.monotonic()))
        if len(made) == len(outcomes):
            controller.stop()
        if outcome := outcomes[len(made) - 1]:
            raise outcome
        return {name: NodeEvidence(name, unreached=Unreached.THROTTLED) for name in made[-1]}

    controller = controller_of_three(monkeypatch, throttled, say)
    controller._loop()
    return made


def controller_of_three(
    monkeypatch: pytest.MonkeyPatch, visit: Callable[..., dict[str, NodeEvidence]], say: Callable[[str], object]
) -> Controller:
    """A controller of nodes that send and that no visit has reached; each visit runs this."""
    monkeypatch.setattr(visiting, "gather", visit)
    monkeypatch.setattr(watching, "AGAIN_S", 0.01)
    cluster = Cluster("three", "ssh", tuple(map(Target, NAMES)))
    watch = Watch(Evaluator(cluster, NO_POLICY), EVERY_S, NAMES, time.monotonic())
    settings = WatchSettings(SamplerOptions(0.01), Limits(), ProbeOptions())
    for name in NAMES:
        watch.update(name, Hello("boot-1", 1.7e9, 5.0), time.monotonic())
    return Controller(cluster, watch, settings, None, lambda _: None, say=say)


@pytest.mark.long
def test_a_boot_waits_for_no_visit_in_progress_and_other_nodes_that_are_due_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered, made = Event(), list[list[str]]()

    def visit(cluster: Cluster, *_: object) -> dict[str, NodeEvidence]:
        made.append([target.name for target in cluster.targets])
        if len(made) == 1:  # a node that hangs
            tell(Hello("boot-2", 1.7e9, 5.0), "gpu002")
            answered.wait(10)
        else:
            controller.stop()
            answered.set()
        return {}

    def tell(update: Hello | Tick, *names: str) -> None:
        for name in names:
            controller._events.put(SessionEvent(name, update, time.monotonic()))

    controller = controller_of_three(monkeypatch, visit, print)
    for name in ("gpu001", "gpu003"):  # they send, and are due again at once
        controller.watch.visiting([name], time.monotonic())
    controller.watch.evidence({"gpu002": replace(evidence(), node="gpu002")}, time.monotonic())
    controller._visit(["gpu001"])
    tell(Tick(1.7e9, 5.0, (), ()), "gpu003")
    controller._loop()
    assert made == [["gpu001"], ["gpu002"]]


@pytest.mark.long
def test_nodes_that_are_due_are_visited_together_and_one_visit_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visits(monkeypatch, print, None, None, None) == [list(NAMES)] * 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (Unusable("429: too many\x1b requests"), "429: too many\\x1b requests"),
        (RuntimeError("srun: error\n12:00:00 FAIL gpu001: forged\n"), "srun: error 12:00:00 FAIL gpu001: forged"),
        (TimeoutError(), "TimeoutError"),
    ],
    ids=["of a control character", "of several lines", "without words"],
)
def test_a_visit_that_could_not_be_made_at_all_is_said_once_in_one_line(
    monkeypatch: pytest.MonkeyPatch, refused: Exception, why: str
) -> None:
    messages: list[str] = []
    assert visits(monkeypatch, messages.append, refused, refused, None, None) == [list(NAMES)] * 4
    assert messages == [f"not checked in full: gpu[001-003] ({why}); {AGAIN}"]


@pytest.mark.long
def test_nodes_that_a_full_check_does_not_reach_are_said_once_and_when_one_does() -> None:
    messages: list[str] = []
    unchecked = UncheckedNodes(messages.append)
    unchecked.checked(["gpu001"], {"gpu002": "unreachable: throttled", "gpu003": "unreachable: throttled"})
    unchecked.checked([], {"gpu002": "unreachable: refused"})
    unchecked.checked(["gpu001", "gpu003"], {"gpu004": "unreachable: refused", "gpu005": "unreachable: timeout"})
    assert messages == [
        f"not checked in full: gpu[002-003] (unreachable: throttled); {AGAIN}",
        "checked in full again: gpu003",
        f"not checked in full: gpu[004-005] (unreachable: refused, unreachable: timeout); {AGAIN}",
    ]


@pytest.mark.long
def test_whom_the_first_full_check_did_not_reach_is_not_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    controller = controller_of_three(monkeypatch, lambda *_: {}, messages.append)
    refused = {name: NodeEvidence(name, unreached=Unreached.REFUSED) for name in NAMES}
    controller._take_first(Visited(refused))
    assert messages == ["all asked once: 3 nodes, 0 with a fail, 3 not reached (gpu[001-003])"]
