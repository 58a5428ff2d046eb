"""What a run did not read or evaluate: the history keeps what was found before, and what the run found beside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.document.trend import MAX_RUNS, counts, trend_section
from clusterproof.reports.history import Standing
from clusterproof.reports.history.changes import between, headline, marked, since_last
from clusterproof.reports.history.past import read_before, read_past
from clusterproof.reports.history.trends import flaps
from clusterproof.reports.history.words import page
from tests.reports.history.kept import CONCERN, ECC, FAIL, INCOMPLETE, PASS, add, past, result, unevaluated
from tests.reports.reported import run_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_a_run_that_measured_nothing_clears_no_finding(file: Path) -> None:
    add(file, result("gpu001", FAIL))
    add(file, result("gpu001", INCOMPLETE))
    _, before = read_before(file, "small")
    assert before == {(ECC, "gpu001"): Standing(FAIL)}
    last = add(file, result("gpu001", PASS))
    assert [finding.before for finding in between(past(file), last.number - 1, last.number).gone] == [FAIL]
    assert read_before(file, "small")[1] == {}


def test_what_a_run_did_not_look_at_is_neither_gone_nor_forgotten(file: Path) -> None:
    add(file, result("gpu001", FAIL), result("gpu002", PASS))
    last = add(file, result("gpu002", PASS))
    assert headline(between(past(file), last.number - 1, last.number)) == "nothing has changed"
    assert read_before(file, "small")[1] == {(ECC, "gpu001"): Standing(FAIL)}


def test_what_an_interrupted_run_did_not_evaluate_is_as_it_was_before(file: Path) -> None:
    add(file, result("gpu001", FAIL), result("gpu002", PASS), result("gpu003", PASS))
    cut = add(file, unevaluated("gpu001"), unevaluated("gpu002"), result("gpu003", PASS))
    assert (cut.unevaluated, cut.nodes, cut.is_green) == (2, 3, False)
    assert read_before(file, "small")[1] == {(ECC, "gpu001"): Standing(FAIL)}
    assert headline(between(past(file), cut.number - 1, cut.number)) == "nothing has changed; 1 finding still there"
    assert counts(past(file))[-1] == (0, 2, 1)  # failed, not proven, fit
    assert "INTERRUPTED: 2 checks not evaluated" in list(page(past(file)))[1]
    last = add(file, result("gpu001", PASS), result("gpu002", PASS), result("gpu003", PASS))
    changes = between(past(file), last.number - 1, last.number)
    assert [(finding.node, finding.before) for finding in changes.gone] == [("gpu001", FAIL)]
    assert not changes.new


HALF_READ = replace(
    with_findings(result("gpu001", PASS), grouped([Finding(INCOMPLETE, "GPU 3 is lost"), Finding(CONCERN, "warm")])),
    title="ECC",
)


def test_a_failure_stands_where_a_run_measured_only_some_of_the_devices_and_has_a_concern(file: Path) -> None:
    add(file, result("gpu001", FAIL))
    add(file, HALF_READ)
    assert read_before(file, "small")[1] == {(ECC, "gpu001"): Standing(FAIL)}


@pytest.mark.parametrize("first", [PASS, INCOMPLETE])
def test_a_concern_beside_a_gap_is_new_on_the_terminal_and_in_the_history(first: Verdict, file: Path) -> None:
    add(file, result("gpu001", first))
    now = marked(HALF_READ, read_before(file, "small")[1])
    add(file, HALF_READ)
    for changes in (since_last([now], {(ECC, "gpu001"): Standing(first)}), between(past(file), 1, 2)):
        assert headline(changes) == "1 finding new on gpu001"
        assert [change.now for change in changes.new] == [CONCERN]


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        ([FAIL, INCOMPLETE], "for 2 runs"),
        ([FAIL, None], "for 2 runs"),
        ([PASS, FAIL, None, INCOMPLETE], "for 3 runs"),
        ([FAIL, None, PASS], "gone"),
        ([INCOMPLETE, FAIL], "new"),
        ([FAIL, PASS, None], ""),
        ([FAIL, *[INCOMPLETE] * MAX_RUNS], f"for {MAX_RUNS} runs"),
    ],
)
def test_a_finding_that_the_last_run_did_not_measure_is_not_gone_on_the_page(
    verdicts: list[Verdict | None], state: str, file: Path
) -> None:
    for verdict in verdicts:
        add(file, result("gpu002", PASS), *([result("gpu001", verdict)] if verdict else []))
    section = trend_section(run_of([result("gpu001", PASS)], past=read_past(file, "small", MAX_RUNS)))
    assert section
    assert f'<td class="state">{state}</td>' in section.html


def test_a_concern_beside_a_gap_comes_and_goes_like_any_other(file: Path) -> None:
    for each in (HALF_READ, result("gpu001", INCOMPLETE), result("gpu001", PASS), HALF_READ):
        add(file, each)
    section = trend_section(run_of([result("gpu001", PASS)], past=past(file)))
    assert section
    assert '<td class="state">new</td>' in section.html
    assert [(flap.came, flap.looked) for flap in flaps(past(file))] == [(2, 3)]


def found(*verdicts: Verdict) -> list[Result]:
    """The results of a test with parameters on one node."""
    return [with_findings(result("gpu001", PASS), (Finding(verdict, "seen"),)) for verdict in verdicts]


@pytest.mark.parametrize("again", [(INCOMPLETE, CONCERN), (CONCERN, INCOMPLETE), (PASS, FAIL), (FAIL, PASS)])
def test_what_a_test_with_parameters_finds_again_is_neither_new_nor_gone(
    again: tuple[Verdict, ...], file: Path
) -> None:
    add(file, *found(*again))
    before = read_before(file, "small")[1]
    changes = since_last([marked(each, before) for each in found(*again)], before)
    add(file, *found(*again))
    for kinds in (changes, between(past(file), 1, 2)):
        assert (kinds.new, kinds.gone) == ((), ())
        assert kinds.still


def test_a_node_alone_that_fails_is_not_fit_in_the_bars_though_its_cluster_is_called_so_too(file: Path) -> None:
    add(file, result("small", FAIL))
    assert counts(past(file), nodes={"small"}) == [(1, 0, 0)]


def test_pairs_and_training_runs_that_fail_are_no_nodes_in_the_bars(file: Path) -> None:
    pair, rank = replace(result("gpu1~gpu2", FAIL), subject="pair"), replace(result("llama", FAIL), subject="run")
    add(file, result("gpu1", PASS), result("gpu2", PASS), pair, rank)
    assert counts(past(file), others={"llama"}) == [(0, 0, 2)]


def test_a_node_to_which_no_check_applies_is_not_fit_in_the_bars(file: Path) -> None:
    add(file, result("gpu1", PASS), result("gpu2", Verdict.NOT_APPLICABLE))
    assert counts(past(file)) == [(0, 0, 1)]
