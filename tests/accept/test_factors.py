"""Racks and batches that are slower or faster as a whole: the verdicts on them, and on their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.accept.factors import drift_of, shifts_of
from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.populations import Populations
from clusterproof.plugins.accept.redaction import redacted
from clusterproof.plugins.accept.report import Report, report, text
from clusterproof.plugins.accept.sequential import Decision, Population, decision_of
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.simulated import ERRORS, SPEED, Nodes, Speed, acceptance, cluster_of, plan

RACK = 16
NODES = [f"n{number:02}" for number in range(4 * RACK)]
LEVELS = {node: (f"group r{number // RACK}",) for number, node in enumerate(NODES)}
NOISE = 0.02


def slow(**by: float) -> dict[str, float]:
    """Each node's speed, with these racks slower by this much."""
    return {node: 1 - by.get(LEVELS[node][0].split()[1], 0.0) for node in NODES}


def measured(speed: Mapping[str, float], seed: int, floor: float | None = None, runs: int = 12) -> Population:
    """Nodes with two GPUs in this many runs."""
    random, made = Random(seed), Population(ERRORS, 4, floor, LEVELS)
    for run in range(runs):
        made.add(run, {(n, str(gpu)): log(700 * speed[n]) + random.gauss(0, NOISE) for n in NODES for gpu in range(2)})
        made.learn()
    return made


def decisions(made: Population) -> dict[str, Decision]:
    return {node: decision_of(judged.decision for judged in made.judged_units(node)) for node in NODES}


@pytest.mark.parametrize("by", [0.03, 0.04, 0.045])
def test_good_nodes_of_a_slow_rack_are_neither_rejected_nor_left_open_for_it(by: float) -> None:
    made = measured(slow(r1=by), 0)
    assert Counter(decisions(made).values())[Decision.BAD] == 0
    assert Counter(decisions(made).values())[Decision.GOOD] >= 60
    assert [shift.levels for shift in made.shifts] == [("group r1",)]
    assert made.shifts[0].by == pytest.approx(log(1 - by), abs=0.01)


@pytest.mark.parametrize("halves", [{"r0": 0.04, "r1": 0.04}, {"r0": 0.08, "r1": 0.08}, {"r0": -0.05}])
def test_weak_nodes_of_the_faster_racks_are_found(halves: Mapping[str, float]) -> None:
    weak = {"n40": 0.93, "n01": 0.9}
    speed = slow(**halves)
    by_node = decisions(measured(speed | {node: speed[node] * share for node, share in weak.items()}, 1))
    assert {by_node[node] for node in weak} == {Decision.BAD}
    others = Counter(by_node[node] for node in NODES[2 * RACK :] if node not in weak)
    assert others[Decision.BAD] == 0
    assert others[Decision.GOOD] >= 2 * RACK - 3


def test_a_rack_that_is_bad_as_a_whole_is_not_as_good_as_usual_there() -> None:
    by_node = decisions(measured(slow(r2=0.09), 2))
    assert {node for node, of in by_node.items() if of is Decision.BAD} == {*NODES[2 * RACK : 3 * RACK]}


def test_no_node_is_good_that_is_slower_than_is_bad_even_if_part_of_it_is_its_rack() -> None:
    speed = slow(r1=0.04)
    by_node = decisions(measured(speed | {"n20": speed["n20"] * 0.97}, 3))
    assert by_node["n20"] is Decision.OPEN


def test_the_usual_of_a_slow_rack_is_not_below_the_floor() -> None:
    made = measured(slow(r1=0.04), 4, floor=log(700))
    assert all(judged.share == pytest.approx(judged.of_all, abs=0.005) for judged in made.judged_units("n20"))
    assert [shift.levels for shift in made.shifts] == [("group r1",)]


def test_a_batch_that_is_two_racks_is_said_once_and_levels_of_the_same_nodes_together() -> None:
    levels = {
        node: (*of, "VBIOS new" if number < RACK else "VBIOS old") for number, (node, of) in enumerate(LEVELS.items())
    }
    random = Random(6)
    middles = {node: random.gauss(0, 0.01) + 0.04 * (number >= RACK) for number, node in enumerate(NODES)}
    assert [shift.levels for shift in shifts_of(middles, levels, 0.001, 0.01)] == [("group r0", "VBIOS new")]


