"""Whether a node's results are unchanged, and the file in which an agent publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import date
from itertools import count
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.policy import NO_POLICY, Disabled, Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation.single_node import findings_digest
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.transport.gather import replayed
from clusterproof.plugins.transport.kubernetes.reporting import UnchangedFile
from tests.builders.runs import ROOT

HERE = Target("here")
DEMO = ROOT / "fixtures" / "demo"


@pytest.fixture(scope="module")
def demo() -> Mapping[str, NodeEvidence]:
    return {evidence.node: evidence for evidence in replayed(DEMO, resolve("demo"))}


@pytest.mark.long
def test_it_is_the_same_whatever_the_node_is_called_and_however_long_it_took(demo: Mapping[str, NodeEvidence]) -> None:
    of = findings_digest(NO_POLICY, HERE)
    again = replace(demo["gpu001"], node="here", seconds=99.0)
    assert of(demo["gpu001"]) == of(again)


def test_it_is_another_where_a_check_finds_something_else(demo: Mapping[str, NodeEvidence]) -> None:
    of, whole = findings_digest(NO_POLICY, HERE), demo["gpu001"]
    less = replace(
        whole, collectors={name: collected for name, collected in whole.collectors.items() if name != "kernel_log"}
    )
    assert of(whole) != of(less)


def test_it_is_another_once_the_exception_of_a_check_has_ended(demo: Mapping[str, NodeEvidence]) -> None:
    policy = Policy(disabled={"gpu.no_xid": Disabled("r", date(2020, 1, 31))}, day=(2020, 1, 31))
    of, whole = findings_digest(policy, HERE), demo["gpu001"]
    less = replace(whole, collectors={**whole.collectors, "kernel_log": Collected(Status.ABSENT)})
    unchecked = Policy(disabled={"gpu.no_xid": Disabled("r", date(2999, 1, 31))})
    assert of(less) == findings_digest(NO_POLICY, HERE)(less) != findings_digest(unchecked, HERE)(less)


@pytest.mark.parametrize(("expect", "is_same"), [({}, True), ({"ib": 8}, False)])
def test_a_device_that_is_gone_is_another_where_it_is_known_how_many_there_should_be(
    demo: Mapping[str, NodeEvidence], expect: Mapping[str, int], is_same: bool
) -> None:
    of = findings_digest(NO_POLICY, Target("here", expect=expect))
    assert (of(_with_infiniband(demo["gpu001"], 8)) == of(_with_infiniband(demo["gpu001"], 7))) is is_same


def _with_infiniband(evidence: NodeEvidence, count: int) -> NodeEvidence:
    """A node that is no instance and has this many InfiniBand ports."""
    collectors = {name: deepcopy(collected) for name, collected in evidence.collectors.items()}
    collectors |= dict.fromkeys(("imds", "resource_config"), Collected(Status.ABSENT))
    collectors["platform"].value.update(vendor="Supermicro", product="SYS-821GE")
    collectors["rdma"].value["devices"] = collectors["rdma"].value["devices"][:count]
    for number, device in enumerate(collectors["rdma"].value["devices"]):
        device |= {"name": f"mlx5_{number}", "driver": "mlx5_core", "vendor": "15b3", "device": "1021"}
        up = {"rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand", "link_downed": 0, "symbol_errors": 0}
        device["ports"][0] |= up
    return replace(evidence, collectors=collectors)


def test_the_file_is_there_from_the_second_report_that_says_the_same(tmp_path: Path) -> None:
    path, reports, clock = tmp_path / "unchanged", iter(["a", "a", "b", "b", "a"]), count(0, 60)
    unchanged = UnchangedFile(path, lambda _: next(reports), lambda: next(clock))
    seen = []
    for evidence in (NodeEvidence("here"),) * 5:
        unchanged.note(evidence)
        seen.append(path.exists())
    assert seen == [False, True, False, True, False]


def test_it_is_away_for_three_looks_of_the_kubelet_however_often_there_is_a_report(tmp_path: Path) -> None:
    path, clock = tmp_path / "unchanged", count(0, 5)
    unchanged = UnchangedFile(path, lambda evidence: "b" if evidence.seconds else "a", lambda: next(clock))
    seen = []
    for changed in [0] * 8 + [1] * 8:
        unchanged.note(NodeEvidence("here", seconds=changed))
        seen.append(path.exists())
    assert seen == ([False] * 6 + [True] * 2) * 2


def test_a_node_that_cannot_be_read_is_not_as_before(tmp_path: Path) -> None:
    path, clock = tmp_path / "unchanged", count(0, 60)
    unchanged = UnchangedFile(path, lambda _: "a", lambda: next(clock))
    seen = []
    for why in (None, None, Unreached.TIMED_OUT, None, None):
        unchanged.note(NodeEvidence("here", unreached=why))
        seen.append(path.exists())
    assert seen == [False, True, False, False, True]
