"""Checks of the cluster itself, as a person runs them: pytest, AWS over HTTP, a recording, a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.check import SUBJECTS_OF_CLUSTER
from clusterproof.plugins.result import OF_THE_CLUSTER
from clusterproof.plugins.verdict import Verdict
from tests.aws.clusters import NAME, with_cluster
from tests.aws.service import DENIED, Service
from tests.runs import ROOT, Runs

pytest_plugins = ["pytester"]
CHECKS = str(ROOT / "checks" / "control_plane")
WORKERS = {"workers": ("ml.p5.48xlarge", 3)}


def verdicts(runs: Runs) -> dict[str, Verdict]:
    """The verdict of each check of the cluster."""
    return {result.check: result.verdict for result in runs.results}


def ran(runs: Runs, *arguments: str) -> pytest.RunResult:
    """The checks of the control plane over the cluster."""
    return runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS, *arguments)


def test_the_subjects_of_the_cluster_are_those_that_results_know() -> None:
    assert set(SUBJECTS_OF_CLUSTER) <= set(OF_THE_CLUSTER)


def test_a_cluster_in_service_passes(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    told = ran(runs)
    assert set(verdicts(runs).values()) == {Verdict.PASS}
    told.stdout.fnmatch_lines(["cluster: ml-cluster: 3 nodes (ip-*) by hyperpod, p5.48xlarge"])
    told.stdout.fnmatch_lines(["the cluster itself is fit as far as checked"])


def test_a_cluster_and_a_node_that_are_not_in_service_fail(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    describe, listed = service.changes["DescribeCluster"], service.served["ListClusterNodes"]

    def failing(told: dict[str, Any]) -> None:
        describe(told)
        told["ClusterStatus"], told["FailureMessage"] = "Failed", "no capacity"

    def ill(asked: dict[str, Any]) -> dict[str, Any]:
        told = listed(asked)
        told["ClusterNodeSummaries"][1]["InstanceStatus"]["Status"] = "Failure"
        return told

    service.rewrites("DescribeCluster", failing)
    service.serves("ListClusterNodes", ill)
    told = ran(runs)
    assert verdicts(runs) == {
        "control_plane.cluster_in_service": Verdict.FAIL,
        "control_plane.nodes_running": Verdict.FAIL,
    }
    told.stdout.fnmatch_lines(["FAIL * cluster ml-cluster: The HyperPod cluster is not in service*"])
    told.stdout.fnmatch_lines(["*the cluster is Failed (no capacity); expected InService"])
    told.stdout.fnmatch_lines(["the cluster itself failed"])


def test_a_replay_gives_the_same_verdicts_without_aws(runs: Runs, service: Service, tmp_path: Path) -> None:
    with_cluster(service, WORKERS)
    ran(runs, "--record", str(tmp_path / "recorded"))
    before = verdicts(runs)
    service.calls.clear()
    runs.run("--cluster", f"replay:{tmp_path / 'recorded'}", "--results", str(runs.results_file), CHECKS)
    assert verdicts(runs) == before
    assert service.calls == []


def test_a_call_denied_after_the_inventory_leaves_its_checks_incomplete_and_names_it(
    runs: Runs, service: Service, tmp_path: Path
) -> None:
    with_cluster(service, WORKERS)
    listed = service.served["ListClusterNodes"]
    asked_before: list[object] = []

    def once(asked: dict[str, Any]) -> dict[str, Any]:
        asked_before.append(asked)
        service.says("ListClusterNodes", DENIED)
        return listed(asked)

    service.serves("ListClusterNodes", once)
    told = ran(runs)
    assert set(verdicts(runs).values()) == {Verdict.INCOMPLETE}
    assert told.ret == 6
    told.stdout.fnmatch_lines(["*sagemaker:ListClusterNodes is not allowed to this identity*"])


def test_workers_of_xdist_judge_the_cluster_by_what_the_controller_asked(runs: Runs, service: Service) -> None:
    with_cluster(service, WORKERS)
    recorded = runs.folder / "recorded"
    ran(runs, "--record", str(recorded))
    service.calls.clear()
    runs.run("--cluster", f"replay:{recorded}", "--results", str(runs.results_file), CHECKS, "-n2")
    assert set(verdicts(runs).values()) == {Verdict.PASS}
    assert service.calls == []


def test_a_cluster_that_aws_does_not_know_has_no_such_checks(runs: Runs) -> None:
    told = runs.run("--cluster", "demo", CHECKS)
    told.stdout.fnmatch_lines(["collected 0 items"])
