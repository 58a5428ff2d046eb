"""Stages over several nodes, too few of which are left or may be loaded: nothing is loaded in vain, and it says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.accept.command import accept
from clusterproof.plugins.accept.redaction import redacted
from clusterproof.plugins.accept.report import report
from clusterproof.plugins.accept.state import AcceptanceState
from clusterproof.plugins.accept.verdicts import of_nodes
from clusterproof.plugins.catalog.acceptance import stages as acceptance_stages
from clusterproof.plugins.core.record import replace
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


OF_GROUPS = "Collectives over groups of 4, 8, … nodes and all of them: "


@pytest.mark.parametrize(
    ("count", "limits", "words", "is_left_out"),
    [
        (8, "", "", False),
        (3, "", "", False),
        (8, "nodes_at_once = 8", "", False),
        (8, "nodes_at_once = 6", "on 4 nodes at most, as the plan loads no more at once", False),
        (8, "pairs_at_once = 2", "on 4 nodes at most, as the plan loads no more at once", False),
        (8, "nodes_at_once = 3", "there are not 3 nodes, or not 4 may be loaded at once", True),
        (2, "", "there are not 3 nodes, or not 4 may be loaded at once", True),
    ],
)
def test_what_no_group_of_nodes_proves_is_said(
    count: int, limits: str, words: str, is_left_out: bool, tmp_path: Path
) -> None:
    text = f'stages = ["inventory", "collectives"]\n[limits]\n{limits}\n'
    made = acceptance(tmp_path, Nodes(), text, cluster_of(NAMES[:count]))
    of = report(made.state, [], "X", "")
    assert [line.removeprefix(OF_GROUPS) for line in of["not_covered"] if line.startswith(OF_GROUPS)] == (
        [words] if words else []
    )
    assert any(line.startswith(OF_GROUPS) for line in of["left_out"]) is is_left_out


def test_the_nodes_that_the_inventory_leaves_out_are_said_and_not_named_once_redacted(tmp_path: Path) -> None:
    cluster = replace(cluster_of(NAMES[:2]), notes=("not validated: n9 (IDLE+DRAIN: fan)",))
    made = report(acceptance(tmp_path, Nodes(), 'stages = ["inventory"]\n', cluster).state, [], "X", "")
    assert made["not_covered"][0] == "the inventory: not validated: n9 (IDLE+DRAIN: fan)"
    assert "n9" not in str(redacted(made, cluster))


@pytest.mark.parametrize(("count", "limit"), [(8, 2), (8, 3), (2, 8)])
def test_nothing_is_run_planned_or_missing_of_collectives_that_are_left_out(
    count: int, limit: int, tmp_path: Path
) -> None:
    text = f'stages = ["inventory", "collectives"]\n[limits]\nnodes_at_once = {limit}\n'
    nodes = Nodes()
    made = acceptance(tmp_path, nodes, text, cluster_of(NAMES[:count]))
    assert made.go_on((), lambda _words: None) == ""
    assert [stage for stage, _ in nodes.runs] == ["inventory"]
    assert report(made.state, made.ended, "X", "")["summary"] == {"accepted": count}
    planned = accept([f"ssh:n[1-{count}]", "--plan", str(tmp_path / "plan.toml"), "--dry-run"])[1].splitlines()
    assert f"2. {OF_GROUPS}not here: there are not 3 nodes, or not 4 may be loaded at once" in planned
    assert planned[-1].startswith("about 2 min")


@pytest.mark.parametrize("stage", ["pairs", "whole"])
def test_of_a_single_node_no_stage_between_nodes_is_planned_run_or_missing(stage: str, tmp_path: Path) -> None:
    nodes = Nodes()
    made = acceptance(tmp_path, nodes, f'stages = ["inventory", "{stage}"]\n', cluster_of(NAMES[:1]))
    made.go_on((), lambda _words: None)
    reported = report(made.state, made.ended, "X", "")
    title = acceptance_stages()[stage].title
    assert [name for name, _ in nodes.runs] == ["inventory"]
    assert (reported["summary"], f"{title}: there are not 2 nodes" in reported["left_out"]) == ({"accepted": 1}, True)
    planned = accept(["ssh:n1", "--plan", str(tmp_path / "plan.toml"), "--dry-run"])[1].splitlines()
    assert f"2. {title}: not here: there are not 2 nodes" in planned
    assert planned[-1].startswith("about 2 min")