def test_two_slow_racks_are_both_said() -> None:
    random = Random(7)
    middles = {node: random.gauss(0, 0.01) - 0.04 * (LEVELS[node][0][-1] in "12") for node in NODES}
    shifts = {shift.levels[0]: shift.by for shift in shifts_of(middles, LEVELS, 0.001, 0.01)}
    assert shifts == {"group r1": pytest.approx(-0.04, abs=0.005), "group r2": pytest.approx(-0.04, abs=0.005)}


@pytest.mark.parametrize("noise", ["normal", "few values", "heavy tails"])
def test_chance_shows_a_rack_no_oftener_than_declared(noise: str) -> None:
    random, rate = Random(noise), 0.05
    draw: Mapping[str, Callable[[], float]] = {
        "normal": lambda: random.gauss(0, 0.03),
        "few values": lambda: float(random.randrange(3)),
        "heavy tails": lambda: random.gauss(0, 0.03) / random.random(),
    }
    shown = sum(bool(shifts_of({node: draw[noise]() for node in NODES}, LEVELS, rate, 0.0)) for _ in range(400))
    assert shown <= rate * 400


def test_what_all_nodes_lost_from_the_first_runs_to_the_last_is_said() -> None:
    assert drift_of([0.0, -0.03, -0.06], 0.003, 0.001, 0.01) == pytest.approx(-0.06)
    assert drift_of([0.0, -0.03, -0.06], 0.03, 0.001, 0.01) is None
    assert drift_of([0.0, -0.03, -0.006], 0.0001, 0.001, 0.01) is None
    assert drift_of([0.0], 0.0001, 0.001, 0.01) is None
    assert drift_of([0.0, -0.01], 0.0001, 0.001, 0.01) is None, "0.995 % slower"


GROUPED = tuple(f"m{number:02}" for number in range(24))
GROUPS = {node: f"r{number // 8}" for number, node in enumerate(GROUPED)}


def reported(folder: Path, nodes: Nodes, more: str = "", again: Sequence[str] = ()) -> Report:
    """An acceptance of three racks of eight nodes."""
    made = acceptance(folder, nodes, SPEED + more, cluster_of(GROUPED, GROUPS))
    made.go_on(again, lambda _words: None)
    return report(made.state, made.ended, made.named, "")


def noisy(**by: float) -> Speed:
    """Each one's noisy speed, slower by this much in these racks."""
    random = Random(8)
    return lambda node, _run: (1 - by.get(GROUPS.get(node, ""), 0.0)) * (1 + random.gauss(0, 0.004))


def test_a_rack_that_may_be_slow_by_design_is_no_failure(tmp_path: Path) -> None:
    of_all = Populations(plan(tmp_path, SPEED))
    of_all.by_key["H100", "gpu_gemm", ""] = made = measured(slow(r2=0.09), 2)
    (finding,) = of_all.in_common()
    assert finding.verdict is Verdict.FAIL
    assert made.shifts[0].chance < 0.00005
    assert "by chance in 0.01% of clusters at most" in finding.message
    made.in_doubt = {unit for unit in made.judged if LEVELS[unit[0]] == ("group r2",)}
    assert [finding.verdict for finding in of_all.in_common()] == [Verdict.CONCERN]


def test_a_slow_rack_is_a_finding_of_its_own_in_every_form_of_the_report(tmp_path: Path) -> None:
    made = reported(tmp_path, Nodes(noisy(r1=0.04)))
    assert (made["outcome"], made["summary"]) == ("accepted", {"accepted": 24})
    (of,) = made["of_others"]
    assert (of["of"], of["check"], of["verdict"]) == ("group r1", "gpu.gpu_gemm", "concern")
    assert "its 8 nodes are 4." in of["message"]
    assert "than the other 16" in of["message"]
    assert made["populations"][0]["in_common"][0]["levels"] == ["group r1"]
    assert "group r1: 8 nodes at 95." in page(made)
    assert "concern     group r1: gpu.gpu_gemm: " in text(made)
    hidden = redacted(made, cluster_of(GROUPED, GROUPS))
    assert hidden["populations"][0]["in_common"][0]["levels"] == ["group"]
    assert "r1" not in str([hidden["of_others"], hidden["populations"]])


