"""Stages over several nodes, where too few are left to measure: nothing is loaded for nothing, and why is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.accept.report import report
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.simulated import NAMES, Nodes, acceptance, cluster_of

PLACES = {node: "a" if node in NAMES[:3] else "b" for node in NAMES}
TITLES = {
    "pairs": "Pairs of nodes",
    "groups": "Groups: all pairs within each place",
    "collectives": "Collectives over groups of 4, 8, … nodes and all of them",
}


@pytest.mark.parametrize(
    ("stage", "count", "failing", "open_"),
    [
        ("collectives", 3, 1, ("n2", "n3")),
        ("collectives", 4, 1, ()),
        ("groups", 8, 1, ("n2", "n3")),
        ("pairs", 2, 1, ("n2",)),
        ("pairs", 3, 1, ()),
    ],
)
def test_nodes_of_which_too_few_are_left_are_not_loaded_and_it_says_why(
    stage: str, count: int, failing: int, open_: tuple[str, ...], tmp_path: Path
) -> None:
    nodes = Nodes(verdicts={("inventory", node): Verdict.FAIL for node in NAMES[:failing]})
    names = NAMES[:count]
    cluster = cluster_of(names, {node: PLACES[node] for node in names} if stage == "groups" else None)
    made = acceptance(tmp_path, nodes, f'stages = ["inventory", "{stage}"]\n', cluster)
    made.go_on((), lambda _words: None)
    of_nodes = report(made.state, made.ended, "X", "")["nodes"]
    why = [f"{TITLES[stage]}: 0 of 1 runs: too few nodes are left that did not fail"]
    assert {one["node"]: one["reasons"] for one in of_nodes if one["said"] == "open"} == dict.fromkeys(open_, why)
    measured = {node for name, of_run in nodes.runs if name == stage for node in of_run}
    assert measured.isdisjoint(open_)
