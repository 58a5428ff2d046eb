"""The checks of pairs on each possible finding of the analysis, and on measurements without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.in_words import slowdown_text
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.normal import Normal
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.pairs import Estimate, Kind, Measurement, PairFault, Reading, pair
from tests.checks.perf.given import of_node

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
AB = pair("a", "b")
USUAL = 400.0  # GB/s
WELL = {"a~b": [USUAL], "a~c": [USUAL], "b~c": [USUAL], "c~d": [USUAL]}
SLOW = Estimate(slower=0.2, low=0.1, high=0.3, measurements=3, partners=2)
EFA = "efa, 32 devices"
OF_A_NODE = ("not_a_straggler", "pairwise_transport", "pairwise_correct")


def campaign(
    readings: Mapping[str, Sequence[float | Reading]] = WELL,
    findings: Sequence[PairFault] = (),
    floor: float | None = None,
    meter: str = "nccl-tests",
    estimates: Sequence[str] = ("a", "b", "c", "d"),
) -> Campaign:
    """A campaign of four nodes with these bandwidths and this result of the analysis."""
    measurements = [
        Measurement(pair(*name.split("~")), number, 2, value if isinstance(value, Reading) else reading(value))
        for name, values in readings.items()
        for number, value in enumerate(values)
    ]
    made = Campaign(Journal(plan(list("abcd"), {}, 0.05, seed=1), {"meter": meter}, {}, tuple(measurements), ""))
    normal = Normal(log(USUAL), log(USUAL), 0.01)
    analysis = Analysis(tuple(findings), normal, dict.fromkeys(estimates, SLOW))
    vars(made).update(analysis=analysis, floor_gb_per_s=floor)
    return made


def reading(busbw: float, **fields: Any) -> Reading:
    """A measurement that succeeded, or that failed because of `cable`."""
    if not busbw:
        return Reading(problem="cable")
    fields = {"is_correct": True, "network": EFA, **fields}
    return Reading(busbw_gb_per_s=busbw, **fields)


def of_pair(made: Campaign) -> Result:
    """The result on the first pair."""
    return evaluate(all_checks()["network.pairwise_busbw"], PairwiseRun((made,)).pairs[0])


def of_a(check: str, made: Campaign, instance_type: str = "p5.48xlarge") -> Result:
    """A check's result on the node a."""
    expect = {"efa": 32 if instance_type.startswith("p5") else 0}
    return of_node(f"network.{check}", PairwiseRun((made,)), "a", instance_type, expect)


