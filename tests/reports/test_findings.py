"""Results grouped by what to do about them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.result import HARDWARE_ACTIONS, Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import headline
from clusterproof.reports.findings import findings, missing_evidence
from clusterproof.reports.formats.junit import suites
from clusterproof.reports.formats.markdown import annotation_lines, markdown
from clusterproof.reports.formats.prometheus import prometheus
from clusterproof.reports.formats.text import text
from clusterproof.reports.page import finding_block
from clusterproof.reports.to_do import shared_finding, to_do_line
from tests.reports.reported import run_of

NAMES = st.from_regex(r"[a-z]{1,3}-?[0-9]{1,4}(-[0-9]{1,2})?", fullmatch=True)
RESULTS = st.lists(
    st.builds(
        Result,
        check=st.sampled_from(["gpu.ecc", "node.reachable", "host.word"]),
        node=NAMES,
        verdict=st.sampled_from(Verdict),
        message=st.sampled_from(["it is bad; expected good", "it is odd", "one\ntwo", ""]),
        cause=st.sampled_from(["", "unreachable: refused"]),
    ),
    max_size=60,
    unique_by=lambda result: (result.check, result.node),
)


def result(node: str, verdict: Verdict, check: str = "host.word", **more: str) -> Result:
    return Result(check, node, verdict, **more)  # type: ignore[arg-type]


def results(**verdicts: Verdict) -> list[Result]:
    return [result(node, verdict) for node, verdict in verdicts.items()]


@pytest.mark.long
@given(RESULTS)
def test_no_node_is_lost_by_folding(data: list[Result]) -> None:
    for verdict in (Verdict.FAIL, Verdict.CONCERN):
        grouped = findings(data, verdict, PACKAGED)
        named = {(finding.first.check, node) for finding in grouped for node in expand(finding.nodes)}
        assert named == {(entry.check, entry.node) for entry in data if entry.verdict is verdict}
    left = {(check, node) for gap in missing_evidence(data) for check in gap.checks for node in expand(gap.nodes)}
    assert left >= {(entry.check, entry.node) for entry in data if entry.verdict is Verdict.INCOMPLETE}
    assert sum(len(gap.results) for gap in missing_evidence(data)) == sum(
        entry.verdict is Verdict.INCOMPLETE for entry in data
    )


@given(RESULTS)
def test_no_line_is_lost_by_folding(data: list[Result]) -> None:
    for finding in findings(data, Verdict.FAIL, PACKAGED):
        lines = [line.partition(": ") for line in finding.lines]
        pairs = {(node, text) for nodes, _, text in lines for node in expand(nodes)}
        assert pairs == {(entry.node, text) for entry in finding.results for text in entry.message.split("\n")}


@pytest.mark.long
@given(RESULTS)
def test_the_headline_counts_every_node_once_by_its_worst_verdict(data: list[Result]) -> None:
    line = headline(data)
    numbers = [int(word) for word in line.replace(":", "").split() if word.isdigit()]
    nodes = {entry.node for entry in data}
    assert numbers[0] == len(nodes) == sum(numbers[1:])
    failed = {entry.node for entry in data if entry.verdict is Verdict.FAIL}
    assert (f"{len(failed)} failed" in line) == bool(failed)


@pytest.mark.parametrize(
    ("failed", "evaluated", "suspected"),
    [(2, 4, True), (1, 4, False), (4, 4, True), (3, 3, False), (3, 7, False), (4, 7, True), (500, 1000, True)],
)
def test_what_half_of_at_least_four_nodes_share_is_probably_configuration(
    failed: int, evaluated: int, suspected: bool
) -> None:
    verdicts = [Verdict.FAIL] * failed + [Verdict.PASS] * (evaluated - failed)
    folded = results(**{f"n{number}": verdict for number, verdict in enumerate(verdicts)})
    (finding,) = findings(folded, Verdict.FAIL, PACKAGED)
    assert finding.is_probably_configuration is suspected
    assert finding.suspicion == (
        f"{failed} of {evaluated:,} nodes alike: probably configuration, not hardware" if suspected else ""
    )


@pytest.mark.parametrize("action", HARDWARE_ACTIONS)
def test_what_half_of_the_nodes_share_is_said_beside_a_remedy_of_hardware_without_denying_it(action: str) -> None:
    evaluated = [result(f"n{number}", Verdict.FAIL, action=action) for number in range(4)]
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.suspicion == "4 of 4 nodes alike: look first for what they share: image, driver, threshold, rack"


def test_a_site_suspects_configuration_from_numbers_of_its_own() -> None:
    evaluated, own = results(n1=Verdict.FAIL, n2=Verdict.FAIL), Catalog({"configuration.suspected_minimum_nodes": 2})
    assert [findings(evaluated, Verdict.FAIL, catalog)[0].is_probably_configuration for catalog in (PACKAGED, own)] == [
        False,
        True,
    ]


def test_a_node_that_the_check_does_not_apply_to_is_not_counted() -> None:
    evaluated = results(n1=Verdict.FAIL, n2=Verdict.PASS, n3=Verdict.NOT_APPLICABLE, n4=Verdict.NOT_APPLICABLE)
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.where(finding.nodes) == "1 of 2 nodes (n1)"
    assert not finding.is_probably_configuration


def test_devices_are_counted_in_the_fields_words() -> None:
    evaluated = [
        Result("gpu.ecc", "gpu003", Verdict.FAIL, subject="gpu", devices=("GPU 1", "GPU 5")),
        Result("gpu.ecc", "gpu007", Verdict.FAIL, subject="gpu", devices=("GPU 2",)),
        Result("gpu.ecc", "gpu008", Verdict.PASS, subject="gpu"),
    ]
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.where(finding.nodes) == "2 of 3 nodes (gpu[003,007]), 3 GPUs"


def test_nodes_that_say_the_same_share_a_line() -> None:
    evaluated = [result(f"gpu{number}", Verdict.FAIL, message="14 errors; expected 0") for number in (3, 4, 9)]
    evaluated.append(result("gpu5", Verdict.FAIL, message="2 errors; expected 0"))
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.lines == ["gpu[3-4,9]: 14 errors; expected 0", "gpu5: 2 errors; expected 0"]


def test_what_is_to_be_done_first_comes_first_and_then_what_most_nodes_have() -> None:
    evaluated = [
        *(result(f"n{number}", Verdict.FAIL, "node.reachable", cause="unreachable: refused") for number in range(5)),
        result("n1", Verdict.FAIL, "host.one", action="fix configuration"),
        *(result(f"n{number}", Verdict.FAIL, "host.three", action="fix configuration") for number in (1, 2, 3)),
        result("n1", Verdict.FAIL, "gpu.one", action="replace"),
    ]
    ordered = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert [finding.first.check for finding in ordered] == ["gpu.one", "host.three", "host.one", "node.reachable"]


def test_nodes_that_were_not_reached_are_the_first_gap() -> None:
    evaluated = [
        *(result(f"n{number}", Verdict.INCOMPLETE, cause="nvml did not answer") for number in range(3)),
        result("n4", Verdict.INCOMPLETE, cause="unreachable: refused"),
    ]
    assert [gap.cause for gap in missing_evidence(evaluated)] == ["unreachable: refused", "nvml did not answer"]


def test_a_line_that_is_shortened_has_whole_names_and_whole_words() -> None:
    evaluated = [result(f"gpu{number:03d}", Verdict.FAIL, message="much " * 50) for number in range(0, 200, 2)]
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.lines_within(60) == ["gpu[000,002,004] and 97 more: much much much much much much…"]
    assert finding.lines_within(60_000) == finding.lines


def test_nodes_that_are_not_reached_for_several_reasons_have_a_remedy_for_each() -> None:
    causes = {"n1": "timed out", "n2": "refused", "n3": "refused"}
    evaluated = [
        Result(
            "node.reachable",
            node,
            Verdict.FAIL,
            cause=f"unreachable: {cause}",
            evidence=f"ssh {node}",
            remedy=f"remedy of {cause}: {node}",
        )
        for node, cause in causes.items()
    ]
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert [separate.remedy for separate in finding.of_each_cause] == [
        "remedy of timed out: n1",
        "remedy of refused: n2",
    ]
    page = finding_block(finding, Verdict.FAIL)
    summary = markdown(run_of(evaluated))
    for shown in (re.sub("<[^>]*>", " ", page), summary.replace("`", "").replace("*", "").replace(":", "")):
        text = " ".join(shown.replace(":", "").lower().split())
        assert "see it ssh n1 do remedy of timed out n1 see it ssh n2 do remedy of refused n2" in text
    (annotation,) = annotation_lines(evaluated, PACKAGED)
    assert "%0Ado: remedy of timed out: n1%0Ado: remedy of refused: n2%0A" in annotation
    (failure,) = ET.fromstring(suites(run_of(evaluated))).iter("failure")
    assert re.findall("^(?:nodes|do): .*", failure.text or "", re.MULTILINE) == [
        *("nodes: n1", "do: remedy of timed out: n1"),
        *("nodes: n[2-3]", "do: remedy of refused: n2"),
    ]
    (finding,) = findings([result(node, Verdict.FAIL) for node in causes], Verdict.FAIL, PACKAGED)
    assert len(finding.of_each_cause) == 1


def test_two_tests_of_one_id_have_the_remedy_of_each() -> None:
    both = [result("n1", Verdict.FAIL, "host.fan", remedy=f"Turn the fan in the {side}.") for side in ("front", "back")]
    (finding,) = findings(both, Verdict.FAIL, PACKAGED)
    assert [separate.remedy for separate in finding.of_each_cause] == [
        "Turn the fan in the front.",
        "Turn the fan in the back.",
    ]


def test_a_gap_of_several_ranks_begins_with_the_first_and_lists_the_others() -> None:
    message = "rank 0: its 40 steps vary; expected 96\nrank 2: its 40 steps vary; expected 80"
    evaluated = [result("run", Verdict.INCOMPLETE, "run.slow_rank", message=message)]
    (gap,) = missing_evidence(evaluated)
    assert gap.cause == "rank 0: its 40 steps vary; expected 96"
    assert gap.messages == ["rank 2: its 40 steps vary; expected 80"]
    for report in (markdown, text):
        assert "rank 0: its 40 steps vary; expected 96 (and 1 more line)" in report(run_of(evaluated))


def test_each_cause_for_which_a_check_is_incomplete_is_a_gap_in_every_form() -> None:
    gaps = [Finding(Verdict.INCOMPLETE, f"{name} unread", cause=f"{name} did not answer") for name in ("nvml", "lspci")]
    evaluated = [
        with_findings(result("n1", Verdict.INCOMPLETE, "gpu.one"), grouped(gaps)),
        result("n1", Verdict.PASS, "gpu.two"),
    ]
    assert [gap.cause for gap in missing_evidence(evaluated)] == ["lspci did not answer", "nvml did not answer"]
    assert to_do_line(evaluated) == "NOT PROVEN n1 (nvml did not answer, lspci did not answer) · 0 fit"
    for report in (markdown, text, suites):
        shown = report(run_of(evaluated, junit_cases="node"))
        assert "nvml did not answer" in shown
        assert "lspci did not answer" in shown


def test_what_one_cause_left_open_is_one_gap() -> None:
    evaluated = [
        result("n1", Verdict.INCOMPLETE, "gpu.one", cause="unreachable: refused", message="not reached"),
        result("n2", Verdict.INCOMPLETE, "gpu.two", cause="unreachable: refused", message="not reached"),
        result("n3", Verdict.INCOMPLETE, "gpu.one", message="may not be read"),
    ]
    assert [(gap.cause, gap.nodes, gap.checks, gap.what) for gap in missing_evidence(evaluated)] == [
        ("unreachable: refused", "n[1-2]", ("gpu.one", "gpu.two"), "2 checks"),
        ("may not be read", "n3", ("gpu.one",), "gpu.one"),
    ]
    assert [gap.messages for gap in missing_evidence(evaluated)] == [["not reached"], []]


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ({"n1": Verdict.PASS}, "1 node: 1 fit"),
        ({"n1": Verdict.CONCERN, "n2": Verdict.PASS}, "2 nodes: 2 fit"),
        ({"n1": Verdict.NOT_APPLICABLE}, "1 node: 1 not checked: no check applies"),
        (
            {"n1": Verdict.CONCERN, "n2": Verdict.NOT_APPLICABLE},
            "2 nodes: 1 fit, 1 not checked: no check applies",
        ),
        ({"n1": Verdict.FAIL, "n2": Verdict.PASS}, "2 nodes: 1 fit, 1 failed"),
        ({"n1": Verdict.INCOMPLETE}, "1 node: 1 not proven (evidence is missing)"),
    ],
)
def test_the_headline(verdicts: dict[str, Verdict], words: str) -> None:
    assert headline(results(**verdicts)) == words


def test_the_headline_of_checks_of_the_cluster_that_do_not_apply() -> None:
    of_cluster = Result("control_plane.quotas", "c", Verdict.NOT_APPLICABLE, subject="cluster")
    assert headline([of_cluster]) == "cluster-wide checks: none applies"
    assert headline([of_cluster, *results(n1=Verdict.PASS)]) == "1 node: 1 fit"


def test_a_node_counts_once_however_often_a_test_with_parameters_ran_on_it() -> None:
    of_hardware = {"action": HARDWARE_ACTIONS[0], "title": "Word"}
    evaluated = [result(node, Verdict.FAIL, **of_hardware) for node in ("gpu1", "gpu2") for _ in range(2)]
    evaluated += [result("gpu3", Verdict.PASS), result("gpu3", Verdict.PASS)]
    (finding,) = findings(evaluated, Verdict.FAIL, PACKAGED)
    assert finding.where(finding.nodes) == "2 of 3 nodes (gpu[1-2])"
    assert [finding.suspicion for finding in findings(evaluated[:4], Verdict.FAIL, PACKAGED)] == [""]
    assert to_do_line(evaluated[:4]) == "REPLACE gpu[1-2] (word) · 0 fit"
    assert 'results{cluster="prod",check="host.word",verdict="fail"} 2' in prometheus(run_of(evaluated))
    others = [result(f"gpu{number}", Verdict.FAIL, f"host.{number}") for number in (4, 5, 6)]
    assert shared_finding([*evaluated, *others]) == ""
