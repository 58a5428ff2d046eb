"""A run's message: when one is due, its title and text, and that both are bounded."""

from __future__ import annotations

import re

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.result import INTERRUPTED, Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.reporters.notify import message_of
from clusterproof.plugins.watch.notify.services import MAX_BODY, MAX_TITLE
from clusterproof.reports.history.changes import Change, Changes


def test_a_title_cuts_no_name_and_no_bracket_of_a_nodeset() -> None:
    nodes = [f"gpu{number:04d}" for number in range(1, 400, 3)]
    findings = (Finding(Verdict.FAIL, "14 errors; expected 0", action="replace"),)
    results = [with_findings(Result("gpu.a", node, Verdict.PASS), findings) for node in nodes]
    message = message_of("a-cluster", results, 1, Changes(), PACKAGED)
    assert message is not None
    assert len(message.title) <= MAX_TITLE
    assert re.fullmatch(
        r"a-cluster: FIND THE COMMON CAUSE 133 nodes \(gpu\[0001(,\d{4})*\] and \d+ more\)", message.title
    )


def test_a_message_is_bounded_and_holds_whole_lines() -> None:
    results = [
        Result(
            f"gpu.check_{number}", f"odd{'x' * number}name", Verdict.FAIL, f"Title {number} " * 30 + "\x1b[2J\ud800\n"
        )
        for number in range(300)
    ]
    message = message_of("hp\n" * 200, results, 1, Changes(), PACKAGED)
    assert message is not None
    assert len(message.title) <= MAX_TITLE
    assert len(message.body) <= MAX_BODY
    assert message.title.isprintable()
    assert "more lines" in message.body.splitlines()[-1]
    (message.title + message.body).encode()


def test_what_is_gone_takes_the_room_of_nothing_that_stands() -> None:
    gone = tuple(Change(f"gpu.check_{number}", f"odd{number}name", Verdict.FAIL, Verdict.PASS) for number in range(99))
    message = message_of("hp", [Result("gpu.a", "gpu001", Verdict.FAIL, "Burns")], 1, Changes(gone=gone), PACKAGED)
    assert message is not None
    assert "FAIL Burns: 1 of 1 node (gpu001)" in message.body


@pytest.mark.parametrize(
    ("exit_code", "changes", "is_due"),
    [
        (0, Changes(), False),
        (0, Changes(gone=(Change("a.b", "n", None, Verdict.PASS),)), True),
        (0, Changes(still=(Change("a.b", "n", None, Verdict.CONCERN),)), False),
        (1, Changes(), True),
        (2, Changes(), False),
        (3, Changes(), True),
        (5, Changes(), False),
        (6, Changes(), True),
    ],
)
def test_when_a_message_is_due(exit_code: int, changes: Changes, is_due: bool) -> None:
    assert (message_of("hp", [], exit_code, changes, PACKAGED) is not None) == is_due


def test_a_run_that_was_interrupted_says_so_first_and_calls_no_node_fit_that_it_did_not_evaluate() -> None:
    results = [
        Result("gpu.a", "gpu001", Verdict.PASS),
        Result("gpu.a", "gpu002", Verdict.INCOMPLETE, cause=INTERRUPTED),
    ]
    message = message_of("hp", results, 2, Changes(), PACKAGED)
    assert message is not None
    assert message.kind == "failure"
    assert message.title.startswith("hp: INTERRUPTED: 1 of 2 checks ended, all of them on 1 of 2 nodes")
    assert "2 nodes: 1 fit, 1 not proven" in message.body
