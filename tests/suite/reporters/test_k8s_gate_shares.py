"""A gate that evaluates a part of its nodes: it leaves the others' conditions alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.kubernetes.gate import FALSE, TRUE, GateSettings, Health
from clusterproof.plugins.kubernetes.gate.round import KeptVerdict, Round, keep_verdicts, kept_verdicts, pop_stored
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.suite.reporters import k8s_gate
from clusterproof.plugins.suite.reporters.k8s_gate import K8sGateReporter
from clusterproof.plugins.transport.kubernetes.report_cache import ReportCache

OTHER = KeptVerdict(Health(FALSE, "GpuGpuCount", "7 GPUs"), 900.0)
PASSES = (Result("gpu.a", "n1", Verdict.PASS), Result("gpu.a", "n2", Verdict.PASS))
Share = tuple[list[tuple[Mapping[str, Health], Mapping[str, float]]], Round]


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A process that found this in a part of the nodes, or in all: what it wrote, and what it left."""

    def of(*results: Result, is_part: bool = True) -> Share:
        written: list[Any] = []
        monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
        monkeypatch.setattr(
            k8s_gate, "write", lambda *given: written.append((given[2], given[5])) or WriteOutcome((), ())
        )
        plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None))
        option = SimpleNamespace(k8s_keep=str(tmp_path), k8s_evidence=None)
        session: Any = SimpleNamespace(
            config=SimpleNamespace(option=option, pluginmanager=plugins), shouldfail="", shouldstop="", exitstatus=0
        )
        reporter = K8sGateReporter.__new__(K8sGateReporter)
        reporter.orders, reporter.began, reporter.results = GateSettings(), 1000.0, results
        reporter.cluster = Cluster("k8s:bed", "kubernetes", (), is_part=is_part)
        reporter.pytest_sessionfinish(session)
        left = pop_stored(tmp_path)
        assert left
        return written, left

    return of


def test_what_stands_of_other_nodes_is_written_with_the_time_of_their_own_evaluation(
    share: Any, tmp_path: Path
) -> None:
    keep_verdicts(tmp_path, {"n9": OTHER})
    (written,), left = share(*PASSES)
    healths, began = written
    assert {name: health.status for name, health in healths.items()} == {"n1": TRUE, "n2": TRUE, "n9": FALSE}
    assert began == {"n9": 900.0}
    assert left.statuses == {TRUE: 2, FALSE: 1}
    assert kept_verdicts(tmp_path)["n9"] == OTHER
    assert {name: verdict.began for name, verdict in kept_verdicts(tmp_path).items()} == {
        "n1": 1000.0,
        "n2": 1000.0,
        "n9": 900.0,
    }


def test_where_all_nodes_are_evaluated_nothing_stands_of_one_that_is_gone(share: Any, tmp_path: Path) -> None:
    keep_verdicts(tmp_path, {"n9": OTHER})
    (written,), _ = share(*PASSES, is_part=False)
    assert written[0].keys() == kept_verdicts(tmp_path).keys() == {"n1", "n2"}


def test_a_part_of_which_the_same_was_found_is_not_written_again(share: Any, tmp_path: Path) -> None:
    share(*PASSES)
    written, left = share(*PASSES)
    assert (written, left.lines) == ([], ["2 of 2 nodes were evaluated: all as before"])
    (written,), _ = share(PASSES[0], Result("gpu.a", "n2", Verdict.FAIL))
    assert written[0]["n2"].status == FALSE
    assert kept_verdicts(tmp_path)["n2"].health.status == FALSE


def test_a_failure_that_is_not_confirmed_yet_is_reported_though_all_else_is_as_before(
    share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(PASSES[0])
    monkeypatch.setattr(K8sGateReporter, "_unconfirmed", lambda *_: frozenset({"n2"}))
    _, left = share(PASSES[0], Result("gpu.a", "n2", Verdict.FAIL))
    assert [line for line in left.lines if line.startswith("n2: GpuA only beside other nodes")]
    assert left.silent == ["n2"]


def test_a_node_that_the_api_server_let_nobody_ask_stands_no_more_and_is_to_be_evaluated(
    share: Any, tmp_path: Path
) -> None:
    share(*PASSES)
    _, left = share(PASSES[0], Result("node.reachable", "n2", Verdict.INCOMPLETE, cause="unreachable: throttled"))
    assert kept_verdicts(tmp_path).keys() == {"n1"}
    assert left.is_open
    assert left.problems


@pytest.mark.parametrize("text", ["", "{", "[]", '{"n1": {}}', '{"n1": {"health": {"status": "True"}, "began": 1}}'])
def test_half_of_a_file_stands_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "standing.json").write_text(text)
    assert kept_verdicts(tmp_path) == {}


def test_a_node_that_fails_beside_others_is_confirmed_though_other_shares_were_evaluated_meanwhile(
    tmp_path: Path,
) -> None:
    kept = ReportCache(str(tmp_path))
    assert kept.unconfirmed(["n1"], 1.0, ["n1", "n2"]) == {"n1"}
    assert kept.unconfirmed(["n9"], 2.0, ["n8", "n9"]) == {"n9"}
    assert kept.unconfirmed(["n1"], 3.0, ["n1", "n2"]) == frozenset()
    assert kept.unconfirmed([], 4.0, ["n8", "n9"]) == frozenset()
    assert kept.unconfirmed(["n9"], 5.0, ["n8", "n9"]) == {"n9"}
