"""The stage `speed`, in batches and on unlike machines: which node is slow, and which nodes that does not affect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterproof.plugins.accept import Failure
from clusterproof.plugins.accept.state import AcceptanceState
from clusterproof.plugins.accept.verdicts import NodeVerdict, of_nodes
from clusterproof.plugins.catalog.acceptance import Stage
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from tests.accept.judged import Judged, gpus
from tests.accept.simulated import NAMES, SPEED, Nodes, acceptance, outcomes_of, verdicts
from tests.checks.perf.given import DISPLAY


@pytest.mark.parametrize("slow", ["n2", "n5", "n8"])
def test_a_slow_node_is_rejected_in_whichever_batch_it_was_measured(slow: str, tmp_path: Path) -> None:
    nodes = Nodes(speed=lambda node, _run: 0.8 if node == slow else 1.0)
    outcomes = outcomes_of(tmp_path, nodes, "[limits]\nnodes_at_once = 3\n")
    assert verdicts(outcomes) == {slow: NodeVerdict.REJECTED}
    folder = outcomes[slow].reasons[0].rpartition("(")[2].rstrip(")")
    evidence = tmp_path / "into" / folder / "recording" / "nodes" / f"{slow}.json"
    assert evidence.exists(), "the folder has what was measured on it"


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (0.9, "10.0% slower than is usual or due, in 3 runs; expected less than 5.0%"),
        (0.9496, "5.04% slower than is usual or due, in 3 runs; expected less than 5%"),
        (0.96, "4.0% slower than is usual or due, in 4 runs: more like a bad one, 5.0% slower, than like a good one;"),
    ],
)
def test_why_a_node_is_rejected_agrees_with_what_is_expected(share: float, message: str, tmp_path: Path) -> None:
    outcomes = outcomes_of(tmp_path, Nodes(speed=lambda node, _run: share if node == "n3" else 1.0))
    assert verdicts(outcomes) == {"n3": NodeVerdict.REJECTED}
    assert message in outcomes["n3"].reasons[0]


def test_before_all_nodes_have_had_their_runs_too_few_nodes_are_no_reason(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(stop_after=6), f"{SPEED}[limits]\nnodes_at_once = 4\n")
    with pytest.raises(KeyboardInterrupt):
        made.go_on((), lambda _words: None)
    reasons = {outcome.node: outcome.reasons for outcome in of_nodes(made.state)}
    so_far = "GPU compute speed, bfloat16 products of 8192 × 8192: too few runs so far to say what is usual"
    assert [so_far] in map(list, reasons.values()), "of a node that has had its own runs"


@dataclass
class OtherProducts(Nodes):
    """Nodes some of whose runs multiply another type than all others: the numbers of these runs, by node."""

    other: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        gemm = made.collectors.get("gpu_gemm")
        if gemm is None or self.measured[node] not in self.other.get(node, ()):
            return made
        value = {**gemm.value, "output": str(gemm.value["output"]).replace("bfloat16", "float16")}
        return NodeEvidence(node, collectors={**made.collectors, "gpu_gemm": Collected(Status.READ, value)})


ALWAYS = tuple(range(1, 20))


def test_a_node_that_was_measured_otherwise_leaves_nobody_else_open(tmp_path: Path) -> None:
    nodes = OtherProducts(other={"n3": ALWAYS})
    outcomes = outcomes_of(tmp_path, nodes)
    assert verdicts(outcomes) == {"n3": NodeVerdict.OPEN}
    assert any("bfloat16" in reason and "not measured on it" in reason for reason in outcomes["n3"].reasons)
    assert set(nodes.measured.values()) == {3}, "nobody is loaded again for it"


def test_what_was_measured_otherwise_once_is_nothing_to_wait_for(tmp_path: Path) -> None:
    assert verdicts(outcomes_of(tmp_path, OtherProducts(other={"n3": (2,)}))) == {}


def test_two_halves_that_were_measured_otherwise_are_compared_each_by_itself(tmp_path: Path) -> None:
    nodes = OtherProducts(
        other=dict.fromkeys(NAMES[:4], ALWAYS), speed=lambda node, _run: 0.8 if node in ("n2", "n7") else 1.0
    )
    assert verdicts(outcomes_of(tmp_path, nodes)) == dict.fromkeys(("n2", "n7"), NodeVerdict.REJECTED)


def test_what_half_of_the_nodes_were_not_measured_by_at_all_they_still_need(tmp_path: Path) -> None:
    nodes = Nodes(speed=lambda node, _run: 0.0 if node in NAMES[:3] else 1.0)
    assert verdicts(outcomes_of(tmp_path, nodes)) == dict.fromkeys(NAMES[:3], NodeVerdict.OPEN)


@pytest.mark.long
def test_a_gpu_that_does_nothing_is_rejected(tmp_path: Path) -> None:
    nodes = Judged(gpus=gpus(NAMES), gpu_speed=lambda _node, uuid: 0.0 if uuid == "n3-5" else 1.0)
    outcomes = outcomes_of(tmp_path, nodes)
    assert verdicts(outcomes) == {"n3": NodeVerdict.REJECTED}
    assert "GPU 5, bfloat16 products of 8192 × 8192: 0 TFLOP/s, 100 % below" in outcomes["n3"].reasons[0]


@pytest.mark.parametrize("floor", ["", "[floors]\ngpu_gemm = 450\n"])
@pytest.mark.parametrize("count", [1, 2])
def test_of_too_few_nodes_for_a_population_one_with_a_slow_gpu_is_rejected_as_the_check_says(
    count: int, floor: str, tmp_path: Path
) -> None:
    names = NAMES[:count]
    nodes = Judged(gpus=gpus(names), gpu_speed=lambda _node, uuid: 0.7 if uuid == "n1-5" else 1.0)
    outcomes = outcomes_of(tmp_path, nodes, floor, names)
    assert outcomes["n1"].said is NodeVerdict.REJECTED
    assert "GPU 5, bfloat16 products of 8192 × 8192: 490 TFLOP/s, 30 % below the best GPU" in outcomes["n1"].reasons[0]
    assert {outcomes[node].said for node in names[1:]} <= {NodeVerdict.ACCEPTED if floor else NodeVerdict.OPEN}


@pytest.mark.parametrize("count", [1, 2])
def test_of_few_nodes_with_one_gpu_a_floor_decides(count: int, tmp_path: Path) -> None:
    names = NAMES[:count]
    assert verdicts(outcomes_of(tmp_path, Judged(gpus=gpus(names, 1)), "[floors]\ngpu_gemm = 600\n", names)) == {}


MIXED = {  # PCI device ids of a node's GPUs, and each one's speed relative to the first
    "a workstation with a GPU for its display": {"20b0": 1.0, DISPLAY: 0.02},
    "two models": {"20b0": 1.0, "1eb8": 0.2},
}


@pytest.mark.long
@pytest.mark.parametrize("slow", ["", "n2-0", "n2-5"])
@pytest.mark.parametrize("speeds", MIXED.values(), ids=MIXED)
def test_gpus_of_one_node_are_each_compared_with_those_of_their_model(
    speeds: dict[str, float], slow: str, tmp_path: Path
) -> None:
    first, second = speeds
    models = [first] * 4 + [second] * 2
    own = {f"{node}-{gpu}": speeds[model] for node in NAMES for gpu, model in enumerate(models)}
    nodes = Judged(
        gpus=gpus(NAMES, len(models)),
        models=dict.fromkeys(NAMES, models),
        gpu_speed=lambda _node, uuid: own[uuid] * (0.8 if uuid == slow else 1.0),
    )
    assert verdicts(outcomes_of(tmp_path, nodes)) == ({"n2": NodeVerdict.REJECTED} if slow else {})


@dataclass
class SomeWithPyTorch(Judged):
    """Nodes some of which lack PyTorch, always or in some of their runs."""

    without: dict[str, tuple[int, ...]] = field(default_factory=dict)  # the numbers of these runs

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        if stage == "speed" and self.measured[node] in self.without.get(node, ()):
            others = {name: of for name, of in made.collectors.items() if name != "gpu_gemm"}
            made = self.of_run[node] = NodeEvidence(node, collectors=others)
        return made


class OwnFolders(Judged):
    """Nodes two of which have their own file system, which was measured too."""

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        if stage == "speed" and node in ("n1", "n2"):
            files = {way: {"bytes": 3e10, "seconds": 10.0} for way in ("write", "read")}
            own = Collected(Status.READ, {"folder": f"/{node}", **files})
            made = self.of_run[node] = NodeEvidence(node, collectors={**made.collectors, "fs_bandwidth": own})
        return made


OF_NO_OTHER = "GPU 5, bfloat16 products of 8192 × 8192: 420 TFLOP/s, 40 % below the best GPU"


@pytest.mark.parametrize("limit", ["", "[limits]\nnodes_at_once = 3\n"])
def test_what_too_few_nodes_measured_counts_as_the_check_says(limit: str, tmp_path: Path) -> None:
    nodes = SomeWithPyTorch(
        gpus=gpus(NAMES),
        gpu_speed=lambda _node, uuid: 0.6 if uuid == "n1-5" else 1.0,
        without=dict.fromkeys(NAMES[2:], ALWAYS),
    )
    outcomes = outcomes_of(tmp_path, nodes, limit)
    assert verdicts(outcomes) == {"n1": NodeVerdict.REJECTED} | dict.fromkeys(NAMES[1:], NodeVerdict.OPEN)
    assert OF_NO_OTHER in outcomes["n1"].reasons[0]


@pytest.mark.long
def test_what_one_node_alone_has_counts_as_the_check_says_whatever_else_was_measured_of_it(tmp_path: Path) -> None:
    usual = ["20b0"] * 4 + ["1eb8"] * 2
    nodes = Judged(
        gpus=gpus(NAMES, 6) | gpus(("n2",)),
        models=dict.fromkeys(NAMES, usual) | {"n2": [*usual, "2204", "2204"]},
        gpu_speed=lambda _node, uuid: 0.6 if uuid == "n2-7" else 1.0,
    )
    outcomes = outcomes_of(tmp_path, nodes)
    assert verdicts(outcomes) == {"n2": NodeVerdict.REJECTED}
    assert "GPU 7, bfloat16 products of 8192 × 8192: 420 TFLOP/s, 40 % below" in outcomes["n2"].reasons[0]


def test_what_fails_once_beside_its_own_node_where_nobody_else_was_measured_is_said(tmp_path: Path) -> None:
    nodes = SomeWithPyTorch(
        gpus=gpus(NAMES),
        gpu_speed=lambda _node, uuid: 0.6 if uuid == "n1-5" else 1.0,
        without=dict.fromkeys(NAMES[1:], ALWAYS) | {"n1": (2, 3)},
    )
    outcome = outcomes_of(tmp_path, nodes)["n1"]
    assert outcome.said is NodeVerdict.OPEN
    assert any(f"failed in 1 of 1 runs: {OF_NO_OTHER}" in reason for reason in outcome.reasons), outcome


@pytest.mark.long
def test_what_a_population_decides_on_no_check_rejects_before(tmp_path: Path) -> None:
    nodes = Judged(gpus=gpus(NAMES), gpu_speed=lambda _node, uuid: 0.8 if uuid == "n1-5" else 1.0)
    outcomes = outcomes_of(tmp_path, nodes, "[limits]\nnodes_at_once = 3\n[errors]\nslower = 0.4\n")
    assert verdicts(outcomes) == {"n1": NodeVerdict.OPEN}
    assert [reason for reason in outcomes["n1"].reasons if "80.0% of the usual" not in reason] == []


@pytest.mark.long
def test_nobody_is_loaded_again_for_what_too_few_nodes_measured(tmp_path: Path) -> None:
    nodes = OwnFolders(gpus=gpus(NAMES))
    assert verdicts(outcomes_of(tmp_path, nodes)) == dict.fromkeys(("n1", "n2"), NodeVerdict.OPEN)
    assert nodes.measured == dict.fromkeys(NAMES, 3)


def test_after_a_run_of_healthy_nodes_no_other_node_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked_at: list[str] = []
    failed = AcceptanceState._failed

    def looking(state: AcceptanceState, node: str, stage: Stage) -> Iterator[Failure]:
        looked_at.append(node)
        return failed(state, node, stage)

    monkeypatch.setattr(AcceptanceState, "_failed", looking)
    nodes = Nodes()
    outcomes_of(tmp_path, nodes, "[limits]\nnodes_at_once = 2\n")
    assert len(looked_at) == sum(len(of_run) for _, of_run in nodes.runs)
