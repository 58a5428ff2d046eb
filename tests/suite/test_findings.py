"""A check with several findings: all are reported, and the worst is the verdict."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.runs import Runs, saying

GOING_ON = """
from clusterproof import concern, concern_if, fail_if, incomplete, not_applicable, part

def test_it({subject}):
    with part:
        concern("loud; expected quiet")
    concern_if(True, "warm; expected cool")
    with part:
        incomplete("the door is shut; expected it open", cause="a shut door")
    fail_if({fails}, "broken; expected whole", action="replace")
    with part:
        not_applicable("nobody asks")
"""


@pytest.mark.parametrize("subject", ["node", "node, tmp_path"], ids=["light", "usual way"])
def test_what_a_check_says_while_it_goes_on_is_all_reported_worst_first(runs: Runs, subject: str) -> None:
    runs.checks(test_it=GOING_ON.format(subject=subject, fails=True))
    assert runs.over([saying("gpu001", "pass")]).ret == 1
    (result,) = runs.results
    assert (result.verdict, result.cause, result.action) == (Verdict.FAIL, "", "replace")
    assert result.message.split("\n") == [
        "broken; expected whole",
        "incomplete: the door is shut; expected it open",
        "concern: loud; expected quiet",
        "concern: warm; expected cool",
    ]
    assert [(finding.verdict, finding.cause) for finding in result.findings] == [
        (Verdict.FAIL, ""),
        (Verdict.INCOMPLETE, "a shut door"),
        (Verdict.CONCERN, ""),
        (Verdict.CONCERN, ""),
    ]


def test_an_incomplete_result_keeps_its_concerns(runs: Runs) -> None:
    runs.checks(test_it=GOING_ON.format(subject="node", fails=False))
    assert runs.over([saying("gpu001", "pass")]).ret == 10
    incomplete, concern = runs.results[0].by_verdict
    assert (incomplete.verdict, incomplete.observed, incomplete.cause) == (
        Verdict.INCOMPLETE,
        "the door is shut",
        "a shut door",
    )
    assert (concern.verdict, concern.message, concern.cause) == (
        Verdict.CONCERN,
        "loud; expected quiet\nwarm; expected cool",
        "",
    )


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("with part: not_applicable('a')\n    with part: not_applicable('b')", Verdict.NOT_APPLICABLE),
        ("with part: not_applicable('a')\n    fail_if(False, 'b')", Verdict.PASS),
        ("with part: not_applicable('a')\n    with part: assert node", Verdict.PASS),
        ("with part: assert not node, 'a'\n    not_applicable('b')", Verdict.FAIL),
        ("with part: concern('a')\n    incomplete('b')", Verdict.INCOMPLETE),
        ("with part: {}['a']", Verdict.INCOMPLETE),
    ],
)
def test_a_check_passes_where_a_part_of_it_applies_and_none_finds_anything(
    runs: Runs, body: str, verdict: Verdict
) -> None:
    names = "concern, concern_if, fail_if, incomplete, not_applicable, part"
    runs.checks(test_it=f"from clusterproof import {names}\n\ndef test_it(node):\n    {body}\n")
    runs.over([saying("gpu001", "pass")])
    assert runs.verdicts == {"gpu001": verdict}


@pytest.mark.parametrize("arguments", ["node", "node, tmp_path"])
@pytest.mark.parametrize(
    ("first", "findings"),
    [
        ("pytest.skip('no fan')", [(Verdict.FAIL, "the lid is off")]),
        ("pytest.fail('a fan stands still')", [(Verdict.FAIL, "a fan stands still"), (Verdict.FAIL, "the lid is off")]),
    ],
)
def test_pytests_own_words_end_the_part_and_not_the_check(
    runs: Runs, arguments: str, first: str, findings: list[tuple[Verdict, str]]
) -> None:
    runs.checks(
        test_it=f"""
        import pytest
        from clusterproof import part

        def test_it({arguments}):
            with part:
                {first}
            with part:
                assert not node, "the lid is off"
        """
    )
    runs.over([saying("gpu001", "pass")])
    (result,) = runs.results
    assert [(finding.verdict, finding.message) for finding in result.findings] == findings


def test_a_check_that_ends_with_its_concern_says_nothing_after_it(runs: Runs) -> None:
    runs.checks(
        test_it="""
        from clusterproof import concern

        def test_it(node):
            if node.boot.kernel:
                concern("warm; expected cool")
            raise AssertionError("never said")
        """
    )
    runs.over([saying("gpu001", "pass")])
    assert [(result.verdict, result.message) for result in runs.results] == [(Verdict.CONCERN, "warm; expected cool")]
