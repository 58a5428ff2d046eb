"""A mistake on the command line of a run: one line of ours, and before a node is asked."""

from __future__ import annotations

import pytest

from clusterproof.plugins.command_line.main import main
from tests.builders.runs import Runs

MISTAKES = [
    (("--polcy", "x"), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--polcy=x",), "ERROR: --polcy is not an option (did you mean --policy?); clusterproof --help-all lists them"),
    (("--incomplete=maybe",), "ERROR: --incomplete is 'maybe'; expected gate, ignore or fail"),
    (("--incomplete=ingore",), "ERROR: --incomplete is 'ingore' (did you mean ignore?); expected gate, ignore or fail"),
    (("--fanout", "many"), "ERROR: --fanout is 'many'; expected a whole number"),
    (("--nodes",), "ERROR: --nodes has no value; expected one argument"),
]


@pytest.fixture(autouse=True)
def of_one_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has pytest load no other plugin: that must not outlive the test in this process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.parametrize(("words", "line"), MISTAKES)
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


def test_the_cache_of_pytest_may_be_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["check", "demo", "-p", "no:cacheprovider", "-k", "gpu_answers", "--no-report"]
    assert main(words) == 1
    assert "Unknown config option" not in capfd.readouterr().err
