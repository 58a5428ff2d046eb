"""The stage `speed`, in batches and on unlike machines: which node is slow, and whom that leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.accept.report import report, text
from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from tests.accept.simulated import NAMES, Nodes, acceptance, cluster_of

SPEED = 'stages = ["inventory", "speed"]\n'


def said(folder: Path, nodes: Nodes, more: str = "", names: tuple[str, ...] = NAMES) -> dict[str, NodeOutcome]:
    """What is said of each node in the end."""
    made = acceptance(folder, nodes, SPEED + more, cluster_of(names))
    made.go_on((), lambda _words: None)
    assert text(report(made.state, made.ended, made.named, ""))
    return {one.node: one for one in of_nodes(made.state)}


def verdicts(found: dict[str, NodeOutcome]) -> dict[str, NodeVerdict]:
    """Of the nodes that are not accepted."""
    return {node: one.said for node, one in found.items() if one.said is not NodeVerdict.ACCEPTED}


@pytest.mark.parametrize("slow", ["n2", "n5", "n8"])
def test_a_slow_node_is_rejected_in_whichever_batch_it_was_measured(slow: str, tmp_path: Path) -> None:
    nodes = Nodes(speed=lambda node, _run: 0.8 if node == slow else 1.0)
    found = said(tmp_path, nodes, "[limits]\nnodes_at_once = 3\n")
    assert verdicts(found) == {slow: NodeVerdict.REJECTED}
    folder = found[slow].reasons[0].rpartition("(")[2].rstrip(")")
    evidence = tmp_path / "into" / folder / "recording" / "nodes" / f"{slow}.json"
    assert evidence.exists(), "the folder has what was measured on it"
