"""A run's pairs and groups through a launcher: what is measured, what is kept and how, and what a resumed run adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.journal import read
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import Reading
from clusterproof.plugins.suite.perf.pairs_planning import parts, planned
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.pairwise.launched import NAMES, OPTIONS, Launched, Run, well
from tests.checks.perf.given import bus_of


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_groups_are_measured_after_the_pairs_by_the_same_launcher(run: Run) -> None:
    launched = Launched()
    (campaign,) = run(launched).campaigns
    assert campaign.groups.description() == "4 nodes 400 GB/s, 8 nodes 400 GB/s, 16 nodes 400 GB/s"
    assert launched.groups == [(4, False)] * 4 + [(8, False)] * 2 + [(16, True)]
    assert "groups: measuring 4 nodes together, n[00-03] and 3 more groups at once" in run.said
    assert read(run.folder / "pairwise.jsonl").groups == campaign.journal.groups


def test_no_name_of_a_node_is_kept_that_is_not_shown(run: Run) -> None:
    run(Launched(), text=lambda text: text.replace("secret-", ""))
    kept = (run.folder / "pairwise.jsonl").read_text()
    assert "mpirun --host n00,n01,n02,n03" in kept
    assert "secret" not in kept


def test_what_no_pair_succeeded_with_is_in_no_group(run: Run) -> None:
    def busy(nodes: Any) -> Reading:
        return Reading(problem="busy") if "secret-n05" in tuple(nodes) else well(nodes)

    (campaign,) = run(Launched(busy)).campaigns
    assert campaign.journal.group_plan
    assert {node for group in campaign.journal.group_plan.groups for node in group} == set(NAMES) - {"n05"}


def test_where_all_pairs_fail_no_group_is_tried(run: Run) -> None:
    launched = Launched(lambda _: Reading(problem="no mpirun"))
    run(launched)
    assert launched.groups == []


def test_what_an_earlier_run_left_in_the_folder_is_no_measurement_of_this_run(run: Run) -> None:
    def slow(nodes: Any) -> Reading:
        return replace(well(nodes), busbw_gb_per_s=100.0) if "secret-n05" in tuple(nodes) else well(nodes)

    left = iter(range(20))

    def lost(nodes: Any) -> Reading:
        if next(left, None) is None:
            raise Unusable("the API server does not answer")
        return well(nodes)

    run(Launched(slow))
    (run.folder / "pairwise-2.jsonl").write_bytes((run.folder / "pairwise.jsonl").read_bytes())
    (campaign,) = run(Launched(lost)).campaigns
    for journal in (campaign.journal, read(run.folder / "pairwise.jsonl")):
        assert [measurement.reading.busbw_gb_per_s for measurement in journal.measurements] == [400.0] * 20
    assert not (run.folder / "pairwise-2.jsonl").exists()


def test_what_an_earlier_run_measured_in_the_folder_is_kept_though_this_one_measures_nothing(run: Run) -> None:
    def lost(nodes: Any) -> Reading:
        raise Unusable("the API server does not answer")

    run(Launched())
    before = (run.folder / "pairwise.jsonl").read_bytes()
    assert run(Launched(lost)).why_not == "nothing could be measured between nodes: the API server does not answer"
    assert (run.folder / "pairwise.jsonl.before").read_bytes() == before


def test_a_node_that_is_gone_when_a_run_goes_on_is_in_no_group(run: Run) -> None:
    run(Launched(), groups="")
    launched = Launched()
    (campaign,) = run(launched, resume=run.folder, groups="all", unavailable={"n03": "it was not reached"}).campaigns
    assert launched.groups == [(15, True)]
    assert campaign.journal.ended == ""


def test_a_run_that_goes_on_measures_the_groups_that_it_asks_for_itself(run: Run) -> None:
    run(Launched(), groups="")
    launched = Launched()
    (campaign,) = run(launched, resume=run.folder, groups="all").campaigns
    assert [nodes for nodes, _ in launched.groups] == [16]
    assert campaign.journal.about["groups"] == "all"


def test_a_meter_of_two_ends_says_that_it_measures_no_groups(run: Run) -> None:
    launched = Launched()
    (campaign,) = run(launched, meter="iperf3").campaigns
    assert launched.groups == []
    for plan in (campaign.journal.group_plan, read(run.folder / "pairwise.jsonl").group_plan):
        assert plan
        assert plan.left_out == "iperf3 measures two nodes; expected --meter nccl-tests or nccom-test"
        assert f"groups: left out: {plan.left_out}" in run.said


def test_figures_of_groups_are_kept_for_so_many_nodes(run: Run, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    run(Launched(), save_baseline=figures)
    again = run(Launched(), baseline=figures).campaigns[0]
    assert again.floor_of(16) == pytest.approx(0.8 * 400.0)
    assert again.floor_of(15) is None


def test_what_the_pairs_are_compared_with_is_known_by_most_nodes_and_not_by_the_first() -> None:
    def node(name: str, devices: int) -> Node:
        efa = [{"name": f"rdmap{at}s0", "vendor": "1d0f", "device": "efa2", "ports": []} for at in range(devices)]
        rdma = {"rdma": Collected(Status.READ, {"devices": efa})}
        return Node(Target(name, instance_type="p5.48xlarge"), NodeEvidence(name, rdma))

    nodes = [node("n0", 31), node("n1", 32), node("n2", 32)]
    facts = ClusterFacts(
        Cluster("c", "ssh", tuple(node.target for node in nodes)),
        NodeEvidence("c"),
        {node.name: node for node in nodes},
    )
    journal = planned(nodes, OPTIONS, facts, {})
    assert (journal.about["key"]["efa"], Campaign(journal).floor_gb_per_s is None) == (32, False)


@pytest.mark.parametrize("slower", [0.0, -0.05, 1.0, 5.0])
def test_a_policy_that_calls_no_or_every_share_slow_is_refused_in_one_line(slower: float) -> None:
    node = Node(Target("n0"), NodeEvidence("n0"))
    policy = Policy(thresholds={"pairwise.slower": slower})
    facts = ClusterFacts(Cluster("c", "ssh", (node.target,)), NodeEvidence("c"), {"n0": node}, policy)
    with pytest.raises(pytest.UsageError, match=f"pairwise.slower is {slower:g}; expected a share above 0 and below 1"):
        planned([node], OPTIONS, facts, {})


H100, A100 = "2330", "20b2"  # PCI device ids


def without_type(name: str, gpus: Sequence[str] | None, expect: Mapping[str, int] = {}) -> Node:
    """A node that no instance type is known of, with GPUs of these models on its bus; None: it was not reached."""
    read = {} if gpus is None else {"pci": Collected(Status.READ, {"devices": []}), **bus_of(gpus)}
    return Node(Target(name, expect=expect), NodeEvidence(name, read))


@pytest.mark.parametrize(
    ("nodes", "compared"),
    [
        ({"h": [H100] * 8, "a": [A100] * 8}, [["h0", "h1"], ["a0", "a1"]]),
        ({"h": [H100] * 8, "c": []}, [["h0", "h1"], ["c0", "c1"]]),
        ({"h": [H100] * 8, "less": [H100] * 7}, [["h0", "h1", "less0", "less1"]]),
        ({"h": [H100] * 8, "a": [A100] * 8, "silent": None}, [["h0", "h1", "silent0", "silent1"], ["a0", "a1"]]),
        ({"silent": None}, [["silent0", "silent1"]]),
    ],
)
def test_nodes_without_a_type_are_compared_with_those_that_have_the_same_gpus(
    nodes: Mapping[str, Sequence[str] | None], compared: list[list[str]]
) -> None:
    made = [without_type(f"{name}{at}", gpus) for name, gpus in nodes.items() for at in range(2)]
    assert [[node.name for node in part] for part in parts(made)] == compared


@pytest.mark.parametrize("is_silent", [False, True])
def test_kinds_of_nodes_have_the_same_files_where_the_first_node_is_silent_when_they_are_resumed(
    is_silent: bool,
) -> None:
    models = [H100, A100, H100, A100, H100, H100]
    made = [without_type(f"n{at}", None if is_silent and not at else [model]) for at, model in enumerate(models)]
    assert [{node.name for node in part} for part in parts(made)] == [{"n0", "n2", "n4", "n5"}, {"n1", "n3"}]


def test_nodes_that_should_have_more_gpus_are_not_measured_with_those_that_should_have_fewer() -> None:
    made = [without_type(f"n{gpus}{at}", [H100] * gpus, {"gpus": gpus}) for gpus in (4, 8) for at in range(2)]
    assert [[node.name for node in part] for part in parts(made)] == [["n40", "n41"], ["n80", "n81"]]


def test_who_names_pairs_decides_which_nodes_without_a_type_are_compared() -> None:
    made = [without_type("h", [H100] * 8), without_type("a", [A100] * 8)]
    assert parts(made) == []
    assert [[node.name for node in part] for part in parts(made, [("a", "h")])] == [["h", "a"]]


def test_a_named_pair_of_two_types_is_refused_beside_others(run: Run) -> None:
    types = {name: "p5.48xlarge" if name < "n08" else "p4d.24xlarge" for name in NAMES}
    launched = Launched()
    with pytest.raises(
        pytest.UsageError, match="--pairs names n00~n08, nodes that are not measured together; expected"
    ):
        run(launched, types=types, named_pairs=(("n00", "n01"), ("n00", "n08")))
    assert not run.said
