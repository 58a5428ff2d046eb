"""Verdicts as pytest shows, counts and repeats them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.suite.ending import EXIT_UNCHECKED, EXIT_UNWRITTEN
from tests.builders.recordings import node, unreached
from tests.builders.runs import DEVICES, LIGHT, SAYING, VERDICTS, WAYS, Runs, all_verdicts, counts, saying

pytestmark = pytest.mark.any_user

COUNTS = Counter({"passed": 2, "failed": 1, "concern": 1, "incomplete": 3, "not applicable": 1})


@WAYS
def test_each_verdict_has_its_letter(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    run = runs.over(all_verdicts())
    run.stdout.fnmatch_lines(["test_it.py .FCI-II.*"])
    assert runs.verdicts == VERDICTS
    assert counts(run) == COUNTS
    assert run.ret == 1


@WAYS
def test_each_verdict_has_its_word(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    run = runs.over(all_verdicts(), "-v")
    outcomes = ["PASSED", "FAILED", "CONCERN", "INCOMPLETE", "NOT APPLICABLE", "INCOMPLETE", "INCOMPLETE", "PASSED"]
    run.stdout.fnmatch_lines(
        [f"test_it.py::test_word?{name}? {word} *" for name, word in zip(VERDICTS, outcomes, strict=True)]
    )


@WAYS
def test_a_check_that_breaks_is_incomplete_and_says_where(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    runs.over([saying("gpu001", "broken")])
    (result,) = runs.results
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith("the check itself broke: KeyError: 'no such key' (")
    assert "test_it.py:" in result.message


@WAYS
@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("return node.boot.kernel == 'pass'", "what it returns is not a verdict; expected an assert"),
        ("assert node.boot.kernl == 'pass'", "no attribute 'kernl' (did you mean kernel?) (test_it.py:"),
    ],
    ids=["return", "misspelt"],
)
def test_a_check_that_evaluates_nothing_is_incomplete(runs: Runs, checks: str, does: str, words: str) -> None:
    runs.checks(test_it=checks.replace("say(node.boot.kernel)", does))
    runs.over([saying("gpu001", "bad")])
    (result,) = runs.results
    assert (result.verdict, words in result.message) == (Verdict.INCOMPLETE, True), result.message


@WAYS
@pytest.mark.parametrize(
    ("word", "verdict"), [("skip", Verdict.NOT_APPLICABLE), ("pytest.fail", Verdict.FAIL)], ids=["skip", "fail"]
)
def test_pytests_own_words_are_verdicts_too(runs: Runs, checks: str, word: str, verdict: Verdict) -> None:
    runs.checks(test_it=checks)
    runs.over([saying("gpu001", word)])
    assert runs.verdicts == {"gpu001": verdict}
    assert runs.results[0].message.endswith("ped by hand" if word == "skip" else "failed by hand")


def test_a_fixture_that_breaks_is_incomplete(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.fixture
        def ground():
            raise OSError("no ground")

        def test_it(node, ground):
            pass
        """
    )
    assert runs.over([saying("gpu001", "pass")]).ret == 10
    assert runs.verdicts == {"gpu001": Verdict.INCOMPLETE}
    assert "OSError: no ground" in runs.results[0].message


