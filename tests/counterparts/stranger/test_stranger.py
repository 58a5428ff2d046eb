"""Common plugins beside ours: the checks call them, and the verdicts are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.reports.results import read_results
from tests.builders.wheel import Installed, environment
from tests.counterparts import installed as counterparts
from tests.packaging.their_suite import SUITE, written

pytestmark = counterparts.needs("stranger")

Outcome = tuple[int, dict[tuple[str, str], tuple[str, str]]]
PACKAGED = ("--pyargs", "clusterproof.checks", "--cluster", "demo", "--no-report", "-q", "-k", "ecc or uptime")


@pytest.fixture(scope="session")
def beside_others(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The installed wheel in an environment with third-party plugins."""
    others = counterparts.folder("stranger") / "site"
    return environment(tmp_path_factory.mktemp("beside_others"), [installed.site, others])


@pytest.fixture(scope="session")
def alone(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run's output without those plugins."""
    return output_of(installed, tmp_path_factory.mktemp("alone") / "run")


def output_of(ran: Installed, folder: Path, *arguments: str) -> Outcome:
    """The exit code, and verdict and message by check and node."""
    folder.mkdir()
    made = ran.pytest(folder, *PACKAGED, "--results", "results.jsonl", *arguments)
    assert "Traceback" not in made.stdout + made.stderr, made.stdout + made.stderr
    results = read_results(folder / "results.jsonl")
    assert results, made.stdout + made.stderr
    return made.returncode, {(result.check, result.node): (result.verdict.value, result.message) for result in results}


ONE_EACH = {
    "timeout": ["-p", "no:randomly", "--timeout", "300"],
    "rerunfailures": ["-p", "no:randomly", "--reruns", "2"],
    "cov": ["-p", "no:randomly", "--cov", "clusterproof", "--cov-report", "term"],
    "allure": ["-p", "no:randomly", "--alluredir", "allure"],
    "randomly": [],
}
OF_ALL = pytest.param(
    ["--timeout", "300", "--reruns", "1", "--alluredir", "allure", "-n", "2"],
    id="all, two workers",
)


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(options, id=name, marks=pytest.mark.in_turn(name)) for name, options in ONE_EACH.items()),
        OF_ALL,
    ],
)
def test_beside_a_plugin_the_verdicts_are_the_same(
    alone: Outcome, beside_others: Installed, tmp_path: Path, options: list[str]
) -> None:
    assert output_of(beside_others, tmp_path / "beside", *options) == alone


def test_allure_has_every_check_and_how_it_ended(beside_others: Installed, tmp_path: Path) -> None:
    code, verdicts = output_of(beside_others, tmp_path / "run", "--alluredir", "allure")
    assert code == 1
    cases = [json.loads(path.read_text()) for path in (tmp_path / "run" / "allure").glob("*-result.json")]
    status = {"pass": "passed", "fail": "failed", "incomplete": "broken", "not applicable": "skipped"}
    expected = sorted(status[verdict] for verdict, _ in verdicts.values())
    assert sorted(case["status"] for case in cases) == expected


def test_allure_has_pairs_that_are_known_only_when_the_tests_run(beside_others: Installed, tmp_path: Path) -> None:
    arguments = ("--pyargs", "clusterproof.checks", "--cluster", "local", "-m", "perf", "-k", "pairwise", "--no-report")
    ran = beside_others.pytest(tmp_path, *arguments, "-p", "no:randomly", "--alluredir", "allure")
    assert "no two nodes are alike" in ran.stdout, ran.stdout + ran.stderr
    assert "the check itself broke" not in ran.stdout, ran.stdout


def test_a_suite_with_all_of_them_and_ours_runs_as_before(beside_others: Installed, tmp_path: Path) -> None:
    ran = beside_others.pytest(written(tmp_path, SUITE))
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
