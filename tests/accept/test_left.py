"""Nodes that disappear from the inventory, or appear in it, during an acceptance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.accept.command import exit_code
from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.redaction import redacted
from clusterproof.plugins.accept.report import Report, report, text
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.simulated import NAMES, STAGES, Nodes, acceptance, cluster_of

OTHERS = tuple(name for name in NAMES if name != "n3")
PAIRS = 'stages = ["inventory", "pairs"]\n'


def gone_on(folder: Path, nodes: Nodes, names: Sequence[str] = NAMES, text: str = STAGES) -> Report:
    """The report of the acceptance in that folder, resumed with these nodes."""
    made = acceptance(folder, nodes, text, cluster_of(names))
    assert made.go_on((), lambda _words: None) == ""
    return report(made.state, made.ended, made.named, "")


def interrupted(folder: Path, nodes: Nodes, after: int) -> None:
    nodes.stop_after = after
    with pytest.raises(KeyboardInterrupt):
        gone_on(folder, nodes)
    nodes.stop_after = 10**6


def summary(outcome: Report) -> dict[str, str]:
    return {row["node"]: row["said"] for row in outcome["nodes"]}


@pytest.mark.long
def test_a_node_that_left_ends_nothing_and_is_said_with_what_was_measured_of_it(tmp_path: Path) -> None:
    nodes = Nodes()
    interrupted(tmp_path, nodes, 3)
    outcome = gone_on(tmp_path, nodes, OTHERS)
    assert (summary(outcome), exit_code(outcome)) == (dict.fromkeys(OTHERS, "accepted"), 0)
    assert text(outcome).startswith(
        "ssh:n[1-8]: accepted: 7 accepted, 1 node no longer in the inventory, 4 stages left out\n"
    )
    message = "n3 (S-n3): no longer in the inventory; runs: 1 of inventory, 2 of exact; nothing failed"
    assert message in " ".join(text(outcome).split())
    assert message in page(outcome)
    assert all("n3" not in of for _, of in nodes.runs[3:])


@pytest.mark.long
def test_what_a_node_failed_by_is_said_after_it_left_and_counts_for_nobody_else(tmp_path: Path) -> None:
    nodes = Nodes(speed=lambda node, _run: 0.9 if node == "n3" else 1.0)
    assert exit_code(gone_on(tmp_path, nodes)) == 1
    outcome = gone_on(tmp_path, nodes, OTHERS)
    assert (summary(outcome), exit_code(outcome)) == (dict.fromkeys(OTHERS, "accepted"), 0)
    assert not any(row["reasons"] for row in outcome["nodes"])
    assert [row["node"] for row in outcome["left"]] == ["n3"]
    assert all("n3" not in row["shares"] for row in outcome["populations"])


@pytest.mark.long
def test_a_node_that_failed_a_check_and_left_has_it_in_the_report(tmp_path: Path) -> None:
    nodes = Nodes(verdicts={("exact", "n3"): Verdict.FAIL})
    gone_on(tmp_path, nodes)
    outcome = gone_on(tmp_path, nodes, OTHERS)
    assert outcome["left"][0]["reasons"] == ["gpu.gpu_exact: something; expected nothing (runs/0002-exact)"]
    assert outcome["of_others"] == [], "what failed on one node is nothing of the cluster"


@pytest.mark.long
def test_a_node_in_the_place_of_one_that_left_goes_through_all_stages(tmp_path: Path) -> None:
    nodes = Nodes(verdicts={("exact", "n3"): Verdict.FAIL})
    gone_on(tmp_path, nodes)
    before = len(nodes.runs)
    nodes.serials["n9"] = "S-n3"  # the same machine under another name
    outcome = gone_on(tmp_path, nodes, (*OTHERS, "n9"))
    assert summary(outcome)["n9"] == "accepted"
    assert [stage for stage, of in nodes.runs[before:] if "n9" in of] == ["inventory", *["exact"] * 3, *["speed"] * 3]


@pytest.mark.long
def test_a_node_that_comes_back_has_what_was_measured_of_it(tmp_path: Path) -> None:
    nodes = Nodes()
    interrupted(tmp_path, nodes, 4)
    gone_on(tmp_path, nodes, OTHERS)
    before = len(nodes.runs)
    outcome = gone_on(tmp_path, nodes)
    assert (set(summary(outcome).values()), outcome["left"]) == ({"accepted"}, [])
    assert {stage for stage, of in nodes.runs[before:] if "n3" in of} == {"speed"}


def test_what_was_measured_between_a_node_and_one_that_left_is_measured_with_another(tmp_path: Path) -> None:
    nodes = Nodes()
    gone_on(tmp_path, nodes, ("n1", "n3"), PAIRS)
    gone_on(tmp_path, nodes, ("n1", "n2"), PAIRS)
    assert [of for stage, of in nodes.runs if stage == "pairs"] == [("n1", "n3"), ("n1", "n2")]
    outcome = gone_on(tmp_path, nodes, ("n1",), PAIRS)
    assert "pairs" not in outcome["nodes"][0]["runs"], "no node is left with which it was measured"
    assert "Pairs of nodes: there are not 2 nodes" in outcome["left_out"]


@pytest.mark.long
def test_what_failed_of_a_pair_stands_for_the_node_that_is_still_there(tmp_path: Path) -> None:
    nodes = Nodes(others={"n3~n4": Verdict.FAIL})
    gone_on(tmp_path, nodes)
    outcome = gone_on(tmp_path, nodes, OTHERS)
    assert (summary(outcome)["n4"], exit_code(outcome)) == ("open", 1)


@pytest.mark.long
def test_redacted_a_node_that_left_has_no_name(tmp_path: Path) -> None:
    nodes = Nodes(verdicts={("exact", "n3"): Verdict.FAIL})
    gone_on(tmp_path, nodes)
    hidden = redacted(gone_on(tmp_path, nodes, OTHERS), cluster_of(OTHERS))
    assert hidden["left"][0]["node"] == "left-1"
    assert [word for word in ("n3", "S-n") if word in json.dumps(hidden) or word in page(hidden)] == []