def test_a_teardown_that_breaks_is_an_error_beside_the_verdict(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.fixture
        def ground():
            yield
            raise OSError("ground is gone")

        def test_it(node, ground):
            pass
        """
    )
    run = runs.over([saying("gpu001", "pass")])
    assert runs.verdicts == {"gpu001": Verdict.PASS}
    assert run.ret == 1
    run.stdout.fnmatch_lines(["*ERROR at teardown of test_it*", "*OSError: ground is gone"])


def test_a_check_that_is_marked_skip_is_not_applicable_and_xfail_keeps_pytests_word(runs: Runs) -> None:
    runs.checks(
        test_it="""
        import pytest

        @pytest.mark.skip(reason="not on this site")
        def test_skipped(node):
            assert False

        @pytest.mark.xfail(reason="known here")
        def test_known(node):
            assert False
        """
    )
    run = runs.over([saying("gpu001", "pass")])
    assert [(result.check, result.verdict) for result in runs.results] == [("skipped", Verdict.NOT_APPLICABLE)]
    assert counts(run) == Counter({"not applicable": 1, "xfailed": 1})
    assert run.ret == 0


# Of several devices the worst counts


WORST = ["bad", "broken", "concern", "pass", "not applicable"]


@pytest.mark.parametrize("rank", range(len(WORST)), ids=WORST)
def test_the_worst_of_several_devices_speaks(runs: Runs, rank: int) -> None:
    runs.checks(test_it=DEVICES)
    gpu_words = WORST[:rank:-1] + [WORST[rank]] * 2 if rank < 4 else [WORST[4]] * 2
    runs.over([saying("gpu001", *gpu_words)])
    (result,) = runs.results
    verdicts = [Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN, Verdict.PASS, Verdict.NOT_APPLICABLE]
    assert result.verdict is verdicts[rank]
    expected = [f"GPU {number}" for number, word in enumerate(gpu_words) if word == WORST[rank]]
    assert list(result.devices) == ([] if WORST[rank] == "pass" else expected)


def test_what_several_devices_say_alike_is_one_line_worst_first(runs: Runs) -> None:
    runs.checks(test_it=DEVICES)
    runs.over([saying("gpu001", "concern", "pass", "bad", "concern", "bad")])
    assert runs.results[0].message == (
        "GPU 2, GPU 4: the word is bad; expected pass\nconcern: GPU 0, GPU 3: the word is odd; expected a good one"
    )
    assert (runs.results[0].observed, runs.results[0].expected) == ("GPU 2, GPU 4: the word is bad", "pass")


def test_a_node_without_such_devices_is_not_applicable(runs: Runs) -> None:
    runs.checks(test_it=DEVICES)
    nothing: dict[str, Any] = {"init": None, "driver": "580.126.09", "count": 0, "gpus": []}
    empty = node("gpu001", nvml=nothing, pci={"devices": []})
    assert runs.over([empty]).ret == 5
    assert runs.verdicts == {"gpu001": Verdict.NOT_APPLICABLE}
    assert runs.results[0].message == "no NVIDIA GPU on the PCI bus (the driver counts none)"


@pytest.mark.parametrize(("expect", "verdict"), [("gpus=8", Verdict.NOT_APPLICABLE), ("ib=8", Verdict.INCOMPLETE)])
def test_a_node_whose_expected_infiniband_devices_are_all_gone_is_not_proven(
    runs: Runs, expect: str, verdict: Verdict
) -> None:
    runs.checks(test_it="def test_rate(ib_device): assert ib_device.ports")
    runs.over([node("gpu001", rdma={"devices": []})], "--expect", expect)
    assert runs.verdicts == {"gpu001": verdict}


# Exit codes


EXIT_CODES = [
    (["pass"], [], 0),
    (["concern"], [], 0),
    (["not applicable"], ["--incomplete=fail", "--concerns=fail"], 5),
    (["not applicable", "pass"], [], 0),
    (["not applicable", "concern"], [], 0),
    (["incomplete"], ["--incomplete=fail"], 1),
    (["bad", "incomplete"], ["--incomplete=ignore"], 1),
    (["concern"], ["--concerns=fail"], 1),
    (["concern", "incomplete"], ["--concerns=fail"], 1),
    (["pass"], ["--concerns=fail", "--incomplete=fail"], 0),
]
OF_EACH_KIND = [
    (["not applicable"], [], 5),
    (["bad", "incomplete"], [], 1),
    (["incomplete", "pass"], [], 10),
    (["incomplete"], ["--incomplete=ignore"], 0),
    (["pass"], ["-k", "nothing"], 5),
]


def exit_code(runs: Runs, node_words: list[str], *arguments: str) -> int:
    """The exit code of a run over nodes that report these words."""
    runs.checks(test_it=LIGHT)
    nodes = [saying(f"gpu{number:03d}", word) for number, word in enumerate(node_words, start=1)]
    return int(runs.over(nodes, *arguments).ret)


@pytest.mark.parametrize(("words", "arguments", "code"), [*EXIT_CODES, *OF_EACH_KIND])
def test_the_exit_code(runs: Runs, words: list[str], arguments: list[str], code: int) -> None:
    assert exit_code(runs, words, *arguments) == code


def test_no_exit_code_of_ours_is_one_that_pytest_has_a_meaning_for() -> None:
    theirs = {int(code) for code in pytest.ExitCode}
    assert theirs.isdisjoint({EXIT_INCOMPLETE, EXIT_UNWRITTEN})
    assert pytest.ExitCode.NO_TESTS_COLLECTED == EXIT_UNCHECKED


@pytest.mark.parametrize(("words", "arguments", "code"), OF_EACH_KIND)
def test_workers_change_no_exit_code(runs: Runs, words: list[str], arguments: list[str], code: int) -> None:
    assert exit_code(runs, words, *arguments, "-n2") == code


def test_a_failed_test_of_another_kind_is_a_failure_of_the_run(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_other="def test_other(): assert 1 == 2")
    run = runs.over([saying("gpu001", "incomplete")])
    assert run.ret == 1
    run.stdout.fnmatch_lines(["*= FAILURES =*", "*assert 1 == 2"])


# Pytest's options


@WAYS
def test_two_workers_give_the_same_verdicts(runs: Runs, checks: str) -> None:
    runs.checks(test_it=checks)
    run = runs.over(all_verdicts(), "-n2")
    assert runs.verdicts == VERDICTS
    assert len(runs.results) == len(VERDICTS)
    assert counts(run) == COUNTS
    assert run.ret == 1


@pytest.mark.parametrize("plugin", ["terminal", "debugging"])
def test_without_a_plugin_of_pytests_there_are_still_records(runs: Runs, plugin: str) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over(all_verdicts(), "-p", f"no:{plugin}")
    assert run.ret == 1
    assert runs.verdicts == VERDICTS


@pytest.mark.parametrize(
    "option", ["--tb=long", "-rA", "-ra", "-rN", "-q", "-qq", "-vv", "--no-header", "--no-summary"]
)
def test_no_display_option_changes_a_verdict(runs: Runs, option: str) -> None:
    runs.checks(test_it=LIGHT)
    assert runs.over(all_verdicts(), option).ret == 1
    assert runs.verdicts == VERDICTS


def test_pytests_own_summary_is_shown_on_request(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    output = runs.over(all_verdicts(), "-rf").stdout
    output.fnmatch_lines(["FAILED test_it.py::test_word?gpu002? - gpu002: the word is bad; expected pass*"])


def test_an_unreachable_node_is_one_finding_and_the_rest_is_incomplete(runs: Runs) -> None:
    runs.checks(test_it=LIGHT + DEVICES.removeprefix(SAYING))
    output = runs.over([unreached("gpu001"), unreached("gpu002")]).stdout
    output.fnmatch_lines(["INCOMPLETE  gpu[[]001-002]: unreachable: refused (2 checks)"])


def test_why_a_node_is_unreachable_is_said_where_its_own_check_was_not_chosen(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([unreached("gpu001", detail="10.0.0.1:22 refuses the connection")])
    run.stdout.fnmatch_lines(
        ["INCOMPLETE  gpu001: *: refused (*", " *10.0.0.1:22 refuses the connection", "*not proven*"]
    )


# Nothing that was checked


def test_a_node_to_which_no_check_applies_is_not_called_fit(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([saying("gpu001", "not applicable"), saying("gpu002", "pass")])
    run.stdout.fnmatch_lines(["2 nodes: 1 fit, 1 not checked: no check applies"])
