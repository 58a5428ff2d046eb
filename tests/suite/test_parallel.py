"""Children examine nodes ahead of the process that reports: the reports are the same as without them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.result import Finding
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.evaluate import ALL_PASSED
from clusterproof.plugins.options import validate
from clusterproof.plugins.suite import outcomes, parallel, run_loop
from tests.builders.runs import DEVICES, LIGHT, Runs, all_verdicts, saying

# Prints which process it runs in, and ends that process if a child gets to the node `end`.
NAMES_ITS_PROCESS = """
    import os
    import signal
    from clusterproof.plugins.core.verdict import concern

    def test_process(node):
        if node.name == "end" and os.getpid() != int(os.environ["PARENT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        concern(f"examined by {os.getpid()}; expected any")
"""
NODES = [saying(f"gpu{number}", "pass") for number in range(1, 9)]


@pytest.fixture
def parallel_runs(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs whose nodes two children examine, however small the run and whatever the machine."""
    monkeypatch.setenv("PARENT", str(os.getpid()))
    monkeypatch.setattr(run_loop, "MANY", 1)
    monkeypatch.setattr(outcomes, "NO_LETTERS_ABOVE", 1)
    monkeypatch.setattr(parallel, "MIN_ITEMS", 1)
    monkeypatch.setattr(parallel, "MIN_GROUP_NODES", 100)
    monkeypatch.setattr(parallel, "BATCH_ITEMS", 3)
    monkeypatch.setattr(parallel, "CHECKS", runs.folder)
    monkeypatch.setattr(parallel, "_processors", lambda: 2)
    return runs


def output_and_records(runs: Runs, *arguments: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The lines and the records of a run over nodes of every verdict."""
    run = runs.over([*all_verdicts(), *NODES], *arguments)
    return run.outlines[3:-1], [{**record, "duration_s": 0} for record in runs.records]


def examiners(runs: Runs) -> list[int]:
    """The process that examined each node."""
    return [int(result.observed.rpartition(" ")[2]) for result in runs.results]


def test_the_same_is_said_with_children_and_without(parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    parallel_runs.checks(test_it=LIGHT, test_gpus=DEVICES)
    with_children = output_and_records(parallel_runs, "-rA")
    monkeypatch.setattr(parallel, "_processors", lambda: 1)
    assert output_and_records(parallel_runs, "-rA") == with_children


def test_each_child_examines_a_share_of_neighbouring_nodes(parallel_runs: Runs) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    parallel_runs.over(NODES)
    first, *_, last = pids = examiners(parallel_runs)
    assert pids == [first] * 4 + [last] * 4
    assert len({first, last, os.getpid()}) == 3


def test_the_parent_examines_what_a_child_did_not_that_was_killed(parallel_runs: Runs) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    ran = parallel_runs.over([*NODES[:2], saying("end", "pass"), *NODES[2:5]])
    assert (ran.ret, all(result.is_evaluated for result in parallel_runs.results)) == (0, True)
    assert [result.node for result in parallel_runs.results] == ["gpu1", "gpu2", "end", "gpu3", "gpu4", "gpu5"]
    own = [pid == os.getpid() for pid in examiners(parallel_runs)]
    assert own == [True] * 3 + [False] * 3


@pytest.mark.parametrize("sent", ["nonsense", None, ([], 0.1), (["pass"], 0.1)])
def test_the_parent_examines_what_a_child_sent_in_no_form_of_ours(
    parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch, sent: object
) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    monkeypatch.setattr(parallel, "_encode", lambda *_: sent)
    parallel_runs.over(NODES)
    assert examiners(parallel_runs) == [os.getpid()] * len(NODES)


def test_the_parent_does_not_wait_for_ever_for_a_child_that_hangs(
    parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS.replace("SIGKILL", "SIGSTOP"))
    monkeypatch.setattr(parallel, "TIMEOUT_S", 0.2)
    parallel_runs.over([saying("end", "pass"), *NODES])
    assert examiners(parallel_runs)[:4] == [os.getpid()] * 4


def test_a_message_of_more_or_fewer_items_than_are_due_is_refused() -> None:
    failed = ([Finding(Verdict.FAIL)], 0.1)
    assert parallel._decode([0.5, failed], 2) == [(ALL_PASSED, 0.5), failed]
    for count in (1, 3):
        with pytest.raises(ValueError, match="2 items"):
            parallel._decode([0.5, 0.5], count)


def test_checks_of_others_are_run_in_the_process_that_reports(
    parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    monkeypatch.setattr(parallel, "CHECKS", parallel_runs.folder / "checks")
    parallel_runs.over(NODES)
    assert examiners(parallel_runs) == [os.getpid()] * len(NODES)


def test_children_examine_nodes_where_hypothesis_is_installed_too(parallel_runs: Runs) -> None:
    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    parallel_runs.over(NODES, "-p", "_hypothesis_pytestplugin")
    assert os.getpid() not in examiners(parallel_runs)


def no_fork() -> int:
    raise AssertionError("forked")


@pytest.mark.parametrize(
    "arguments", [("-v",), ("--pdb",), ("--maxfail", "1", "-v"), ("-p", "hears")], ids=lambda arguments: arguments[0]
)
def test_where_somebody_hears_of_each_test_nothing_is_forked(
    parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    parallel_runs.checks(test_it=LIGHT, hears="def pytest_runtest_call(item):\n    pass\n")
    monkeypatch.syspath_prepend(parallel_runs.folder)
    monkeypatch.setattr(os, "fork", no_fork)
    parallel_runs.over(NODES, *arguments)
    assert set(parallel_runs.verdicts.values()) == {Verdict.PASS}


def test_a_small_run_forks_nothing(parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    parallel_runs.checks(test_it=LIGHT)
    monkeypatch.setattr(parallel, "MIN_ITEMS", len(NODES) + 1)
    monkeypatch.setattr(os, "fork", no_fork)
    parallel_runs.over(NODES)
    assert len(parallel_runs.results) == len(NODES)


def test_a_gate_that_is_to_take_little_memory_forks_nothing(
    parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parallel_runs.checks(test_it=LIGHT)
    monkeypatch.setattr(os, "fork", no_fork)
    monkeypatch.setattr(validate, "_check_gate", lambda _: None)  # it needs a Kubernetes cluster
    parallel_runs.over(NODES, f"--k8s-keep={tmp_path}")
    assert len(parallel_runs.results) == len(NODES)


def test_a_machine_without_room_for_children_does_without(parallel_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError

    parallel_runs.checks(test_it=NAMES_ITS_PROCESS)
    monkeypatch.setattr(os, "fork", fork)
    parallel_runs.over(NODES)
    assert examiners(parallel_runs) == [os.getpid()] * len(NODES)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_where_the_run_ends_early_the_children_do(parallel_runs: Runs, is_interrupted: bool) -> None:
    ends = "if result.node == 'gpu3': raise KeyboardInterrupt" if is_interrupted else "pass"
    fails = NAMES_ITS_PROCESS.replace("concern(", "assert node.name != 'gpu3', (")
    parallel_runs.checks(test_it=fails, conftest=f"def pytest_cluster_result(result):\n    {ends}\n")
    with suppress(KeyboardInterrupt):  # pytest in a separate process would end this way
        parallel_runs.over(NODES, "-x")
    *_, last = (result for result in parallel_runs.results if result.is_evaluated)
    assert last.node == "gpu3"
    pid = int(last.message.split()[2].rstrip(";"))
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def under_a_thread(answer: Callable[[], bool]) -> bool:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        return answer()
    finally:
        done.set()
        thread.join()


def under_a_tracer(answer: Callable[[], bool]) -> bool:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        return answer()
    finally:
        sys.settrace(before)


def beside_another_parent(answer: Callable[[], bool]) -> bool:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        return answer()
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("where", [under_a_thread, under_a_tracer, beside_another_parent])
def test_a_process_that_does_not_act_alone_is_not_forked(where: Callable[[Callable[[], bool]], bool]) -> None:
    assert not where(parallel._can_fork)
