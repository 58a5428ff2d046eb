"""Groups of nodes: which are measured, in what order, how often, and what each is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.launchers import Measured
from clusterproof.plugins.benchmarks.pairwise import groups
from clusterproof.plugins.benchmarks.pairwise.drive import drive_groups
from clusterproof.plugins.benchmarks.pairwise.groups import (
    GroupLimits,
    GroupPlan,
    MeasuredGroups,
    next_groups,
    plan_groups,
)
from clusterproof.plugins.benchmarks.pairwise.journal import Journal, JournalWriter, read
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.evidence.pairs import GroupMeasurement, NodeGroup, Reading
from clusterproof.plugins.options import perf_table
from tests.benchmarks.pairwise.launched import Timed
from tests.benchmarks.pairwise.measured import names, racks

BUSBW_GB_PER_S = 360.0
Read = Callable[[NodeGroup, int], Reading]


def plan(count: int, which: str = "doubling", place: int = 0, most_nodes: int = 1000) -> GroupPlan:
    nodes = names(count)
    return plan_groups(which, nodes, racks(nodes, place) if place else {}, most_nodes)


LIMITS = GroupLimits(slower=0.05, least_share=0.7, least_of_pairs=0.33, pairs_gb_per_s=400.0)


def well(_group: NodeGroup, _times: int) -> Reading:
    return Reading(BUSBW_GB_PER_S)


def share(nodes: int, of: str, value: float) -> Read:
    """Give the group of this size that contains the node this share of the normal bandwidth."""
    return lambda group, _: Reading(
        BUSBW_GB_PER_S * (value if len(group.nodes) == nodes and of in group.nodes else 1.0)
    )


@dataclass
class Made(Timed):
    """A launcher of groups, with the result of each."""

    read: Read = well

    def measure(self, together: Sequence[Any], measured: Measured) -> None:
        """Measure all of them."""
        times = Counter(group for batch in self.batches for group in batch)
        self.run(together)
        for group in together:
            measured(group, self.read(group, times[group]))

    @property
    def sizes(self) -> list[int]:
        """The group sizes in each batch."""
        return [len(batch[0].nodes) for batch in self.batches]


def driven(
    path: Path, made: GroupPlan, launcher: Made, budget_s: float = 1e6, before: Journal | None = None
) -> Journal:
    """The result, read back from the file."""
    journal = before or Journal(PairPlan(names(64), {}, 0.05), ended="")
    writer = JournalWriter(path, journal)
    whole = drive_groups(journal, writer, launcher, made, LIMITS, budget_s, lambda _: None, launcher.clock)
    writer.close()
    assert (read(path).group_plan, read(path).groups) == (whole.group_plan, whole.groups)
    assert read(path).ended == whole.ended
    return whole


@pytest.mark.parametrize(
    ("count", "which", "most_nodes", "sizes", "left_out"),
    [
        (64, "doubling", 1000, [4, 8, 16, 32, 64], ""),
        (100, "doubling", 1000, [4, 8, 16, 32, 64, 100], ""),
        (100, "doubling", 20, [4, 8, 16], ""),
        (4, "doubling", 1000, [4], ""),
        (3, "doubling", 1000, [3], ""),
        (2, "doubling", 1000, [], "groups of 3: 2 nodes can be measured together"),
        (64, "all", 1000, [64], ""),
        (64, "all", 32, [], "groups of 64: 32 nodes may be loaded at once"),
        (64, "4,16,all", 1000, [4, 16, 64], ""),
        (64, "16,4,4", 1000, [4, 16], ""),
        (8, "4,16", 1000, [4], "groups of 16: 8 nodes can be measured together"),
    ],
)
def test_groups_have_the_sizes_that_were_asked_for_and_what_cannot_be_is_said(
    count: int, which: str, most_nodes: int, sizes: list[int], left_out: str
) -> None:
    made = plan(count, which, most_nodes=most_nodes)
    assert list(made.by_size) == sizes
    assert made.left_out.startswith(left_out)
    assert bool(made.left_out) == bool(left_out)


def test_the_options_words_are_the_plans() -> None:
    options = (perf_table.DOUBLING, perf_table.ALL, perf_table.MIN_NODES)
    assert options == (groups.DOUBLING, groups.ALL, groups.MIN_NODES)


def test_groups_are_of_one_place_where_they_fit_into_it() -> None:
    made = plan(16, place=8)
    assert [{made.places[node] for node in group} for group in made.by_size[8]] == [{"r0"}, {"r1"}]


@given(st.integers(3, 40), st.sampled_from(["doubling", "all", "3,5", "4,all"]))
def test_no_node_is_in_two_groups_of_a_size_and_fewer_are_left_over_than_a_group_has(count: int, which: str) -> None:
    made = plan(count, which)
    for size, of_size in made.by_size.items():
        nodes = [node for group in of_size for node in group]
        assert len(set(nodes)) == len(nodes) > count - size


def test_where_all_is_well_each_size_is_measured_once_and_its_groups_at_the_same_time(tmp_path: Path) -> None:
    launcher = Made()
    journal = driven(tmp_path / "pairwise.jsonl", plan(16), launcher)
    assert [(len(batch), len(batch[0].nodes)) for batch in launcher.batches] == [(4, 4), (2, 8), (1, 16)]
    assert {measurement.at_once for measurement in journal.groups if len(measurement.group.nodes) == 4} == {4}
    assert MeasuredGroups(journal.groups).description() == "4 nodes 360 GB/s, 8 nodes 360 GB/s, 16 nodes 360 GB/s"


@pytest.mark.parametrize(
    ("read_", "again"),
    [
        (share(4, "n005", 0.9), 4),
        (share(4, "n005", 0.96), 0),
        (share(16, "n000", 0.6), 16),
        (share(16, "n000", 0.75), 0),
        (lambda group, _: Reading(problem="no route" if len(group.nodes) == 8 else "", busbw_gb_per_s=None), 4),
        (lambda group, _: Reading(BUSBW_GB_PER_S, is_correct=len(group.nodes) != 8), 8),
    ],
    ids=["slower than its like", "within what is usual", "all slower", "a little slower", "failed", "wrong"],
)
def test_a_size_of_which_anything_is_low_is_measured_once_more(tmp_path: Path, read_: Read, again: int) -> None:
    launcher = Made(read_)
    driven(tmp_path / "pairwise.jsonl", plan(16), launcher)
    assert (launcher.sizes.count(again) == 2) if again else launcher.sizes == [4, 8, 16]
    assert max(Counter(launcher.sizes).values()) <= 2


def test_no_more_nodes_are_loaded_at_once_than_the_pairs_that_a_person_allows(tmp_path: Path) -> None:
    launcher = Made()
    driven(tmp_path / "pairwise.jsonl", plan(16, most_nodes=8), launcher)
    assert [len(batch) * len(batch[0].nodes) for batch in launcher.batches] == [8, 8, 8, 8]


def test_what_there_is_no_time_for_is_said(tmp_path: Path) -> None:
    journal = driven(tmp_path / "pairwise.jsonl", plan(64), Made(), budget_s=25.0)
    assert journal.ended == "no time for groups of 16 nodes and more"
    none = driven(tmp_path / "other.jsonl", plan(64), Made(), budget_s=-1.0)
    assert (none.groups, none.ended) == ((), "no time for groups of 4 nodes and more")


def test_what_was_measured_before_an_interruption_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "pairwise.jsonl"
    driven(path, plan(16), Made(), budget_s=15.0)
    launcher = Made()
    journal = driven(path, plan(16), launcher, before=read(path))
    assert launcher.sizes == [8, 16]
    assert [len(measurement.group.nodes) for measurement in journal.groups] == [4, 4, 4, 4, 8, 8, 16]


def test_two_groups_of_a_size_have_no_third_to_say_which_is_slow() -> None:
    measured = tuple(GroupMeasurement(group, 2, share(8, "n000", 0.5)(group, 0)) for group in plan(16).by_size[8])
    assert [MeasuredGroups(measured).others_gb_per_s(measurement.group) for measurement in measured] == [None, None]


def test_groups_across_racks_are_compared_with_one_another_alone() -> None:
    made = plan(36, place=6)
    crossing = [group for group in made.by_size[4] if len({made.places[node] for node in group}) > 1]
    assert len(crossing) == 3
    measured = MeasuredGroups(
        tuple(
            GroupMeasurement(group, 9, Reading(BUSBW_GB_PER_S * (0.9 if group in crossing else 1.0)))
            for group in made.by_size[4]
        ),
        made.places,
    )
    assert {measured.others_gb_per_s(group) for group in crossing} == {0.9 * BUSBW_GB_PER_S}


def test_groups_that_are_planned_no_more_are_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pairwise.jsonl"
    first = driven(path, plan(8, "4"), Made())
    without = plan_groups("4", [node for node in names(8) if node != "n001"], {})
    again = driven(path, without, Made(), before=first)
    assert {measurement.group for measurement in again.groups} == set(without.groups)


def test_groups_that_have_a_small_share_of_what_pairs_have_are_measured_once_more(tmp_path: Path) -> None:
    launcher = Made(lambda _group, _times: Reading(100.0))
    driven(tmp_path / "pairwise.jsonl", plan(16), launcher)
    assert launcher.sizes == [4, 4, 8, 8, 16, 16]


def test_groups_of_three_are_no_measure_for_larger_ones() -> None:
    def measured(size: int, busbw: float) -> GroupMeasurement:
        return GroupMeasurement(NodeGroup(names(size)), 1, Reading(busbw))

    both = MeasuredGroups((measured(3, 500.0), measured(8, 200.0)))
    assert both.smallest == (8, 200.0)
    assert next_groups(plan(8, "all"), LIMITS, both.measurements) == ()