@pytest.mark.parametrize(
    ("data", "finding", "floor", "verdict", "message"),
    [
        (WELL, None, None, PASS, ""),
        (WELL, None, USUAL, PASS, ""),
        (WELL, None, USUAL + 1, FAIL, "400 GB/s, 100 % of normal; expected at least 401 GB/s"),
        (WELL, None, USUAL + 0.02, FAIL, "400 GB/s, 100 % of normal; expected at least 400.02 GB/s"),
        ({"a~b": [USUAL - 0.02]}, None, USUAL, FAIL, "399.98 GB/s, 100 % of normal; expected at least 400 GB/s"),
        (WELL, PairFault(Kind.SLOW_LINK, AB.nodes), None, FAIL, "though each node is fast with others"),
        (WELL, PairFault(Kind.INCONCLUSIVE, AB.nodes, words="asked once"), None, INCOMPLETE, "asked once; expected"),
        (WELL, PairFault(Kind.INCONCLUSIVE, tuple("abc"), words="who"), None, INCOMPLETE, "who; expected enough"),
        (
            {"a~b": [USUAL, 0.9 * USUAL]},
            PairFault(Kind.CONFIGURATION, words="8 of 9 measurements are under the floor", pairs=(AB,)),
            USUAL - 1,
            FAIL,
            "again 90 %: 8 of 9 measurements are under the floor; expected at least 399 GB/s",
        ),
        ({"a~b": [190.0]}, PairFault(Kind.CONFIGURATION, pairs=(AB,)), 200.0, FAIL, "normal; expected at least 200"),
        ({"a~b": [300.0]}, PairFault(Kind.SLOW_GROUP, words="rack", pairs=(AB,)), None, FAIL, "rack; expected"),
        (WELL, PairFault(Kind.SLOW_NODE, ("a",), estimate=SLOW, pairs=(AB,)), None, PASS, ""),
        ({"a~b": [300.0]}, PairFault(Kind.SLOW_NODE, ("a",), "", SLOW, pairs=(AB,)), None, CONCERN, "a is 20 % slow"),
        ({"a~b": [0.0]}, PairFault(Kind.FAILING_NODE, ("a",), pairs=(AB,)), None, CONCERN, "measurements with a fail"),
        ({"a~b": [USUAL, 0.0]}, None, None, CONCERN, "again failed (cable): it is as fast as usual at other times"),
        ({"a~b": [300.0, USUAL]}, None, None, CONCERN, "300 GB/s, 75 % of normal; again 100 %: it is as fast as usual"),
        ({"a~b": [0.0]}, None, None, INCOMPLETE, "failed (cable); expected a measurement that succeeds"),
        ({"a~b": [300.0]}, None, None, INCOMPLETE, "not measured often enough to tell why"),
        ({"a~b": [380.0]}, None, None, PASS, ""),
    ],
)  # fmt: skip
def test_a_pair_is_evaluated_by_what_explains_it(
    data: Mapping[str, Sequence[float]], finding: PairFault | None, floor: float | None, verdict: Verdict, message: str
) -> None:
    result = of_pair(campaign(data, [finding] if finding else [], floor))
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    "kind", [Kind.SLOW_NODE, Kind.INCONCLUSIVE, Kind.INTERMITTENT, Kind.SLOW_GROUP, Kind.CONTENTION]
)
def test_a_pair_that_is_faster_than_normal_is_well_whatever_is_found_of_others(kind: Kind) -> None:
    fast = campaign({"a~b": [1.11 * USUAL]}, [PairFault(kind, ("a",), estimate=SLOW, pairs=(AB,))])
    assert of_pair(fast).verdict is PASS


def test_each_end_of_a_slow_pair_that_may_be_at_fault_is_named() -> None:
    findings = [PairFault(Kind.INCONCLUSIVE, (node,), estimate=SLOW, words="more", pairs=(AB,)) for node in ("a", "b")]
    message = of_pair(campaign({"a~b": [300.0]}, findings)).message
    assert "300 GB/s, 75 % of normal: a or b may be at fault" in message
    sure = PairFault(Kind.SLOW_NODE, ("b",), estimate=SLOW, pairs=(AB,))
    message = of_pair(campaign({"a~b": [300.0]}, [findings[0], sure])).message
    assert "300 GB/s, 75 % of normal: b is 20 % slow" in message


