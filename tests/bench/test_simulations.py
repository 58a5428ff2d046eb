"""Small simulations and soaks: repeatable, goals met, no sick node missed, no healthy node kept drained."""

from __future__ import annotations

import json

import pytest

from bench.faults import FAULTS
from bench.peer_rules import RULES
from bench.simulate import Cell, run, simulate
from bench.soak import Soak, soak
from bench.tables import GOAL_EFFECT, GOAL_NOISE, OURS, Tallies, figures, tables
from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.planning import FIRST_ROUNDS, FURTHER_ROUNDS
from tests.testbed.needs import needs_slurm
from tests.testbed.slurm_version import IN_TURN, SlurmVersion

FIGURES = {"detected_7pct", "false_positive_rate", "kind_right", "rounds_max", "rounds_mean"}


@pytest.fixture(scope="module")
def data() -> Tallies:
    """A few clusters of 8 and of 32 nodes."""
    return simulate(0.01, (8, 32), processes=1)


@pytest.mark.long
def test_the_figures_are_complete(data: Tallies) -> None:
    shown = json.loads(json.dumps(figures(data)))
    assert set(shown) == FIGURES | {"peers"}
    assert set(shown["peers"]) == set(RULES)
    assert all(set(peer) == FIGURES for peer in shown["peers"].values())


@pytest.mark.long
def test_no_goal_is_grossly_missed(data: Tallies) -> None:
    ours = data.sum(OURS)
    assert data.sum(OURS, "slow nodes", GOAL_EFFECT).detection >= 0.9
    assert ours.flagged == 0
    assert ours.kind_right >= 0.9
    assert ours.mean_rounds <= FIRST_ROUNDS + RETEST_ROUNDS
    assert ours.rounds <= FIRST_ROUNDS + RETEST_ROUNDS + FURTHER_ROUNDS


@pytest.mark.long
def test_from_the_goal_on_no_rule_finds_more_without_flagging_healthy_nodes(data: Tallies) -> None:
    for effect in sorted({key[1] for key in data.cells[OURS] if key[1] and key[1] >= GOAL_EFFECT}):
        ours = data.sum(OURS, "slow nodes", effect)
        for rule in RULES:
            theirs = data.sum(rule, "slow nodes", effect)
            assert theirs.flagged or theirs.detection <= ours.detection, (rule, effect)


@pytest.mark.long
def test_the_tables_show_every_rule_fault_and_size(data: Tallies) -> None:
    shown = tables(data, 256)
    assert all(name in shown for name in (OURS, *RULES, *(fault.name for fault in FAULTS), "8 nodes", "32 nodes"))
    assert "the full sweep up to 256 nodes only, for its cost" in shown


@pytest.mark.long
def test_the_same_cell_comes_out_the_same() -> None:
    cell = Cell("slow nodes", 16, GOAL_NOISE, 0.02, GOAL_EFFECT)
    assert run(cell) == run(cell)


JOBS = 20


@needs_slurm
@pytest.mark.parametrize("version", IN_TURN)
def test_a_small_soak_finds_nothing_that_should_not_have_been(version: SlurmVersion) -> None:
    tally = soak(Soak(JOBS, nodes=2, version=version), timeout_s=600.0)
    assert list(json.loads(json.dumps(tally.figures()))) == [
        "jobs",
        "faults",
        "upgrades",
        "reasons",
        "sick_missed",
        "healthy_left_drained",
        "admin_touched",
    ]
    assert tally.jobs >= JOBS
    assert tally.faults >= 3  # one for each node, and one at the end
    assert tally.is_clean, tally
