"""A gate's reports on its rounds: a line for each round and change, and metrics for Prometheus."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from clusterproof.plugins.command_line import gate as command
from clusterproof.plugins.kubernetes.gate import Health
from clusterproof.plugins.kubernetes.gate.metrics import GateMetrics
from clusterproof.plugins.kubernetes.gate.round import Round, pop_stored, round_of, store
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.watch.http_server import Address, Listener
from tests.counterparts import installed

FIT, UNFIT = Health("True", "ChecksPassed", "63 checks"), Health("False", "GpuGpuCount", "7 GPUs")
LATE, INCOMPLETE = Health("Unknown", "NotReached", "late"), Health("Unknown", "Incomplete", "no log")
HEALTHS = {"gpu001": FIT, "gpu002": FIT, "gpu003": UNFIT, "gpu004": LATE, "gpu005": INCOMPLETE}
WAS = "ClusterproofHealthy is True, was not there: 63 checks"
CHANGES = {"gpu001": WAS, "gpu002": WAS, "gpu003": "ClusterproofHealthy is False, was True: 7 GPUs"}
LINES = ("ClusterproofHealthy of 5 of 5 nodes: 2 True", "gpu003: got the taint x")


def evaluated_round(problems: tuple[str, ...] = ()) -> Round:
    written, requests = WriteOutcome(LINES, problems, CHANGES), {"GET 200": 8, "PATCH 409": 1, "GET 0": 1}
    return round_of(1000.0, 1002.5, HEALTHS, {"gpu001": 1001.0, "gpu002": 400.0}, written, requests)


def metrics(tally: GateMetrics) -> dict[str, float]:
    """Each series by name and labels, without their prefix."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(tally)
    lines = generate_latest(registry).decode().splitlines()
    return {
        name.removeprefix("clusterproof_gate_"): float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_a_round_is_a_line_and_each_change_another() -> None:
    assert list(evaluated_round(("403 Forbidden",)).log_lines()) == [
        "ClusterproofHealthy of 5 of 5 nodes: 2 True (10 requests, 2.5 s)",
        "gpu[001-002]: ClusterproofHealthy is True, was not there: 63 checks",
        "gpu003: ClusterproofHealthy is False, was True: 7 GPUs",
        "gpu003: got the taint x",
        "not written: 403 Forbidden",
    ]


def test_a_round_is_read_once_as_it_was_left(tmp_path: Path) -> None:
    store(tmp_path, evaluated_round())
    assert pop_stored(tmp_path) == evaluated_round()
    assert pop_stored(tmp_path) is None


def test_nodes_are_counted_by_status_and_the_unfit_named() -> None:
    tally = GateMetrics(60)
    tally.add(evaluated_round())
    values = metrics(tally)
    assert [values[f'nodes{{status="{status}"}}'] for status in ("True", "False", "Unknown")] == [2, 1, 2]
    assert [name for name in values if "unfit" in name] == ['node_unfit{node="gpu003",reason="GpuGpuCount"}']
    assert {name: value for name, value in values.items() if name.startswith("node_unknown")} == {
        'node_unknown{node="gpu004",reason="NotReached"}': 1,
        'node_unknown{node="gpu005",reason="Incomplete"}': 1,
    }


def test_a_node_of_which_nothing_was_found_stays_unfit_and_is_nothing_better_than_unknown() -> None:
    tally = GateMetrics(60)
    tally.add(evaluated_round())
    silent = round_of(2000.0, 2001.0, {"gpu002": FIT}, {}, WriteOutcome((), ()), {}, ["gpu001", "gpu003", "gpu004"])
    for _ in range(2):
        tally.add(silent, silent.silent)
    values = metrics(tally)
    assert [values[f'nodes{{status="{status}"}}'] for status in ("True", "False", "Unknown")] == [1, 1, 2]
    assert [name for name in values if "node_un" in name] == [
        'node_unfit{node="gpu003",reason="GpuGpuCount"}',
        'node_unknown{node="gpu001",reason="NotEvaluated"}',
        'node_unknown{node="gpu004",reason="NotEvaluated"}',
    ]
    assert silent.is_open


def test_a_round_that_left_nothing_leaves_no_node_proven_that_it_was_to_evaluate() -> None:
    tally = GateMetrics(60)
    tally.add(evaluated_round())
    for _ in range(2):
        tally.add(None, {"gpu001", "gpu003", "gpu004"})
    values = metrics(tally)
    assert [values[f'nodes{{status="{status}"}}'] for status in ("True", "False", "Unknown")] == [1, 1, 3]
    assert {name for name in values if "node_un" in name} == {
        'node_unfit{node="gpu003",reason="GpuGpuCount"}',
        'node_unknown{node="gpu001",reason="NotEvaluated"}',
        'node_unknown{node="gpu004",reason="NotReached"}',
        'node_unknown{node="gpu005",reason="Incomplete"}',
    }


def test_a_report_is_as_old_as_it_was_read() -> None:
    tally = GateMetrics(60)
    tally.add(evaluated_round())
    assert {name: at for name, at in metrics(tally).items() if name.startswith("report_")} == {
        'report_timestamp_seconds{node="gpu001"}': 1001.0,
        'report_timestamp_seconds{node="gpu002"}': 400.0,
    }


def test_rounds_requests_and_changes_are_counted() -> None:
    tally = GateMetrics(60)
    for round_ in (evaluated_round(), evaluated_round(("403",)), None):
        tally.add(round_)
    values = metrics(tally)
    assert [values[f'rounds_total{{outcome="{outcome}"}}'] for outcome in ("written", "unwritten", "failed")] == [1] * 3
    assert values['api_requests_total{code="409",method="PATCH"}'] == 2
    assert values['api_requests_total{code="0",method="GET"}'] == 2
    assert (values["changes_total"], values["round_duration_seconds"]) == (6, 2.5)


@installed.needs("prometheus")
def test_prometheus_linter_has_nothing_against_them() -> None:
    tally = GateMetrics(60)
    tally.add(evaluated_round())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(tally)
    text = generate_latest(registry)
    done = subprocess.run([installed.folder("prometheus") / "lint"], input=text, capture_output=True)
    assert done.stdout.decode() == ""


def test_they_are_asked_for_by_http() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GateMetrics(60))
    listener = Listener(Address.of(":0"), {"/metrics": make_wsgi_app(registry)})
    try:
        with urllib.request.urlopen(f"{listener.url}metrics", timeout=600) as answer:
            assert b"clusterproof_gate_interval_seconds 60.0" in answer.read()
    finally:
        listener.close()


def test_a_port_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, message = command.gate(["run", "k8s:x", "--listen", "9188"])
    assert (status, message) == (4, "clusterproof gate: --listen is '9188'; expected [HOST]:PORT, such as :9188\n")
