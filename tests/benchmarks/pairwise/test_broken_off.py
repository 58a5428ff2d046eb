"""What ends a measurement between nodes early: what was measured is kept and evaluated, and the run can go on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.pairwise.journal import read
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.pairs import NodeGroup, Reading
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.pairwise.launched import NAMES, Launched, Run, well


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


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


class Holding(Launched):
    """Its nodes cannot be released."""

    def __exit__(self, *_: object) -> None:
        raise Unusable("the submit host does not answer")


STILL_RESERVED = "pairs: no longer measuring, but the nodes may still be reserved: the submit host does not answer"


def test_nodes_that_cannot_be_released_lose_no_measurement(run: Run) -> None:
    (campaign,) = run(Holding()).campaigns
    assert campaign.journal.ended == ""
    assert campaign.groups.by_size.keys() == {4, 8, 16}
    assert STILL_RESERVED in run.said


def test_where_nodes_cannot_be_released_what_was_left_out_is_said_too(run: Run) -> None:
    def expired(nodes: Any) -> Reading:
        if isinstance(nodes, NodeGroup) and len(nodes.nodes) == 8:
            raise Unusable("the nodes have gone")
        return well(nodes)

    run(Holding(expired))
    assert run.said[-2:] == [
        STILL_RESERVED,
        "pairs: left out: groups of 8 nodes and more: the nodes have gone; to go on: again",
    ]


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