@pytest.mark.parametrize(
    ("finding", "verdict", "message"),
    [
        (
            PairFault(Kind.SLOW_NODE, ("a",), estimate=SLOW),
            FAIL,
            "20 % slower than normal (10 to 30 %), 3 measurements",
        ),
        (
            PairFault(Kind.FAILING_NODE, ("a",), failures=3, attempts=4),
            FAIL,
            "3 of 4 measurements failed, whoever the",
        ),
        (
            PairFault(Kind.INTERMITTENT, ("a",), words="3 of 9 are slow"),
            CONCERN,
            "3 of 9 are slow; expected it to be as",
        ),
        (PairFault(Kind.INCONCLUSIVE, ("a",), words="once more"), INCOMPLETE, "this is not certain: once more"),
        (PairFault(Kind.SLOW_NODE, ("b",), estimate=SLOW), PASS, ""),
        (
            PairFault(Kind.SLOW_GROUP, tuple("ab"), words="slow rack"),
            CONCERN,
            "slow rack; expected all pairs to be alike",
        ),
        (
            PairFault(Kind.INCONCLUSIVE, tuple("abc"), words="who of us"),
            INCOMPLETE,
            "who of us; expected enough measurements",
        ),
    ],
)
def test_a_node_is_evaluated_by_its_finding(finding: PairFault, verdict: Verdict, message: str) -> None:
    result = of_a("not_a_straggler", campaign(findings=[finding]))
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("data", "estimates", "verdict", "message"),
    [
        ({"a~b": [0.0, 0.0], "c~d": [USUAL]}, "cd", INCOMPLETE, "all 2 measurements failed: cable; expected one"),
        ({"a~b": [USUAL], "c~d": [USUAL]}, "abcd", INCOMPLETE, "measured with one partner only; expected at least 2"),
        ({"a~b": [USUAL], "a~c": [0.0]}, "abc", INCOMPLETE, "measured with one partner only; expected at least 2"),
        ({"a~b": [USUAL], "a~c": [USUAL]}, "abc", PASS, ""),
        ({"a~b": [USUAL]}, "ab", PASS, ""),  # there is no other node to measure it with
    ],
)
def test_a_node_that_was_hardly_measured_does_not_pass(
    data: Mapping[str, Sequence[float]], estimates: str, verdict: Verdict, message: str
) -> None:
    result = of_a("not_a_straggler", campaign(data, estimates=tuple(estimates)))
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("networks", "meter", "instance_type", "verdict", "message"),
    [
        ([EFA, EFA], "nccl-tests", "p5.48xlarge", PASS, ""),
        ([EFA, "Socket"], "nccl-tests", "p5.48xlarge", FAIL, "NCCL used Socket; expected EFA"),
        ([EFA, "efa, 16 devices"], "nccl-tests", "p5.48xlarge", CONCERN, "NCCL used efa, 16 devices; expected 32"),
        (
            [f"{EFA} and Socket"],
            "nccl-tests",
            "p5.48xlarge",
            FAIL,
            "NCCL used efa, 32 devices and Socket; expected EFA",
        ),
        (
            ["efa", "efa"],
            "nccl-tests",
            "p5.48xlarge",
            INCOMPLETE,
            "used EFA and does not say how many devices; expected 32",
        ),
        (["efa", EFA], "nccl-tests", "p5.48xlarge", PASS, ""),
        (["efa", "efa, 16 devices"], "nccl-tests", "p5.48xlarge", CONCERN, "NCCL used efa, 16 devices; expected 32"),
        (["", ""], "nccl-tests", "p5.48xlarge", INCOMPLETE, "no measurement says which network"),
        (["Socket"], "ib_write_bw", "p5.48xlarge", NA, "measured with ib_write_bw, which chooses its network itself"),
        (["Socket"], "", "p5.48xlarge", NA, "measured with another program"),
        (["Socket"], "nccl-tests", "g5.2xlarge", NA, "g5.2xlarge has no EFA"),
        (["Socket"], "nccl-tests", "", NA, "this node has no EFA"),
    ],
)
def test_the_network_is_what_each_measurement_says(
    networks: Sequence[str], meter: str, instance_type: str, verdict: Verdict, message: str
) -> None:
    made = campaign({"a~b": [reading(USUAL, network=network) for network in networks]}, meter=meter)
    result = of_a("pairwise_transport", made, instance_type)
    assert result.verdict is verdict, result.message
    assert message in result.message


def right(*correct: bool | None) -> list[Reading]:
    return [reading(USUAL, is_correct=is_correct) for is_correct in correct]


@pytest.mark.parametrize(
    ("data", "meter", "verdict", "message"),
    [
        ({"a~b": right(True), "a~c": right(True)}, "nccl-tests", PASS, ""),
        ({"a~b": right(False), "a~c": right(True)}, "nccl-tests", CONCERN, "wrong results with b, right ones with 1"),
        ({"a~b": right(False), "a~c": right(None)}, "nccl-tests", FAIL, "wrong results with 1 of 2 partners"),
        ({"a~b": right(False), "a~c": right(False), "a~d": right(True)}, "nccl-tests", FAIL, "with 2 of 3 partners"),
        ({"a~b": right(None)}, "nccl-tests", INCOMPLETE, "no measurement compared its results"),
        ({"a~b": right(None)}, "ib_write_bw", NA, "ib_write_bw does not compare results"),
        ({"a~b": right(None)}, "", NA, "the program that measured does not compare results"),
    ],
)
def test_results_are_right_with_every_partner(
    data: Mapping[str, Sequence[Reading]], meter: str, verdict: Verdict, message: str
) -> None:
    result = of_a("pairwise_correct", campaign(data, meter=meter))
    assert result.verdict is verdict, result.message
    assert message in result.message