def test_the_rack_that_a_node_is_held_to_is_not_named_once_redacted(tmp_path: Path) -> None:
    speed = noisy(r1=0.03)
    made = reported(tmp_path, Nodes(lambda node, run: speed(node, run) * {"m08": 0.9, "m09": 0.978}.get(node, 1.0)))
    assert str(made["nodes"]).count("usual in group r1,") == 2
    hidden = str(redacted(made, cluster_of(GROUPED, GROUPS))["nodes"])
    assert "r1" not in hidden
    assert hidden.count("usual in group,") == 2
    assert "% of what is usual elsewhere, in 12 runs" in hidden


@pytest.mark.long
def test_a_rack_that_is_bad_as_a_whole_fails_and_so_do_its_nodes(tmp_path: Path) -> None:
    made = reported(tmp_path, Nodes(noisy(r1=0.08)))
    assert made["outcome"] == "not accepted"
    assert [(of["of"], of["verdict"]) for of in made["of_others"]] == [("group r1", "fail")]
    assert made["summary"] == {"accepted": 16, "rejected": 8}


@pytest.mark.parametrize("by", [0.03, 0.08])
@pytest.mark.parametrize("now", [0.0, 0.04])
def test_after_a_rack_was_repaired_it_is_said_how_slow_it_is_now(by: float, now: float, tmp_path: Path) -> None:
    nodes = Nodes(noisy(r1=by))
    assert [of["of"] for of in reported(tmp_path, nodes)["of_others"]] == ["group r1"]
    nodes.speed = noisy(r1=now)
    made = reported(tmp_path, nodes, again=[node for node in GROUPED if GROUPS[node] == "r1"])
    assert (made["outcome"], made["summary"]) == ("accepted", {"accepted": 24})
    rows = [(of["of"], of["verdict"], of["message"].count(" 4.")) for of in made["of_others"]]
    assert rows == ([("group r1", "concern", 1)] if now else [])


@pytest.mark.long
def test_a_batch_is_known_by_the_firmware_that_its_nodes_report(tmp_path: Path) -> None:
    speed, old = noisy(), GROUPED[::3]

    @dataclass
    class Batches(Nodes):
        def _evidence(self, stage: str, node: str) -> NodeEvidence:
            made = super()._evidence(stage, node)
            of = {**made.collectors["platform"].value, "bios": "1.0\x1b" if node in old else "2.0"}
            return NodeEvidence(node, collectors={**made.collectors, "platform": Collected(Status.READ, of)})

    made = reported(tmp_path, Batches(lambda node, run: speed(node, run) * (0.97 if node in old else 1.0)))
    assert [of["of"] for of in made["of_others"]] == ["BIOS 1.0\\x1b"]


@pytest.mark.long
def test_what_is_usual_of_runs_is_not_taken_for_racks_where_not_all_nodes_run_at_once(tmp_path: Path) -> None:
    speed, state, random = noisy(), [0.0], Random(9)
    seen: dict[str, int] = {}

    def drifting(node: str, run: int) -> float:
        if len(seen) % 8 == 0:
            state[0] = random.gauss(0, 0.05)
        seen[f"{node} {run}"] = run
        return speed(node, run) * exp(state[0])

    made = reported(tmp_path, Nodes(drifting), "[limits]\nnodes_at_once = 8\n")
    assert [of["of"] for of in made["of_others"] if of["of"] != "all nodes"] == []
    assert made["summary"] == {"accepted": 24}


@pytest.mark.long
def test_all_nodes_that_become_slower_are_a_concern_of_the_cluster(tmp_path: Path) -> None:
    speed = noisy()
    made = reported(tmp_path, Nodes(lambda node, run: speed(node, run) * (1 - 0.03 * run)))
    (of,) = made["of_others"]
    assert (of["of"], of["verdict"], made["summary"]) == ("all nodes", "concern", {"accepted": 24})
    assert "all nodes were 6.1% slower in the last runs than in the first" in of["message"]
    assert "all nodes: 93.9% in the last runs" in page(made)
