"""A run's pairs and groups through a launcher: what is kept, under which names, where it is cut, resumed, refused."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.launchers import Measured, MeterCampaign
from clusterproof.plugins.benchmarks.meters import MeterSettings
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.journal import read
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import NodeGroup, Reading
from clusterproof.plugins.suite.perf import pairs_measure
from clusterproof.plugins.suite.perf.pairs_measure import MeasuringSetup, measure
from clusterproof.plugins.suite.perf.pairs_options import PairOptions
from clusterproof.plugins.suite.perf.pairs_planning import planned
from clusterproof.plugins.transport import Limits, Unusable, connection_for

NAMES = [f"n{number:02}" for number in range(16)]
OPTIONS = PairOptions(
    which="quick",
    groups="doubling",
    named_pairs=(),
    at_once=1_000,
    budget_s=600.0,
    run_s=60.0,
    seed=1,
    resume=None,
    meter="nccl-tests",
    settings=MeterSettings(ranks_per_node=8, size_bytes=2**30),
    launcher="",
    baseline=None,
    save_baseline=None,
)
Answer = Callable[[Any], Reading]


def well(nodes: Any) -> Reading:
    return Reading(400.0, size_bytes=2**30, is_correct=True, seconds=1.0, command=f"mpirun --host {','.join(nodes)}")


@dataclass
class Launched:
    """A launcher that measures nothing and keeps its arguments."""

    answer: Answer = well
    campaign: MeterCampaign = field(init=False)
    groups: list[tuple[int, bool]] = field(default_factory=list)  # number of nodes, and whether briefly

    def measure(self, together: Sequence[Any], measured: Measured) -> None:
        """Return the prepared results."""
        for each in together:
            if isinstance(each, NodeGroup):
                self.groups.append((len(each.nodes), self.campaign.settings.is_brief))
            measured(each, self.answer(each))

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""


@dataclass
class Run:
    """Runs in one folder."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    def __call__(
        self,
        launched: Launched,
        text: Any = str,
        unavailable: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
        **options: Any,
    ) -> PairwiseRun:
        """Measure nodes whose names differ from those shown."""

        def launcher_for(campaign: MeterCampaign, _name: str) -> Launched:
            launched.campaign = campaign
            return launched

        self.monkeypatch.setattr(pairs_measure, "launcher_for", launcher_for)
        shown = Cluster("c", "ssh", tuple(Target(name, instance_type=(types or {}).get(name, "")) for name in NAMES))
        real = Cluster("c", "ssh", tuple(Target(f"secret-{name}") for name in NAMES))
        facts = ClusterFacts(
            shown, NodeEvidence("c"), {target.name: Node(target, NodeEvidence(target.name)) for target in shown.targets}
        )
        by_name = {name: f"secret-{name}" for name in NAMES}
        setup = MeasuringSetup(
            real,
            connection_for("ssh"),
            Limits(),
            self.folder,
            by_name,
            unavailable or {},
            text,
            self.said.append,
            "again",
        )
        return measure(replace(OPTIONS, **options), facts, setup)


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


def test_what_ends_among_the_groups_keeps_what_was_measured_and_says_why(run: Run) -> None:
    def expired(nodes: Any) -> Reading:
        if isinstance(nodes, NodeGroup) and len(nodes.nodes) == 8:
            raise Unusable("the nodes secret-n01 have gone")
        return well(nodes)

    (campaign,) = run(Launched(expired), text=lambda text: text.replace("secret-", "")).campaigns
    assert len(campaign.by_node) == 16
    assert campaign.journal.ended == "groups of 8 nodes and more: the nodes n01 have gone"
    kept = read(run.folder / "pairwise.jsonl")
    assert (kept.ended, kept.groups) == (campaign.journal.ended, campaign.journal.groups)
    assert len(kept.groups) == 4
    assert f"pairs: left out: {campaign.journal.ended}; to go on: again" in run.said


