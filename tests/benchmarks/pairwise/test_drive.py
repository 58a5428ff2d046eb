"""A campaign through a launcher: limited in parallel pairs and in time, with visible progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.launchers import Measured
from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.analysis import analyse
from clusterproof.plugins.benchmarks.pairwise.drive import MIN_FIRST_ROUNDS, Progress, drive
from clusterproof.plugins.benchmarks.pairwise.journal import Journal, JournalWriter, read
from clusterproof.plugins.benchmarks.pairwise.planning import FIRST_ROUNDS, PairPlan, plan
from clusterproof.plugins.benchmarks.pairwise.suspects import RETESTS
from clusterproof.plugins.evidence.pairs import Reading, pair
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.pairwise.launched import RUN_S, Timed
from tests.benchmarks.pairwise.measured import Cluster, names, verdicts

LONG_S = 1e6


@dataclass
class Made(Timed):
    """A launcher over a cluster with known faults."""

    cluster: Cluster = field(default_factory=Cluster)
    places: Mapping[str, str] = field(default_factory=dict)
    ends_after: int | None = None  # batches, after which nothing can be measured

    def measure(self, pairs: Sequence[Any], measured: Measured) -> None:
        """Measure all of them, in reverse order."""
        if self.ends_after is not None and len(self.batches) >= self.ends_after:
            raise Unusable("the partition is gone")
        self.run(pairs)
        for link in reversed(pairs):
            measured(link, self.cluster.read(link, len(pairs), self.places))


@dataclass
class Driven:
    """A finished campaign, and the progress that it showed."""

    path: Path
    launcher: Made
    data: list[Progress] = field(default_factory=list)

    def drive(self, made: PairPlan, budget_s: float = LONG_S, at_once: int = 100) -> Journal:
        """Run a campaign from the beginning, or from the state in the file."""
        journal = read(self.path) if self.path.exists() else Journal(made)
        writer = JournalWriter(self.path, journal)
        try:
            return drive(journal, writer, self.launcher, budget_s, at_once, self.data.append, self.launcher.clock)
        finally:
            writer.close()


@pytest.fixture
def driven(tmp_path: Path) -> Driven:
    """Run a campaign over a cluster with one slow node."""
    return Driven(tmp_path / "pairwise.jsonl", Made(Cluster(nodes={"n003": 0.8})))


PLAN = plan(names(16), {}, 0.0513)


def test_a_campaign_ends_with_the_slow_node_named_and_nothing_left_out(driven: Driven) -> None:
    journal = driven.drive(PLAN)
    assert [finding.nodes for finding in analyse(journal.measurements, PLAN.settings).findings] == [("n003",)]
    assert journal.ended == ""
    assert read(driven.path) == journal


def test_pairs_of_a_round_run_together(driven: Driven) -> None:
    journal = driven.drive(PLAN)
    assert driven.launcher.batches[:FIRST_ROUNDS] == PLAN.first
    assert {measurement.at_once for measurement in journal.measurements if measurement.round < FIRST_ROUNDS} == {8}


def test_no_more_pairs_run_at_once_than_may(driven: Driven) -> None:
    journal = driven.drive(PLAN, at_once=3)
    assert list(map(len, driven.launcher.batches[:6])) == [3, 3, 2, 3, 3, 2]
    assert max(measurement.at_once for measurement in journal.measurements) == 3
    batches = {(measurement.round, measurement.pair): measurement.at_once for measurement in journal.measurements}
    assert all(batches[0, link] == len(batch) for batch in driven.launcher.batches[:3] for link in batch)


def test_every_measurement_is_on_the_disk_before_the_next_batch(driven: Driven) -> None:
    seen: list[int] = []

    class Looking(Made):
        """Reads the file before each batch."""

        def measure(self, pairs: Sequence[Any], measured: Measured) -> None:
            seen.append(len(read(driven.path).measurements))
            super().measure(pairs, measured)

    driven.launcher = Looking(driven.launcher.cluster)
    driven.drive(PLAN, at_once=3)
    assert [after - before for before, after in pairwise(seen)] == list(map(len, driven.launcher.batches[:-1]))


def test_what_was_measured_is_kept_when_nothing_more_can_be(driven: Driven) -> None:
    driven.launcher.ends_after = 5
    with pytest.raises(Unusable):
        driven.drive(PLAN, at_once=3)
    journal = read(driven.path)
    assert len(journal.measurements) == 3 + 3 + 2 + 3 + 3
    assert journal.ended is None


@pytest.mark.long
@pytest.mark.parametrize("batches", range(19))
def test_a_run_that_was_broken_off_goes_on_where_it_was_and_repeats_nothing(driven: Driven, batches: int) -> None:
    driven.launcher.ends_after = batches
    with pytest.raises(Unusable):
        driven.drive(PLAN, at_once=3)
    driven.launcher.ends_after = None
    journal = driven.drive(PLAN, at_once=3)
    measured = [(measurement.round, measurement.pair) for measurement in journal.measurements]
    assert len(measured) == len(set(measured))
    assert set(PLAN.first[0]) == {link for number, link in measured if not number}
    assert [finding.nodes for finding in analyse(journal.measurements, PLAN.settings).findings] == [("n003",)]


def test_what_has_ended_is_not_begun_again(driven: Driven) -> None:
    journal = driven.drive(PLAN)
    driven.launcher.batches.clear()
    again = driven.drive(PLAN)
    assert not driven.launcher.batches
    assert again.measurements == journal.measurements


def test_with_too_little_time_there_are_fewer_first_rounds_so_that_suspects_are_asked_again(driven: Driven) -> None:
    journal = driven.drive(PLAN, budget_s=(RETEST_ROUNDS + 3) * RUN_S)
    assert journal.plan.first_rounds == 3
    assert journal.ended == "first rounds 4 to 4 (8 pairs)"
    assert max(measurement.round for measurement in journal.measurements) == 3 + RETESTS - 1
    assert [finding.nodes for finding in analyse(journal.measurements, journal.plan.settings).findings] == [("n003",)]


def test_how_many_first_rounds_there_is_time_for_is_kept_for_those_who_resume(driven: Driven) -> None:
    journal = driven.drive(PLAN, budget_s=(RETEST_ROUNDS + 3) * RUN_S)
    assert read(driven.path).plan == journal.plan


def test_even_with_hardly_any_time_there_are_two_first_rounds(driven: Driven) -> None:
    journal = driven.drive(PLAN, budget_s=2 * RUN_S)
    assert journal.plan.first_rounds == MIN_FIRST_ROUNDS
    assert len(driven.launcher.batches) == 2
    assert journal.ended
    assert journal.ended.startswith("first rounds 3 to 4 (16 pairs); ")
    assert "of round 3 (" in journal.ended
    assert journal.ended.endswith(", and what would have followed")


@pytest.mark.long
def test_the_budget_is_not_passed_by_a_batch_that_would_not_fit(driven: Driven) -> None:
    for batches in range(1, 15):
        driven.launcher = Made(Cluster(nodes={"n003": 0.8}))
        driven.path.unlink(missing_ok=True)
        driven.drive(PLAN, budget_s=batches * RUN_S + 1, at_once=4)
        assert driven.launcher.now_s <= batches * RUN_S


def test_what_is_left_out_is_said(driven: Driven) -> None:
    journal = driven.drive(PLAN, budget_s=RUN_S, at_once=4)
    left = PLAN.first[0][4:]
    assert journal.ended
    assert f"4 pairs of round 1 ({', '.join(map(str, left))}), and what would have followed" in journal.ended


@pytest.mark.long
def test_suspects_come_before_pairs_of_good_nodes_so_that_these_are_left_out_first(driven: Driven) -> None:
    driven.drive(PLAN)
    retests = driven.launcher.batches[FIRST_ROUNDS:]
    assert len(retests) == RETESTS
    assert all("n003" in batch[0].nodes for batch in retests)


def test_pairs_that_a_person_asks_for_are_never_made_fewer_to_ask_again(driven: Driven) -> None:
    pairs = (pair("n000", "n001"), pair("n001", "n002"), pair("n002", "n003"))
    journal = driven.drive(replace(PLAN, asked=pairs), budget_s=2 * RUN_S, at_once=1)
    assert [measurement.pair for measurement in journal.measurements] == [pairs[0], pairs[2]]
    assert journal.ended == "1 pairs of round 2 (n001~n002), and what would have followed"


@pytest.mark.long
def test_progress_is_reported_after_each_batch(driven: Driven) -> None:
    driven.drive(PLAN, at_once=4)
    assert driven.data[0] == Progress(1, FIRST_ROUNDS + RETEST_ROUNDS, 4, 15 * RUN_S)
    assert driven.data[1] == Progress(1, FIRST_ROUNDS + RETEST_ROUNDS, 8, 14 * RUN_S)
    assert [progress.measured for progress in driven.data] == sorted(progress.measured for progress in driven.data)
    assert all(before.seconds_left >= after.seconds_left for before, after in pairwise(driven.data))
    assert len(driven.data) == len(driven.launcher.batches)


@pytest.mark.long
def test_a_pair_that_fails_stops_nobody(driven: Driven) -> None:
    driven.launcher.cluster = Cluster(dead={"n003"})
    journal = driven.drive(PLAN)
    assert ("failing node", "n003") in verdicts(analyse(journal.measurements, PLAN.settings).findings)


@dataclass
class Interrupted(Made):
    """The user presses Ctrl-C during a round: one pair has finished, another is interrupted and reports that."""

    in_round: int = 1

    def measure(self, pairs: Sequence[Any], measured: Measured) -> None:
        if len(self.batches) < self.in_round:
            return super().measure(pairs, measured)
        measured(pairs[0], self.cluster.read(pairs[0], len(pairs), self.places))
        measured(pairs[1], Reading(problem="signal 9 ended it"))
        self.late: Callable[[], None] = lambda: measured(pairs[2], Reading(problem="signal 9 ended it"))
        raise KeyboardInterrupt


def test_pairs_that_were_interrupted_are_not_kept_as_failures(driven: Driven) -> None:
    driven.launcher = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        driven.drive(PLAN)
    driven.launcher.late()
    first, second = PLAN.first[:2]
    kept = read(driven.path)
    assert [(measurement.pair, measurement.reading.problem) for measurement in kept.measurements] == [
        (link, "") for link in (*reversed(first), second[0])
    ]
    driven.launcher = Made()
    assert {measurement.reading.problem for measurement in driven.drive(PLAN).measurements} == {""}


def test_readings_are_kept_as_they_are(driven: Driven) -> None:
    reading = Reading(1.5, network="eth0", ranks=2, hosts=("a", "b"))

    class Same(Made):
        """Always returns the same reading."""

        def measure(self, pairs: Sequence[Any], measured: Measured) -> None:
            self.batches.append(tuple(pairs))
            for link in pairs:
                measured(link, reading)

    driven.launcher = Same()
    journal = driven.drive(PLAN)
    assert (
        {measurement.reading for measurement in read(driven.path).measurements}
        == {reading}
        == {measurement.reading for measurement in journal.measurements}
    )


def test_a_file_is_not_over_before_the_groups_that_follow(tmp_path: Path) -> None:
    path = tmp_path / "pairwise.jsonl"
    launcher, journal = Made(), Journal(plan(names(4), {}, 0.0513))
    writer = JournalWriter(path, journal)
    drive(journal, writer, launcher, LONG_S, 100, lambda _: None, launcher.clock, groups_follow=True)
    writer.close()
    assert read(path).measurements
    assert read(path).ended is None
