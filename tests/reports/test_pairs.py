"""Pairs in the reports: they are no nodes, and what was measured and found between nodes is shown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clusterproof.plugins.benchmarks.meters.baseline import BaselineFigure, Stack
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.result import ALL_PAIRS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import headline
from clusterproof.reports.findings import findings
from clusterproof.reports.formats.html import document
from clusterproof.reports.formats.junit import suites
from clusterproof.reports.formats.pairs_csv import measurements_csv
from clusterproof.reports.formats.prometheus import prometheus
from clusterproof.reports.matrix import matrix
from clusterproof.reports.pairs import lines_of_pairs
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import again
from tests.benchmarks.pairwise.pair_faults import PAIR_FAULTS, PairFault
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.reports.page import Page
from tests.reports.reported import result, run_of
from tests.reports.sections import FAULTS, SLOW, page, run, section, words_of

PAIR = "n0001~n0002"


def verdicts(*data: Verdict, has_node: bool = True) -> Run:
    """A node that passes, and pairs with these verdicts."""
    results = [result("network.not_a_straggler", "n0001")] if has_node else []
    results += [
        result("network.pairwise_busbw", f"n0001~n{number:04}", verdict, "slow; expected fast", subject="pair")
        for number, verdict in enumerate(data, 2)
    ]
    return run_of(results, data=[])


@pytest.mark.parametrize(
    ("data", "has_node", "words"),
    [
        ([Verdict.PASS], True, "1 node: 1 fit"),
        ([Verdict.PASS, Verdict.FAIL], True, "1 node: 1 fit; 2 pairs of nodes: 1 failed"),
        ([Verdict.INCOMPLETE], True, "1 node: 1 fit; 1 pair of nodes: 1 not proven"),
        ([Verdict.PASS], False, "1 pair of nodes: fit"),
        ([Verdict.NOT_APPLICABLE], False, "1 pair of nodes: not checked: no check applies"),
        ([Verdict.FAIL, Verdict.FAIL], False, "2 pairs of nodes: 2 failed"),
    ],
)
def test_the_headline_counts_pairs_as_pairs(data: list[Verdict], has_node: bool, words: str) -> None:
    assert headline(verdicts(*data, has_node=has_node).results) == words


def test_what_stands_for_all_pairs_is_no_pair() -> None:
    results = [result("network.pairwise_busbw", ALL_PAIRS, Verdict.INCOMPLETE, "nothing", subject="pair")]
    assert headline(results) == "no pair of nodes was measured"
    assert "clusterproof_pairs{" not in prometheus(run_of(results, data=[]))


def test_so_many_pairs_alike_are_called_pairs() -> None:
    (finding,) = findings(verdicts(*[Verdict.FAIL] * 10).results, Verdict.FAIL, PACKAGED)
    assert finding.suspicion == "10 of 10 pairs alike: probably configuration, not hardware"


@pytest.mark.parametrize("verdict", [Verdict.CONCERN, Verdict.FAIL])
def test_pairs_that_one_node_or_rack_accounts_for_are_not_called_configuration(verdict: Verdict) -> None:
    (finding,) = findings(verdicts(*[verdict] * 9, Verdict.PASS).results, verdict, PACKAGED)
    assert finding.suspicion == ""


def test_a_pair_has_no_cell_in_a_grid_of_nodes() -> None:
    of_pair = run_of(
        [
            result("network.not_a_straggler", "n0001"),
            result("network.pairwise_busbw", PAIR, Verdict.FAIL, "slow", subject="pair"),
            result("network.pairwise_busbw", "n0001", Verdict.FAIL, "a hostile name", subject="pair"),
        ]
    )
    assert "pairwise_busbw" not in matrix(of_pair.results, ["n0001"])
    grid = Page(document(of_pair)).data
    letters = dict(zip((check[0] for check in grid["checks"]), grid["letters"], strict=True))
    assert set(letters["network.pairwise_busbw"]) == {" "}
    assert letters["network.not_a_straggler"][0] == "."


def test_prometheus_has_a_label_and_a_count_of_pairs() -> None:
    lines = prometheus(verdicts(Verdict.FAIL, Verdict.PASS)).splitlines()
    assert 'clusterproof_pairs{cluster="prod",verdict="fail"} 1' in lines
    assert 'clusterproof_nodes{cluster="prod",verdict="fail"} 0' in lines
    assert not [line for line in lines if line.startswith("clusterproof_node_results") and "~" in line]
    (series,) = (line for line in lines if line.startswith("clusterproof_finding{"))
    assert 'node="",pair="n0001~n0002",' in series


def test_a_case_of_junit_names_pairs_as_pairs() -> None:
    assert "pairs: n0001~n0002\n" in suites(verdicts(Verdict.FAIL))


def test_pairs_are_measured_again_among_all_nodes() -> None:
    of_pairs = verdicts(Verdict.FAIL)
    assert again(of_pairs, Verdict.FAIL) == "pytest --cluster prod -k test_pairwise_busbw"


@pytest.mark.parametrize("between", [None, PairwiseRun(), PairwiseRun(why_not="no two nodes are alike")])
def test_nothing_is_shown_of_pairs_where_none_was_measured(between: PairwiseRun | None) -> None:
    assert section(between) == ""
    assert measurements_csv(run(between)) is None
    assert between is None or list(lines_of_pairs(between, 100)) == []


@pytest.mark.parametrize("fault", PAIR_FAULTS, ids=lambda fault: fault.name)
def test_every_kind_of_finding_is_put_in_words(fault: PairFault) -> None:
    (campaign,) = measured(fault).campaigns
    text = words_of(page(fault))
    for finding in campaign.analysis.findings:
        assert f"{finding.kind.value}" in text
    assert " 0 measurements" not in text
    assert not re.search(r"(?<![\d.,])1 (?:slow )?\w+s\b", page(fault))
    assert "None" not in text


def test_a_slow_node_is_a_row_of_numbers_and_the_first_line() -> None:
    html, text = page(SLOW), words_of(page(SLOW))
    assert "slow node n0003: 19.9 % slower than normal (18.6 to 21.1 %), 7 measurements with 7 partners" in text
    assert set(re.findall(r'class="on-[\w-]+"[^>]*>(\d+)<', html)) <= {"79", "80", "81"}
    assert html.count('class="on-low-') == 14
    strip = html.partition('<svg class="strip"')[2]
    assert re.findall(r'class="row[^>]*>(?:▸ )?([^<]*)', strip)[0] == "n0003"
    assert len(re.findall(r'class="row', strip)) == 32


@pytest.mark.long
def test_the_section_says_what_was_measured_and_how_good_that_is() -> None:
    text = words_of(page(SLOW))
    for expected in (
        "85 pairs of 32 nodes, measured 88 times with nccl-tests, in 7 rounds",
        "all_reduce of 8 GiB, p5.48xlarge, 8 ranks on each node, 32 EFA devices",
        "efa, 32 devices",
        "398.8 GB/s, spread 1.5 %",
        "99.7 % of the wire, 400 GB/s; with 2 nodes NCCL's tree",
        "383.2 GB/s, 80 % of what was published",
        "seed7",
    ):
        assert expected in text


def test_a_baseline_and_its_other_software_are_shown() -> None:
    (campaign,) = measured(SLOW).campaigns
    assert campaign.key
    figure = BaselineFigure(campaign.key, Stack(nccl="2.20"), 395.0, 12)
    text = words_of(section(PairwiseRun((replace(campaign, figures=(figure,)),))))
    assert re.search(r"3\d\d(\.\d)? GB/s, 80 % of the baseline's 395 GB/s, of other software: nccl 2\.20", text)


@pytest.mark.long
def test_nodes_that_were_not_reached_are_listed_with_the_reason() -> None:
    assert "not measuredn0002: refused" in words_of(page(FAULTS["a node that was not reached"]))


def test_neither_of_two_nodes_is_called_healthy() -> None:
    assert "two nodes have nobody to be compared with" in words_of(page(FAULTS["two nodes only"]))


def test_the_terminal_has_one_sentence() -> None:
    (line,) = lines_of_pairs(measured(SLOW), 1000)
    assert line.startswith(
        "pairs       85 pairs of 32 nodes, measured 88 times with nccl-tests: normal 398.8 GB/s (99.7 % of the wire"
    )
    assert all(len(part) <= 100 for part in lines_of_pairs(measured(SLOW), 100))