def test_what_was_measured_before_the_cluster_is_lost_is_evaluated_and_the_run_can_go_on(run: Run) -> None:
    left = iter(range(20))

    def lost(nodes: Any) -> Reading:
        if next(left, None) is None:
            raise Unusable("the API server of secret-n01 does not answer")
        return well(nodes)

    made = run(Launched(lost), text=lambda text: text.replace("secret-", ""))
    (campaign,) = made.campaigns
    assert (len(campaign.journal.measurements), made.why_not) == (20, "")
    assert campaign.journal.ended == "nothing more could be measured: the API server of n01 does not answer"
    assert read(run.folder / "pairwise.jsonl").ended == campaign.journal.ended
    assert f"pairs: left out: {campaign.journal.ended}; to go on: again" in run.said
    (campaign,) = run(Launched(), resume=run.folder).campaigns
    assert campaign.journal.ended == ""
    assert set(campaign.by_node) == set(NAMES)


def test_what_is_on_a_disk_that_fills_up_is_evaluated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(20))

    def fsync(_file: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("clusterproof.plugins.benchmarks.pairwise.journal.os.fsync", fsync)
    (campaign,) = run(Launched()).campaigns
    assert len(campaign.journal.measurements) == 20
    file = run.folder / "pairwise.jsonl"
    assert campaign.journal.ended == f"nothing more could be measured: {file}: No space left on device"


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


def test_where_nothing_was_measured_before_the_cluster_is_lost_that_is_said(run: Run) -> None:
    def lost(_nodes: Any) -> Reading:
        raise Unusable("no such partition")

    made = run(Launched(lost))
    assert (made.campaigns, made.why_not) == ((), "nothing could be measured between nodes: no such partition")


def test_nodes_of_another_type_are_measured_where_those_of_one_cannot_be(run: Run, tmp_path: Path) -> None:
    p5, p5en = NAMES[:8], NAMES[8:]

    def lost(nodes: Any) -> Reading:
        if next(iter(nodes)).removeprefix("secret-") in p5:
            raise Unusable("no partition has p5")
        return well(nodes)

    types = {**dict.fromkeys(p5, "p5.48xlarge"), **dict.fromkeys(p5en, "p5en.48xlarge")}
    made = run(Launched(lost), types=types, save_baseline=tmp_path / "figures.json")
    (campaign,) = made.campaigns
    assert (set(campaign.by_node), made.why_not) == (
        set(p5en),
        "nothing could be measured between nodes: no partition has p5",
    )
    with pytest.raises(Incomplete, match="no partition has p5"):
        made.pairs_of_node(p5[0])
    assert (tmp_path / "figures.json").exists()


def test_nodes_that_cannot_be_released_lose_no_measurement(run: Run) -> None:
    class Holding(Launched):
        def __exit__(self, *_: object) -> None:
            raise Unusable("the submit host does not answer")

    (campaign,) = run(Holding()).campaigns
    assert campaign.journal.ended == ""
    assert campaign.groups.by_size.keys() == {4, 8, 16}
    assert "pairs: all is measured, but the nodes may still be reserved: the submit host does not answer" in run.said


def test_a_node_that_is_gone_when_a_run_goes_on_is_in_no_group(run: Run) -> None:
    run(Launched(), groups="")
    launched = Launched()
    (campaign,) = run(launched, resume=run.folder, groups="all", unavailable={"n03": "it was not reached"}).campaigns
    assert launched.groups == [(15, True)]
    assert campaign.journal.ended == ""


def test_a_run_that_is_interrupted_again_where_it_goes_on_is_not_over(run: Run) -> None:
    def interrupted(nodes: Any) -> Reading:
        if isinstance(nodes, NodeGroup):
            raise KeyboardInterrupt
        return well(nodes)

    run(Launched(), groups="")
    with pytest.raises(KeyboardInterrupt):
        run(Launched(interrupted), resume=run.folder)
    assert read(run.folder / "pairwise.jsonl").ended is None


def test_an_interruption_among_the_groups_leaves_a_run_that_is_not_over(run: Run) -> None:
    def interrupted(nodes: Any) -> Reading:
        if isinstance(nodes, NodeGroup) and len(nodes.nodes) == 8:
            raise KeyboardInterrupt
        return well(nodes)

    with pytest.raises(KeyboardInterrupt):
        run(Launched(interrupted))
    kept = read(run.folder / "pairwise.jsonl")
    assert kept.ended is None
    assert [len(measurement.group.nodes) for measurement in kept.groups] == [4, 4, 4, 4]
    launched = Launched()
    (campaign,) = run(launched, resume=run.folder).campaigns
    assert [nodes for nodes, _ in launched.groups] == [8, 8, 16]
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
