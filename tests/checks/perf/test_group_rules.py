"""Results on groups: what each is compared with, whom a failure names, and why a node was in no group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.groups import plan_groups
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.normal import Normal
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.benchmarks.pairwise.redaction import without_names
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import (
    Estimate,
    Failure,
    GroupMeasurement,
    Kind,
    Measurement,
    NodeGroup,
    PairFault,
    Reading,
    pair,
)
from clusterproof.reports.pairs import facts, lines_of_pairs
from tests.checks.perf.given import of_node

PASS, FAIL, CONCERN = Verdict.PASS, Verdict.FAIL, Verdict.CONCERN
INCOMPLETE, NA = Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
USUAL = 360.0
NODES = [f"n{number:02}" for number in range(16)]
KEY = {"instance_type": "p5.48xlarge", "efa": 32, "nodes": 2, "ranks_per_node": 8, "collective": "all_reduce"}
Readings = float | Reading | Sequence[float | Reading]


def group(first: int, size: int) -> NodeGroup:
    return NodeGroup(tuple(NODES[first : first + size]))


def campaign(
    measured: Mapping[NodeGroup, Readings],
    finding: PairFault | None = None,
    absent: Sequence[str] = (),
    which: str = "4,all",
    usual_of_pairs: float = 400.0,
    **about: Any,
) -> Campaign:
    """Sixteen nodes with measurements of these groups."""
    groups = [
        GroupMeasurement(
            each, 1, reading if isinstance(reading, Reading) else Reading(reading, is_correct=True, command="typed")
        )
        for each, readings in measured.items()
        for reading in (readings if isinstance(readings, Sequence) else [readings])
    ]
    fewer = [node for node in NODES if node not in absent and not (finding and node in finding.nodes)]
    journal = Journal(
        plan(NODES, {}, 0.05, seed=1),
        {"meter": "nccl-tests", "groups": "doubling", **about},
        dict.fromkeys(absent, "it was not reached (refused)"),
        tuple(Measurement(pair(*both), 0, 8, Reading(USUAL)) for both in zip(NODES[::2], NODES[1::2], strict=True)),
        about.pop("ended", ""),
        plan_groups(which, fewer, {}) if which else None,
        tuple(groups),
    )
    made = Campaign(journal)
    normal = Normal(log(usual_of_pairs), log(usual_of_pairs), 0.01) if usual_of_pairs else None
    vars(made).update(analysis=Analysis((finding,) if finding else (), normal))
    return made


def of(made: Campaign, name: str = "n00") -> Result:
    return of_node("network.pairwise_groups", PairwiseRun((made,)), name, "p5.48xlarge")


SLOW = Estimate(0.2, 0.1, 0.3, 4)
FOURS = {group(first, 4): USUAL for first in (0, 4, 8, 12)}
ALL = group(0, 16)
MISSING = Reading(problem="all_reduce_perf is not installed", failure=Failure.NO_PROGRAM)


DIED, DIED_01 = Reading(problem="died", culprit="n00"), Reading(problem="died", culprit="n01")
BROKEN, WRONG = Reading(problem="broken"), Reading(problem="3 values are wrong", is_correct=False)
BUSY = Reading(problem="n09: busy", failure=Failure.NOT_AT_FAULT)


@pytest.mark.parametrize(
    ("measured", "verdict", "message"),
    [
        ({**FOURS, ALL: USUAL}, PASS, ""),
        ({**FOURS, ALL: 0.71 * USUAL}, PASS, ""),
        ({**FOURS, ALL: USUAL, group(0, 4): 0.96 * USUAL}, PASS, ""),
        ({**FOURS, ALL: USUAL, group(4, 4): 0.9 * USUAL}, PASS, ""),
        (
            {**FOURS, ALL: USUAL, group(0, 4): 0.9 * USUAL},
            CONCERN,
            "4 nodes (n[00-03]): 324 GB/s; expected 360 GB/s, like the other groups of 4",
        ),
        (
            {**FOURS, ALL: USUAL, group(0, 4): [0.9 * USUAL, USUAL]},
            CONCERN,
            "4 nodes (n[00-03]): 324 GB/s once, and 360 GB/s; expected the same each time",
        ),
        (
            {**FOURS, ALL: [0.5 * USUAL] * 2},
            CONCERN,
            "16 nodes (n[00-15]): 180 GB/s, 50 % of the 360 GB/s of 4 nodes; expected at least 70 %",
        ),
        (
            {**FOURS, ALL: [0.699 * USUAL] * 2},
            CONCERN,
            "16 nodes (n[00-15]): 251.6 GB/s, 69.9 % of the 360 GB/s of 4 nodes; expected at least 70 %",
        ),
        (
            {**dict.fromkeys(FOURS, 100.0), ALL: 100.0},
            CONCERN,
            "4 nodes (n[00-03]): 100 GB/s, 25 % of the 400 GB/s of pairs; expected at least 33 %",
        ),
        ({**FOURS, ALL: [BROKEN, BROKEN]}, INCOMPLETE, "failed on 16 nodes (n[00-15]): broken; expected one that"),
        ({**FOURS, ALL: [BROKEN, USUAL]}, CONCERN, "failed on 16 nodes (n[00-15]): broken; expected it to succeed"),
        ({**FOURS, ALL: [DIED, DIED]}, FAIL, "died; expected every measurement to succeed"),
        ({**FOURS, ALL: [DIED, BROKEN]}, INCOMPLETE, "died; expected one that succeeds"),
        ({**FOURS, ALL: [DIED, USUAL]}, CONCERN, "died; expected it to succeed each time"),
        ({**FOURS, ALL: [DIED_01, DIED_01]}, INCOMPLETE, "died; expected one that succeeds"),
        ({**FOURS, ALL: MISSING}, INCOMPLETE, "is not installed"),
        ({**FOURS, ALL: BUSY}, INCOMPLETE, "n09: busy"),
        ({**FOURS, ALL: [replace(MISSING, culprit="n00")] * 2}, INCOMPLETE, "is not installed"),
        ({**FOURS, ALL: [replace(BUSY, culprit="n00")] * 2}, INCOMPLETE, "n09: busy"),
        ({**FOURS, ALL: WRONG}, INCOMPLETE, "nothing says whose results are wrong on 16 nodes (n[00-15]);"),
        (FOURS, INCOMPLETE, "not measured: groups of 16: the run ended before their turn; expected all groups"),
    ],
)
def test_a_group_is_held_against_its_like_the_smallest_and_pairs(
    measured: Mapping[NodeGroup, Readings], verdict: Verdict, message: str
) -> None:
    result = of(campaign(measured))
    assert result.verdict is verdict, result.message
    assert message in " ".join([result.message, *(finding.message for finding in result.findings)])


def test_with_nothing_to_compare_it_with_no_bandwidth_passes() -> None:
    result = of(campaign({ALL: 1.0}, which="all", usual_of_pairs=0.0))
    assert (result.verdict, result.message) == (
        INCOMPLETE,
        "16 nodes (n[00-15]): 1 GB/s, with nothing to compare it with; expected pairs that succeed, or --baseline",
    )


def test_a_link_that_the_pairs_found_slow_is_named_as_the_reason_of_its_group() -> None:
    link = PairFault(Kind.SLOW_LINK, ("n01", "n02"), estimate=Estimate(0.3, 0.2, 0.4, 4))
    message = of(campaign({**FOURS, ALL: USUAL, group(0, 4): 0.7 * USUAL}, link, which=""), "n03").message
    assert "252 GB/s (slow link n01~n02: 30 % slower than normal" in message


def test_all_that_is_seen_of_a_node_s_groups_is_said() -> None:
    wrong = Reading(0.5 * USUAL, is_correct=False)
    result = of(campaign({**FOURS, group(0, 4): BROKEN, ALL: [wrong, Reading(problem="died")]}))
    for message in (
        "failed on 4 nodes",
        "wrong results on 16 nodes",
        "180 GB/s, 50 % of the 360 GB/s",
        "nodes (n[00-15]): died",
    ):
        assert message in " ".join(finding.message for finding in result.findings)


def test_a_group_has_the_floor_of_so_many_nodes() -> None:
    """16 p5en were published with 369.4 GB/s for 16 GiB; the minimum is 80 % of that."""
    key = {**KEY, "instance_type": "p5en.48xlarge", "efa": 16, "size_bytes": 2**34}
    speeds = (270.0, 295.535, 300.0)
    under, hardly, over = (of(campaign({ALL: busbw}, which="all", key=key)) for busbw in speeds)
    assert (under.verdict, hardly.verdict, over.verdict) == (CONCERN, CONCERN, PASS)
    assert "16 nodes (n[00-15]): 270 GB/s; expected at least 295.5 GB/s" in under.message
    assert "16 nodes (n[00-15]): 295.535 GB/s; expected at least 295.536 GB/s" in hardly.message


@pytest.mark.parametrize(
    ("made", "verdict", "message"),
    [
        (campaign({}, which="", groups=""), NA, "not asked: --groups measures groups of nodes too"),
        (campaign({}, ended="no time"), INCOMPLETE, "measured: groups of 4, 16: no time"),
        (campaign({}, ended=None), INCOMPLETE, "no group of it was measured: groups of 4, 16: the run ended before"),
        (campaign({group(0, 4): USUAL}, which="4,32"), INCOMPLETE, "groups of 32: 16 nodes can be measured together"),
        (campaign({}, absent=["n00"]), INCOMPLETE, "no group of it was measured: it was not reached (refused)"),
        (campaign({ALL: USUAL}, PairFault(Kind.SLOW_NODE, ("n15",), estimate=SLOW)), INCOMPLETE, "groups of 4"),
        (
            campaign({}, PairFault(Kind.SLOW_NODE, ("n00",), estimate=SLOW)),
            NA,
            "left out of the groups: n00 is 20 % slow",
        ),
        (
            campaign({}, PairFault(Kind.SLOW_NODE, tuple(NODES[1:]), estimate=SLOW)),
            INCOMPLETE,
            "groups of 4: 1 node can be",
        ),
    ],
)
def test_a_node_that_was_in_no_group_says_why(made: Campaign, verdict: Verdict, message: str) -> None:
    result = of(made)
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_a_node_that_is_left_over_is_no_fault_of_the_measurement() -> None:
    made = campaign({group(0, 14): USUAL}, which="14")
    assert [of(made, name).verdict for name in ("n13", "n15")] == [PASS, NA]
    assert of(made, "n15").message.startswith("left over: ")


def test_the_curve_is_in_the_terminal_and_on_the_page() -> None:
    made = campaign({**FOURS, group(0, 8): Reading(problem="broken"), ALL: 340.0})
    curve = "4 nodes 360 GB/s, 8 nodes failed, 16 nodes 340 GB/s"
    assert dict(facts(made))["groups"] == curve
    assert f"groups: {curve}" in " ".join(line.strip() for line in lines_of_pairs(PairwiseRun((made,)), 200))


def test_the_command_that_is_shown_is_that_of_the_largest_group() -> None:
    assert of(campaign({**FOURS, ALL: Reading(USUAL, command="on all")})).evidence == "on all"


def test_without_names_no_node_of_a_group_is_named() -> None:
    broken = Reading(problem="n01 died", culprit="n01", command="mpirun --host n01:8")
    shown = {name: f"node-{number}" for number, name in enumerate(NODES)}
    run = without_names(PairwiseRun((campaign({ALL: broken}),)), shown, lambda text: text.replace("n01", "node-1"))
    ((measurement,),) = (made.journal.groups for made in run.campaigns)
    assert set(measurement.group.nodes) == set(shown.values())
    shown_reading = measurement.reading
    assert (shown_reading.problem, shown_reading.culprit) == ("node-1 died", "node-1")
    assert shown_reading.command == "mpirun --host node-1:8"
    ((planned),) = (made.journal.group_plan for made in run.campaigns)
    assert planned
    assert {node for group in planned.groups for node in group} == set(shown.values())
