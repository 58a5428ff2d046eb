"""A run that is cut, whatever cuts it: no form calls a node fit whose checks did not all end, and each says so."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.cuts import FULL_DISK, MAX_FAIL, WORKER, Cut, Ran, cut_run
from tests.builders.runs import DEVICES, LIGHT, USUAL, Runs, saying

WORDS = {f"gpu{number:03d}": "bad" if number in (1, 6) else "pass" for number in range(1, 9)}
CHECKS = ("host.word", "gpu.word_of_gpu")  # the first is evaluated on all nodes, then the second
CHOSEN = [
    Result(check, node, Verdict.PASS if word == "pass" else Verdict.FAIL)
    for check in CHECKS
    for node, word in WORDS.items()
]
FORMS = {"terminal", "report.html", "summary.md", "summary.txt", "junit.xml", "metrics.prom", "results.jsonl"}
FORMS |= {"pytest.xml", "history"}


def cut(runs: Runs, how: Cut, *more: str, checks: str = LIGHT) -> Ran:
    runs.checks(test_1=checks, test_2=DEVICES)
    cluster = runs.cluster(saying(node, word) for node, word in WORDS.items())
    return cut_run(["--cluster", cluster, *more], how, CHOSEN, runs.folder / "cut", runs.folder)


@pytest.mark.parametrize(
    ("how", "checks", "more", "code", "why"),
    [
        (Cut("SIGINT", 11), LIGHT, (), 2, "SIGINT ended the run"),
        (Cut("SIGTERM", 11, is_large=True), LIGHT, (), 2, "SIGTERM ended the run"),
        (Cut("SIGHUP", 11), USUAL, (), 2, "SIGHUP ended the run"),
        (Cut("SIGTERM", 11), LIGHT, ("-n2",), 2, "SIGTERM ended the run"),
        (Cut(MAX_FAIL, 3), LIGHT, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 3, is_large=True), LIGHT, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 1), USUAL, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 1), LIGHT, ("-n2",), 1, "-x or --maxfail ended the run"),
        (Cut(WORKER, 2), LIGHT, (), 2, "its worker process was lost"),
        (Cut(WORKER, 2), USUAL, ("--max-worker-restart=0",), 2, "its worker process was lost"),
    ],
    ids=lambda value: f"{value.by}, large" if isinstance(value, Cut) and value.is_large else getattr(value, "by", ""),
)
def test_what_was_not_evaluated_leaves_no_node_fit_in_any_form(
    runs: Runs, how: Cut, checks: str, more: tuple[str, ...], code: int, why: str
) -> None:
    ran = cut(runs, how, *more, checks=checks)
    assert ran.code == code, ran.output
    assert ran.called_fit == 0, ran.fit
    assert ran.says_so == dict.fromkeys(FORMS, True), ran.output
    assert set(ran.fit.values()) == {ran.proven}, ran.fit
    assert f"not evaluated: {why}" in ran.output
    assert 0 < len(ran.ended) < len(CHOSEN)


def test_after_so_many_results_so_many_checks_of_so_many_nodes_have_ended(runs: Runs) -> None:
    ran = cut(runs, Cut("SIGINT", 11))
    words = "INTERRUPTED: 11 of 16 checks ended, all of them on 3 of 8 nodes"
    assert (len(ran.ended), ran.proven) == (11, 2)  # gpu001 fails
    for name in ("summary.txt", "summary.md", "report.html"):
        assert words in " ".join((ran.folder / name).read_text(encoding="utf-8").replace("*", "").split()), name
    assert (ran.folder / "summary.txt").read_text(encoding="utf-8").startswith(words)


def test_a_full_disk_under_the_reports_leaves_no_form_that_is_not_whole(runs: Runs) -> None:
    ran = cut(runs, Cut(FULL_DISK, 11))
    assert ran.code == 2, ran.output
    assert "File too large" in ran.output
    assert ran.called_fit == 0, ran.fit
    assert ran.fit["terminal"] == 6  # all was evaluated, and that is said
    assert not (ran.folder / "results.jsonl").exists()
    assert (ran.folder / "results.jsonl.part").read_bytes().endswith(b"}\n")
    assert "report: " not in ran.output
