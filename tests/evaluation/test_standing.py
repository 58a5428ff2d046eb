"""Whether what checks say of a node is as before, and the file by which an agent shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation.standing import standing
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.transport.gather import replayed
from clusterproof.plugins.transport.kubernetes.reporting import Unchanged
from tests.builders.runs import ROOT

DEMO = ROOT / "fixtures" / "demo"


@pytest.fixture(scope="module")
def demo() -> Mapping[str, NodeEvidence]:
    return {one.node: one for one in replayed(DEMO, resolve("demo"))}


def test_it_is_the_same_whatever_the_node_is_called_and_however_long_it_took(demo: Mapping[str, NodeEvidence]) -> None:
    of = standing(NO_POLICY)
    again = replace(demo["gpu001"], node="here", seconds=99.0)
    assert of(demo["gpu001"]) == of(again)


def test_it_is_another_where_a_check_finds_something_else(demo: Mapping[str, NodeEvidence]) -> None:
    of, whole = standing(NO_POLICY), demo["gpu001"]
    less = replace(whole, collectors={name: one for name, one in whole.collectors.items() if name != "kernel_log"})
    assert of(whole) != of(less)


def test_the_file_is_there_from_the_second_report_that_says_the_same(tmp_path: Path) -> None:
    path, said = tmp_path / "unchanged", iter(["a", "a", "b", "b", "a"])
    unchanged = Unchanged(path, lambda _: next(said))
    seen = []
    for evidence in (NodeEvidence("here"),) * 5:
        unchanged.note(evidence)
        seen.append(path.exists())
    assert seen == [False, True, False, True, False]


def test_a_node_that_cannot_be_read_is_not_as_before(tmp_path: Path) -> None:
    path = tmp_path / "unchanged"
    unchanged = Unchanged(path, lambda _: "a")
    seen = []
    for why in (None, None, Unreached.TIMED_OUT, None, None):
        unchanged.note(NodeEvidence("here", unreached=why))
        seen.append(path.exists())
    assert seen == [False, True, False, False, True]
