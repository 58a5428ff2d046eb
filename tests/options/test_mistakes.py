"""A mistake on the command line of a run: one line of ours, and before a node is asked."""

from __future__ import annotations

import pytest

from clusterproof.plugins.command_line.main import main
from tests.builders.runs import Runs

pytestmark = pytest.mark.any_user

_EXPECTED = "expected not OR left parenthesis OR identifier"
MISTAKES = [
    (("--polcy", "x"), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--polcy=x",), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--incomplete=maybe",), "ERROR: --incomplete is 'maybe'; expected gate, ignore or fail"),
    (("--incomplete=ingore",), "ERROR: --incomplete is 'ingore' (did you mean ignore?); expected gate, ignore or fail"),
    (("--fanout", "many"), "ERROR: --fanout is 'many'; expected a whole number"),
    (("--nodes",), "ERROR: --nodes has no value; expected one argument"),
    (
        ("-m", "gpuu"),
        "ERROR: -m 'gpuu': no mark is called 'gpuu' (did you mean gpu?); clusterproof --markers lists them",
    ),
    (("-m", "gpu and"), f"ERROR: -m 'gpu and': {_EXPECTED}; got end of input"),
    (("-k", "memlock and"), f"ERROR: -k 'memlock and': {_EXPECTED}; got end of input"),
    (("--nodes", ""), "ERROR: --nodes is empty; expected NODESET"),
    (("--policy=",), "ERROR: --policy is empty; expected FILE"),
    (("--notify", ""), "ERROR: --notify is empty; expected URL"),
]
OF_THE_COMMAND = [  # which knows that no other tests are meant
    (("-n", "gpu"), "ERROR: --numprocesses is 'gpu'; expected a whole number, auto or logical"),
    (
        ("-m", "gpuu", "-n", "2"),
        "ERROR: -m 'gpuu': no mark is called 'gpuu' (did you mean gpu?); clusterproof --markers lists them",
    ),
    (("--color=purple",), "ERROR: --color is 'purple'; expected yes, no or auto"),
    (("--maxfail=many",), "ERROR: --maxfail is 'many'; expected a whole number"),
    (("no_such.py",), "ERROR: file or directory not found: no_such.py"),
]


@pytest.fixture(autouse=True)
def of_one_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has pytest load no other plugin: that must not outlive the test in this process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.long
@pytest.mark.parametrize(("words", "line"), [*MISTAKES, *OF_THE_COMMAND])
def test_a_mistake_is_one_line(words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "demo", *words]) == 4
    shown = capsys.readouterr()
    assert (shown.out, shown.err.split()) == ("", line.split())


@pytest.mark.parametrize(("words", "line"), MISTAKES)
def test_pytest_answers_a_mistake_beside_a_cluster_so_too(runs: Runs, words: tuple[str, ...], line: str) -> None:
    assert runs.run("--cluster", "demo", *words).errlines[:1] == [line]


def test_a_cluster_without_a_name_is_asked_for(runs: Runs) -> None:
    shown = runs.run("--cluster")
    assert shown.errlines[0].startswith("ERROR: no cluster to validate; say which: --cluster local, demo")


def test_a_run_of_other_tests_keeps_the_words_of_pytest(runs: Runs) -> None:
    assert "usage: " in runs.run("--polcy").stderr.str()


@pytest.mark.long
def test_the_cache_of_pytest_may_be_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["check", "demo", "-p", "no:cacheprovider", "-k", "gpu_answers", "--no-report"]
    assert main(words) == 1
    assert "Unknown config option" not in capfd.readouterr().err


@pytest.mark.long
def test_what_is_given_twice_of_nodes_and_expectations_is_taken_together(capfd: pytest.CaptureFixture[str]) -> None:
    twice = ["--nodes=gpu001", "--nodes", "gpu[004,006]", "--exclude=gpu004", "--exclude=gpu006"]
    assert main(["check", "demo", *twice, "-k", "memlock", "--no-report"]) == 0
    assert "cluster: demo: 1 node (gpu001)" in capfd.readouterr().out
    assert main(["check", "demo", "--expect=gpus=8", "--expect=gpus=4", "--no-report"]) == 4
    assert "gives gpus twice" in capfd.readouterr().err
