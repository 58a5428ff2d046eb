"""Stages over several nodes with too few left to measure: nothing is loaded in vain, and the reason is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.accept.report import report
from clusterproof.plugins.accept.state import AcceptanceState
from clusterproof.plugins.accept.verdicts import of_nodes
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
    reported = report(made.state, made.ended, "X", "")["nodes"]
    why = [f"{TITLES[stage]}: 0 of 1 runs: too few nodes are left that did not fail"]
    assert {entry["node"]: entry["reasons"] for entry in reported if entry["said"] == "open"} == dict.fromkeys(
        open_, why
    )
    measured = {node for name, of_run in nodes.runs if name == stage for node in of_run}
    assert measured.isdisjoint(open_)


def test_what_stages_can_measure_is_worked_out_once_for_all_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[int] = []
    places_of = AcceptanceState.places_of

    def counting(state: AcceptanceState, kept: list[str]) -> list[tuple[str, ...]]:
        calls.append(len(kept))
        return places_of(state, kept)

    of_each = []
    for count in (4, 8):
        groups = {node: PLACES[node] for node in NAMES[:count]}
        made = acceptance(tmp_path, Nodes(), 'stages = ["inventory", "groups"]\n', cluster_of(NAMES[:count], groups))
        monkeypatch.setattr(AcceptanceState, "places_of", counting)
        of_nodes(made.state)
        monkeypatch.undo()
        of_each.append(len(calls))
        calls.clear()
    assert of_each[0] == of_each[1]
