"""A check's result is the same under each run protocol; passing items of a large run bypass pytest's hooks."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite import outcomes, parallel, run_loop
from tests.builders.runs import DEVICES, LIGHT, USUAL, VERDICTS, Runs, all_verdicts, counts, saying

pytestmark = pytest.mark.any_user

WATCHING = "def pytest_runtest_call(item):\n    pass\n"
SILENT_DEBUGGER = """
    import pdb

    class Silent(pdb.Pdb):
        def interaction(self, *_):
            pass
"""
TELLING_DEBUGGER = """
    import pdb
    import sys
    import traceback

    class Telling(pdb.Pdb):
        def interaction(self, _frame, trace):
            trace = getattr(trace, "__traceback__", trace)  # of an exception, since Python 3.13
            print(f"stopped in {traceback.extract_tb(trace)[-1].name}: {sys.last_value}")
"""
PROTOCOLS: dict[str, tuple[str, ...]] = {
    "a plugin that watches": ("-p", "watching"),
    "a fixture": (),
    "--pdb": ("--pdb", "--pdbcls=debugger:Silent"),
    "xdist": ("-n2",),
    "the fast path": (),
    "children": (),
}


def evaluated(runs: Runs, *arguments: str) -> dict[str, dict[str, Any]]:
    """The one check's record on each node, without its duration."""
    runs.over(all_verdicts(), *arguments)
    return {record["node"]: {**record, "duration_s": 0} for record in runs.records}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_check_is_evaluated_alike_by_each_protocol(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.syspath_prepend(runs.folder)
    runs.checks(test_it=LIGHT, watching=WATCHING, debugger=SILENT_DEBUGGER)
    light = evaluated(runs)
    if protocol == "a fixture":
        runs.checks(test_it=USUAL)
    if protocol in ("the fast path", "children"):
        monkeypatch.setattr(run_loop, "MANY", 1)
        monkeypatch.setattr(outcomes, "NO_LETTERS_ABOVE", 1)
    if protocol == "children":
        monkeypatch.setattr(parallel, "MIN_ITEMS", 1)
        monkeypatch.setattr(parallel, "CHECKS", runs.folder)
        monkeypatch.setattr(parallel, "_processors", lambda: 2)
    assert evaluated(runs, *PROTOCOLS[protocol]) == light
    assert {name: Verdict(record["verdict"]) for name, record in light.items()} == VERDICTS


@pytest.mark.parametrize("protocol", ["a plugin that watches", "--pdb"])
def test_each_protocol_says_the_same_of_every_device(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.syspath_prepend(runs.folder)
    runs.checks(test_gpus=DEVICES, watching=WATCHING, debugger=SILENT_DEBUGGER)
    (runs.folder / "policy.toml").write_text(
        '[disabled."gpu.word_of_gpu"]\nreason = "known"\nuntil = 9999-12-31\nnodes = "gpu004"\n'
    )
    words = [("not applicable", "bad"), ("pass", "incomplete", "bad", "bad"), ("concern", "incomplete"), ("bad", "bad")]
    nodes = [saying(f"gpu{number:03}", *each) for number, each in enumerate(words, 1)]
    records = []
    for arguments in ((), PROTOCOLS[protocol]):
        runs.over(nodes, "--policy=policy.toml", *arguments)
        records.append([{**record, "duration_s": 0} for record in runs.records])
    assert records[0] == records[1]
    assert [record["verdict"] for record in records[1]] == ["fail", "fail", "incomplete", "not applicable"]


def test_the_debugger_stops_in_the_check_on_the_device_with_the_verdict(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(runs.folder)
    runs.checks(test_gpus=DEVICES, telling=TELLING_DEBUGGER)
    run = runs.over([saying("gpu001", "not applicable", "bad")], "--pdb", "--pdbcls=telling:Telling", "-s")
    assert "stopped in say: the word is bad; expected pass" in run.outlines


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat two items as many."""
    monkeypatch.setattr(run_loop, "MANY", 1)
    monkeypatch.setattr(outcomes, "NO_LETTERS_ABOVE", 1)


def test_the_same_is_counted_kept_and_said_in_the_end(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.checks(test_it=LIGHT, test_gpus=DEVICES)
    monkeypatch.setattr(outcomes, "NO_LETTERS_ABOVE", 1)
    reported = []
    for most in (1_000, 1):
        monkeypatch.setattr(run_loop, "MANY", most)
        run = runs.over([*all_verdicts(), *(saying(f"n{number}", "pass") for number in range(9))], "-rA")
        reported.append((counts(run), run.outlines[3:-1], [{**record, "duration_s": 0} for record in runs.records]))
    assert reported[0] == reported[1]


@pytest.mark.usefixtures("large")
def test_what_failed_and_passes_now_is_not_among_the_last_failed(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    passing = [saying(f"gpu00{number}", "pass") for number in range(1, 4)]
    for nodes in ([*passing, saying("gpu009", "bad")], [*passing, saying("gpu009", "pass")]):
        runs.over(nodes, "-p", "cacheprovider")
    again = runs.over([*passing, saying("gpu009", "pass")], "-p", "cacheprovider", "--lf")
    assert "run-last-failure: no previously failed tests, not deselecting items." in again.outlines


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("hook", ["logstart(nodeid)", "logreport(report)", "logfinish(nodeid)"])
def test_each_report_is_available_on_request(runs: Runs, hook: str) -> None:
    runs.checks(conftest=f"def pytest_runtest_{hook}:\n    print('called')\n", test_it=LIGHT)
    run = runs.over([saying(f"gpu00{number}", "pass") for number in range(1, 5)], "-s")
    assert sum("called" in line for line in run.outlines) >= 4


@pytest.mark.usefixtures("large")
def test_with_v_each_test_has_its_line(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([saying(f"gpu00{number}", "pass") for number in range(1, 5)], "-v")
    assert sum("PASSED" in line for line in run.outlines) == 4
