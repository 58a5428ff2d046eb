"""A resumed acceptance reads its journal and reaches the same verdicts as an uninterrupted one."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from tests.accept.simulated import NAMES, SPEED, Nodes, acceptance, verdicts

ONE_RUN = "[errors]\nshows_in = 0.995\n"
SLOW = ("n1", "n2")
REJECTED = dict.fromkeys(SLOW, NodeVerdict.REJECTED)


def slow() -> Nodes:
    """Nodes of which the first two are slow: of the first three, most."""
    return Nodes(speed=lambda node, _run: 0.8 if node in SLOW else 1.0)


def gone_on(folder: Path, nodes: Nodes, at_once: int) -> dict[str, NodeOutcome]:
    """The final verdict on each node, with this many under load at once."""
    made = acceptance(folder, nodes, f"{SPEED}{ONE_RUN}[limits]\nnodes_at_once = {at_once}\n")
    assert made.go_on((), lambda _words: None) == ""
    return {outcome.node: outcome for outcome in of_nodes(made.state)}


@pytest.mark.long
@pytest.mark.parametrize("at_once", [1, 3, 5])
def test_who_reads_the_journal_again_says_what_was_said_before(at_once: int, tmp_path: Path) -> None:
    nodes = slow()
    outcomes = gone_on(tmp_path, nodes, at_once)
    assert verdicts(outcomes) == REJECTED
    runs = len(nodes.runs)
    assert (gone_on(tmp_path, nodes, at_once), len(nodes.runs)) == (outcomes, runs)


@pytest.mark.long
@pytest.mark.parametrize("after", range(2, 9))
def test_whoever_is_interrupted_between_two_batches_learns_of_all_what_is_usual(after: int, tmp_path: Path) -> None:
    nodes = slow()
    nodes.stop_after = after
    with pytest.raises(KeyboardInterrupt):
        gone_on(tmp_path, nodes, 1)
    nodes.stop_after = 10**6
    assert verdicts(gone_on(tmp_path, nodes, 1)) == REJECTED


def test_a_round_of_which_only_nodes_are_left_that_were_taken_out_is_over(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes(stop_after=2), f"{SPEED}[limits]\nnodes_at_once = 7\n")
    with pytest.raises(KeyboardInterrupt):
        made.go_on((), lambda _words: None)
    last = made.state.next()
    assert last is not None
    (only,) = last.nodes
    made.state.out.add(only)
    after = made.state.next()
    assert after is not None
    assert after.nodes == tuple(node for node in NAMES if node != only)