FAILING = [PairFault(Kind.FAILING_NODE, (name,), failures=3, attempts=3) for name in "bc"]
TWO_WRONG = {"a~b": right(False), "a~c": right(False), "a~d": right(True)}
BY_B = [reading(USUAL, is_correct=False, culprit="b", problem="GPU 1 of b")]

BY_A = [reading(USUAL, is_correct=False, culprit="a", problem="GPU 0 of a")]


@pytest.mark.parametrize(
    ("data", "findings", "meter", "verdict", "message"),
    [
        (TWO_WRONG, FAILING, "nccl-tests", CONCERN, "wrong results with b, c, right ones with 1 other"),
        (TWO_WRONG, FAILING[:1], "nccl-tests", CONCERN, "wrong results with b, c, right ones with 1 other"),
        (TWO_WRONG, [PairFault(Kind.FAILING_NODE, ("a",)), *FAILING], "nccl-tests", FAIL, "with 2 of 3 partners"),
        ({"a~b": right(False)}, FAILING, "nccl-tests", INCOMPLETE, "wrong results with b; expected correct ones"),
        ({"a~b": BY_B}, [], "exact", INCOMPLETE, "wrong results with b (GPU 1 of b); expected correct ones"),
        ({"a~b": BY_B * 2, "a~c": right(True)}, [], "exact", CONCERN, "wrong results with b (GPU 1 of b), right ones"),
        ({"a~b": [*BY_B, *right(False)]}, [], "exact", FAIL, "wrong results with 1 of 1 partners (GPU 1 of b)"),
        ({"a~b": BY_B, "a~c": BY_A, "a~d": BY_A}, [], "exact", FAIL, "wrong results with 3 of 3 partners (GPU 0 of a)"),
    ],
)
def test_wrong_results_that_a_partner_explains_do_not_fail_a_node(
    data: Mapping[str, Sequence[Reading]], findings: Sequence[PairFault], meter: str, verdict: Verdict, message: str
) -> None:
    result = of_a("pairwise_correct", campaign(data, findings, meter=meter))
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_the_command_that_is_shown_is_one_that_ran_and_found_this() -> None:
    slow = reading(300.0, command="slow", is_correct=True)
    other = reading(USUAL, command="other", is_correct=False, network="Socket")
    made = campaign({"a~b": [reading(USUAL, command="well")], "a~c": [other], "a~d": [slow]})
    shown = {name: of_a(name, made).evidence.partition(" |")[0] for name in OF_A_NODE}
    assert shown == {"not_a_straggler": "slow", "pairwise_transport": "other", "pairwise_correct": "other"}
    assert of_pair(made).evidence == "well"


@pytest.mark.parametrize(
    ("estimate", "message"),
    [(Estimate(0.2, 0.1, 0.3, 1, 1), "1 measurement with 1 partner"), (SLOW, "3 measurements with 2 partners")],
)
def test_one_measurement_is_not_said_of_several(estimate: Estimate, message: str) -> None:
    text = slowdown_text(PairFault(Kind.SLOW_NODE, ("a",), estimate=estimate))
    assert text.endswith(f", {message}")


def test_how_sure_it_is_is_said_only_of_a_node_that_is_named() -> None:
    estimate = Estimate(0.2, 0.1, 0.3, 3, 2, confidence=0.99999)
    assert slowdown_text(PairFault(Kind.SLOW_NODE, ("a",), estimate=estimate)).endswith(", 99.99 % sure")
    assert slowdown_text(PairFault(Kind.INCONCLUSIVE, ("a",), estimate=estimate)).endswith("with 2 partners")
