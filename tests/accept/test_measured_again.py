"""A repaired or replaced node or GPU keeps none of the old hardware's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterproof.plugins.accept import NodeRun
from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import Gpu, NodeIdentity
from tests.accept.judged import gpus
from tests.accept.simulated import NAMES, SPEED, Nodes, acceptance, cluster_of, verdicts


def gone_on(
    folder: Path, nodes: Nodes, again: tuple[str, ...] = (), text: str = SPEED, names: Sequence[str] = NAMES
) -> dict[str, NodeOutcome]:
    """The final verdict on each node."""
    made = acceptance(folder, nodes, text, cluster_of(names))
    assert made.go_on(again, lambda _words: None) == ""
    return {outcome.node: outcome for outcome in of_nodes(made.state)}


@pytest.mark.long
@pytest.mark.parametrize("floor", ["", "[floors]\ngpu_gemm = 690\n"])
@pytest.mark.parametrize(("before", "after"), [(0.8, 1.0), (1.0, 0.8)])
def test_nodes_all_of_which_were_repaired_are_as_fast_as_they_are_now(
    before: float, after: float, floor: str, tmp_path: Path
) -> None:
    def due(speed: float) -> dict[str, NodeVerdict]:
        return dict.fromkeys(NAMES, NodeVerdict.REJECTED) if floor and speed < 1 else {}

    nodes = Nodes(speed=lambda _node, _run: before)
    assert verdicts(gone_on(tmp_path, nodes, (), SPEED + floor)) == due(before)
    nodes.speed = lambda _node, _run: after
    assert verdicts(gone_on(tmp_path, nodes, NAMES, SPEED + floor)) == due(after)


@pytest.mark.long
def test_most_nodes_were_repaired_and_what_they_were_is_not_what_their_run_has_in_common(tmp_path: Path) -> None:
    slow, floor = NAMES[:6], "[floors]\ngpu_gemm = 690\n"
    nodes = Nodes(gpus=gpus(NAMES, 2), speed=lambda node, _run: 0.8 if node in slow else 1.0)
    assert verdicts(gone_on(tmp_path, nodes, (), SPEED + floor)) == dict.fromkeys(slow, NodeVerdict.REJECTED)
    nodes.speed = lambda _node, _run: 1.0
    assert verdicts(gone_on(tmp_path, nodes, slow, SPEED + floor)) == {}


@pytest.mark.long
def test_after_a_gpu_was_replaced_what_was_measured_between_nodes_stands(tmp_path: Path) -> None:
    names = tuple(f"n{number}" for number in range(1, 21))
    text = 'stages = ["inventory", "speed", "pairs"]\n'
    nodes = Nodes(gpus=gpus(names, 2))
    assert verdicts(gone_on(tmp_path, nodes, (), text, names)) == {}
    nodes.gpus["n20"][1] = "another"
    outcomes = gone_on(tmp_path, nodes, ("n1",), text, names)
    seen = [stage for stage, of in nodes.runs if "n20" in of]
    assert seen.count("pairs") == 1, "n1 is paired with others, after its repair"
    assert seen.count("inventory") == 2, "it was measured anew"
    assert verdicts(outcomes) == {}


@pytest.mark.parametrize(
    ("before", "now", "is_other"),
    [
        (NodeIdentity("", "S-1", (Gpu(0, "a"),)), NodeIdentity("", "S-2", (Gpu(0, "a"),)), True),
        (NodeIdentity("", "S-1", (Gpu(0, "a"),)), NodeIdentity("", "S-1", (Gpu(0, "b"),)), True),
        (NodeIdentity("", "S-1", (Gpu(0, "a"),)), NodeIdentity("", "", (Gpu(0, "a"),)), False),
        (NodeIdentity("i-1", "S-1"), NodeIdentity("i-1", "S-2"), False),
        (NodeIdentity("i-1", "S-1"), NodeIdentity("i-2", "S-1"), True),
        (NodeIdentity("i-1", "S-1"), NodeIdentity("", "S-2"), True),
    ],
)
def test_gpus_in_another_machine_are_another_node(before: NodeIdentity, now: NodeIdentity, is_other: bool) -> None:
    assert NodeRun(now, "p5").is_other_than(NodeRun(before, "p5")) is is_other


@pytest.mark.long
def test_a_run_that_ended_while_nobody_looked_is_of_nodes_before_they_were_repaired(tmp_path: Path) -> None:
    nodes = Nodes(verdicts={("inventory", "n5"): Verdict.FAIL})
    made = acceptance(tmp_path, nodes, SPEED)

    def killed(command: Sequence[str], folder: Path, lock: int) -> int:
        nodes.launch(command, folder, lock)
        raise KeyboardInterrupt

    made.launch = killed
    with pytest.raises(KeyboardInterrupt):
        made.go_on((), lambda _words: None)
    nodes.verdicts = {}
    assert verdicts(gone_on(tmp_path, nodes, ("n5",))) == {}
    assert [of for stage, of in nodes.runs if stage == "inventory"] == [NAMES] * 2, "it counts, and is then repeated"


@dataclass
class Compared(Nodes):
    """Nodes whose versions the inventory compares with the majority of its run."""

    versions: dict[str, str] = field(default_factory=dict)

    def _result(self, stage: str, node: str) -> Result:
        beside = [self.versions.get(other, "6.8") for other in self.runs[-1][1]]
        is_like_most = 2 * beside.count(self.versions.get(node, "6.8")) >= len(beside)
        self.verdicts = {("inventory", node): Verdict.PASS if is_like_most else Verdict.CONCERN}
        return super()._result(stage, node)


@pytest.mark.long
def test_a_node_that_was_replaced_is_compared_with_all_others_also_in_its_versions(tmp_path: Path) -> None:
    nodes = Compared()
    assert verdicts(gone_on(tmp_path, nodes)) == {}
    nodes.serials["n5"], nodes.versions = "another", {"n5": "5.15"}
    outcomes = gone_on(tmp_path, nodes, ("n5",))
    assert {node: outcome.concerns for node, outcome in outcomes.items() if outcome.concerns} == {
        "n5": ("host.memlock: something; expected nothing",)
    }


@dataclass
class Named(Nodes):
    """Nodes that report their GPUs' model."""

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        own = [{"index": at, "uuid": uuid, "name": uuid.partition(" ")[0]} for at, uuid in enumerate(self.gpus[node])]
        return NodeEvidence(node, collectors={**made.collectors, "nvml": Collected(Status.READ, {"gpus": own})})


@pytest.mark.long
def test_a_node_that_has_a_gpu_of_another_model_now_is_of_another_kind(tmp_path: Path) -> None:
    nodes = Named(gpus={node: [f"H100 {node}-{gpu}" for gpu in range(2)] for node in NAMES})
    gone_on(tmp_path, nodes)
    nodes.gpus["n5"][1] = "H200"
    made = acceptance(tmp_path, nodes, SPEED)
    made.go_on(("n1",), lambda _words: None)
    assert {made.state.seen[node].kind for node in NAMES} == {"p5.48xlarge, H100", "p5.48xlarge, H100, H200"}
