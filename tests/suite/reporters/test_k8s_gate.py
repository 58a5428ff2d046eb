"""`--k8s-gate`: invalid requests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import INTERRUPTED, Result
from clusterproof.plugins.core.verdict import EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.kubernetes.gate import GateSettings
from clusterproof.plugins.kubernetes.gate.round import pop_stored
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.suite.ending import EXIT_UNWRITTEN
from clusterproof.plugins.suite.reporters import k8s_gate
from clusterproof.plugins.suite.reporters.k8s_gate import K8sGateReporter, orders_of
from tests.builders.runs import Runs

USUAL = {
    "k8s_gate": "observe",
    "k8s_max_tainted": None,
    "k8s_startup_taint": None,
    "redact": False,
    "keyword": "",
    "markexpr": "prolog or epilog",
    "lf": False,
    "stepwise": False,
    "deselect": None,
    "paths": ["checks"],
}


def orders(connection: str = "kubernetes", **given: Any) -> GateSettings:
    option = SimpleNamespace(**{**USUAL, **given})
    config: Any = SimpleNamespace(option=option, args=option.paths, getoption=lambda name, _: getattr(option, name))
    return orders_of(config, Cluster("k8s:bed", connection, ()))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"keyword": "gpu_count"}, "with -k: some checks prove no node; expected -m 'prolog or epilog'"),
        ({"lf": True}, "with --lf: some checks prove no node"),
        ({"stepwise": True}, "with --sw: some checks prove no node"),
        ({"deselect": ["checks/gpu"]}, "with --deselect: some checks prove no node"),
        ({"paths": ["checks/gpu/test_xid.py::test_no_xid"]}, "test_no_xid: some checks prove no node"),
        ({"markexpr": "job"}, "with -m job: some checks prove no node"),
        ({"markexpr": "prolog"}, "-m 'prolog': there a process that runs is a fault, and pods run"),
        ({"markexpr": "epilog"}, "expected -m 'prolog or epilog'"),
        ({"markexpr": "ami"}, "expected -m 'prolog or epilog'"),
        ({"redact": True}, "--k8s-gate with --redact: redacted names are not the nodes' own"),
        ({"k8s_max_tainted": "10%"}, "--k8s-max-tainted bounds --k8s-gate taint; expected that, or none of it"),
        ({"k8s_gate": "taint", "k8s_max_tainted": "many"}, "expected a number, a share, or both: 10%,10"),
        (
            {"k8s_startup_taint": "nvidia.com/gpu"},
            "--k8s-startup-taint: 'nvidia.com/gpu' is not a taint of this suite",
        ),
        ({"connection": "replay"}, "k8s:bed is reached by replay; expected k8s:…, eks:… or HyperPod"),
    ],
)
def test_what_proves_no_node_or_means_nothing_is_refused(said: dict[str, Any], expected: str) -> None:
    with pytest.raises(pytest.UsageError) as wrong:
        orders(**said)
    assert expected in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("markexpr", ["prolog or epilog", "", "preflight", "prolog or epilog or control_plane"])
def test_whole_sets_of_checks_may_be(markexpr: str) -> None:
    assert orders(markexpr=markexpr) == GateSettings("observe", "10%,10", "")


WHOLE = [Result("gpu.a", "gpu001", Verdict.PASS), Result("gpu.a", "gpu002", Verdict.FAIL)]
MISSING = Result("gpu.a", "gpu003", Verdict.INCOMPLETE, cause=INTERRUPTED)


@pytest.mark.parametrize(
    ("results", "exit_code", "stopped", "raised", "is_written"),
    [
        (WHOLE, 1, "", None, True),
        (WHOLE, 2, "", None, True),
        ([*WHOLE, MISSING], 2, "", None, False),
        ([*WHOLE, MISSING], 1, "stopping after 1 failures", None, False),
        ([], 2, "", KeyboardInterrupt("SIGTERM"), False),
        (WHOLE, 3, "", None, False),
    ],
    ids=["whole", "whole, on a full disk", "a worker was lost", "-x", "SIGTERM before the first check", "broken"],
)
def test_a_run_that_did_not_evaluate_all_changes_no_node(
    monkeypatch: pytest.MonkeyPatch,
    results: list[Result],
    exit_code: int,
    stopped: str,
    raised: BaseException | None,
    is_written: bool,
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
    monkeypatch.setattr(k8s_gate, "write", lambda *given: written.append(given[2]) or WriteOutcome((), ()))
    outcomes = SimpleNamespace(broken=0, raised=raised)
    config: Any = SimpleNamespace(
        option=SimpleNamespace(k8s_keep=None, k8s_evidence=None),
        pluginmanager=SimpleNamespace(get_plugin=lambda _: outcomes),
    )
    session: Any = SimpleNamespace(config=config, shouldfail=stopped, shouldstop="", exitstatus=exit_code)
    gate = K8sGateReporter.__new__(K8sGateReporter)
    gate.orders, gate.cluster, gate.results, gate.began = (
        orders(),
        Cluster("k8s:bed", "kubernetes", ()),
        results,
        0.0,
    )
    gate.pytest_sessionfinish(session)
    assert [set(healths) for healths in written] == ([{"gpu001", "gpu002"}] if is_written else [])
    assert bool(gate.written.problems) is not is_written


def test_an_outage_of_the_api_server_is_reported_and_changes_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
    monkeypatch.setattr(k8s_gate, "write", lambda *given: written.append(given[2]) or WriteOutcome((), ()))
    message = "429: Too many requests; expected a smaller --fanout"
    missed = [
        Result("node.reachable", f"gpu00{number}", Verdict.INCOMPLETE, message=message, cause="unreachable: throttled")
        for number in range(1, 9)
    ]
    config: Any = SimpleNamespace(
        option=SimpleNamespace(k8s_keep=None, k8s_evidence=None),
        pluginmanager=SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None)),
    )
    session: Any = SimpleNamespace(config=config, shouldfail="", shouldstop="", exitstatus=EXIT_INCOMPLETE)
    gate = K8sGateReporter.__new__(K8sGateReporter)
    gate.orders, gate.cluster, gate.results, gate.began = (
        orders(),
        Cluster("k8s:bed", "kubernetes", ()),
        missed,
        0.0,
    )
    gate.pytest_sessionfinish(session)
    assert written == [{}]
    assert gate.written.problems == (f"gpu[001-008]: not evaluated, and their conditions stay as they are: {message}",)
    assert session.exitstatus == EXIT_UNWRITTEN


def test_words_of_the_gate_need_the_gate(runs: Runs) -> None:
    run = runs.over([], "--k8s-startup-taint", "clusterproof.dev/unproven")
    assert run.ret == 4
    run.stderr.fnmatch_lines(["*--k8s-startup-taint is for the gate; expected --k8s-gate with it*"])


def test_a_round_of_a_gate_leaves_what_it_found_to_the_one_that_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
    monkeypatch.setattr(k8s_gate, "write", lambda *_: WriteOutcome(("written",), (), {"gpu002": "is False"}))
    plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None))
    config: Any = SimpleNamespace(
        option=SimpleNamespace(k8s_keep=str(tmp_path), k8s_evidence=None), pluginmanager=plugins
    )
    session: Any = SimpleNamespace(config=config, shouldfail="", shouldstop="", exitstatus=1)
    reporter = K8sGateReporter.__new__(K8sGateReporter)
    reporter.orders, reporter.cluster = orders(), Cluster("k8s:bed", "kubernetes", ())
    reporter.results, reporter.began = WHOLE, 1000.0
    reporter.pytest_sessionfinish(session)
    left = pop_stored(tmp_path)
    assert left
    assert (left.statuses, left.unfit) == ({"True": 1, "False": 1}, {"gpu002": "GpuA"})
    assert (left.began, left.changes, left.problems) == (1000.0, {"gpu002": "is False"}, [])


def test_a_folder_that_is_not_there_is_a_problem_of_the_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
    monkeypatch.setattr(k8s_gate, "write", lambda *_: WriteOutcome((), ()))
    plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None))
    option = SimpleNamespace(k8s_keep=str(tmp_path / "gone"), k8s_evidence=None)
    config: Any = SimpleNamespace(option=option, pluginmanager=plugins)
    session: Any = SimpleNamespace(config=config, shouldfail="", shouldstop="", exitstatus=1)
    reporter = K8sGateReporter.__new__(K8sGateReporter)
    reporter.orders, reporter.cluster = orders(), Cluster("k8s:bed", "kubernetes", ())
    reporter.results, reporter.began = WHOLE, 1000.0
    reporter.pytest_sessionfinish(session)
    assert "No such file or directory; expected a folder that may be written" in reporter.written.problems[0]
    assert session.exitstatus == EXIT_UNWRITTEN
