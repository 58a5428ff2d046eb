"""Slurm's report on the cluster, and its checks: each can fail, and all are silent on a healthy cluster."""

from __future__ import annotations

import copy

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.slurm.facts import SlurmNode
from clusterproof.plugins.evidence.slurm.facts_jobs import SlurmJobs
from tests.checks.control_plane.slurm_faults import NODES, SLURM_FAULTS, Json, SlurmFault, healthy, many

OF_SLURM = {
    name.partition(".")[2]: check for name, check in all_checks().items() if check.control_collectors == {"slurm"}
}


def verdicts(slurm: Collected, instance_type: str = "p5.48xlarge") -> dict[str, Result]:
    """The result of every Slurm check on four nodes."""
    targets = tuple(Target(f"gpu{number:03}", instance_type=instance_type) for number in range(1, NODES + 1))
    cluster = Cluster("slurm:gpu", "srun", targets, {"submit_host": "local", "partition": "gpu"})
    evidence = {target.name: NodeEvidence(target.name) for target in targets}
    facts = ClusterFacts(cluster, NodeEvidence(cluster.name, {"slurm": slurm}), nodes(cluster, evidence))
    return {name: evaluate(check, facts) for name, check in OF_SLURM.items()}


def of(report: Json) -> dict[str, Result]:
    return verdicts(Collected(Status.READ, report))


def test_a_healthy_cluster_passes() -> None:
    assert {name: result.verdict for name, result in of(healthy()).items()} == dict.fromkeys(OF_SLURM, Verdict.PASS)


@pytest.mark.parametrize("fault", SLURM_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_its_verdicts_and_no_other(fault: SlurmFault) -> None:
    results = of(fault.put())
    changed = {name: result.verdict for name, result in results.items() if result.verdict is not Verdict.PASS}
    assert changed == fault.expect
    assert fault.words in results[next(iter(fault.expect))].message


def test_every_check_is_proven() -> None:
    assert {name for fault in SLURM_FAULTS for name in fault.expect} == set(OF_SLURM)


def test_slurm_that_does_not_answer_is_incomplete() -> None:
    results = verdicts(
        Collected(Status.BROKE, detail="this host: scontrol show config ended with 1: Unable to contact")
    )
    assert {result.verdict for result in results.values()} == {Verdict.INCOMPLETE}
    assert "Unable to contact" in results["slurm_gres"].message


def test_a_topology_that_could_not_be_read_is_not_called_none() -> None:
    report = healthy()
    many(report)
    report["topology"] = {"error": "Unable to contact slurm controller"}
    result = of(report)["slurm_topology"]
    assert result.verdict is Verdict.INCOMPLETE
    assert "slurm: topology could not be read (Unable to contact slurm controller)" in result.message


@pytest.mark.parametrize("key", ["nodes", "config"])
def test_what_slurm_did_not_report_is_no_pass(key: str) -> None:
    report = copy.deepcopy(healthy())
    del report[key]
    assert Verdict.INCOMPLETE in {result.verdict for result in of(report).values()}
    assert Verdict.FAIL not in {result.verdict for result in of(report).values()}


def test_gpus_of_a_type_that_nobody_knows_are_incomplete() -> None:
    result = verdicts(Collected(Status.READ, healthy()), instance_type="")["slurm_gres"]
    assert result.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("state", "takes_jobs"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED", True),
        ("IDLE+CLOUD", True),
        ("IDLE+DYNAMIC_NORM", True),
        ("IDLE+COMPLETING", True),
        ("IDLE+PLANNED", True),
        ("IDLE*", False),
        ("IDLE+DRAIN", False),
        ("MIXED+DRAIN", False),
        ("DOWN", False),
        ("DOWN*+DRAIN", False),
        ("IDLE+CLOUD+POWERED_DOWN", False),
        ("IDLE+NOT_RESPONDING", False),
        ("FUTURE", False),
        ("UNKNOWN", False),
        ("", False),
        ("POW_DN", False),
        ("IDLE+CLOUD+POWER", False),  # Slurm 20.11
        ("IDLE+CLOUD+DYNAMIC", True),  # 21.08
        ("FUTR", False),
    ],
)
def test_the_states_of_a_node_that_takes_jobs(state: str, takes_jobs: bool) -> None:
    assert SlurmNode({"state": state}).takes_jobs is takes_jobs


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", Verdict.PASS),
        ("IDLE+CLOUD+POWERING_DOWN+NOT_RESPONDING", Verdict.PASS),
        ("MIXED+CLOUD+POWER_DOWN", Verdict.PASS),
        ("IDLE+CLOUD+POWER", Verdict.PASS),  # Slurm 20.11
        ("DOWN*+CLOUD+POWER", Verdict.FAIL),
        ("IDLE+DYNAMIC", Verdict.PASS),  # 21.08
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", Verdict.PASS),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWER_UP", Verdict.PASS),
        ("DOWN+CLOUD+POWERING_UP", Verdict.FAIL),
        ("DOWN+CLOUD+POWERED_DOWN", Verdict.FAIL),
        ("IDLE+CLOUD+DRAIN+POWERED_DOWN", Verdict.FAIL),
        ("IDLE+CLOUD+NOT_RESPONDING", Verdict.FAIL),
        ("IDLE+DRAI", Verdict.INCOMPLETE),
        ("DOWN+DRAI", Verdict.FAIL),
    ],
)
def test_a_node_that_slurm_powers_up_for_a_job_takes_jobs(state: str, verdict: Verdict) -> None:
    report = copy.deepcopy(healthy())
    report["nodes"][1]["state"] = state
    assert of(report)["slurm_nodes_take_jobs"].verdict is verdict


@pytest.mark.parametrize(("job", "nodes"), [("9", ("gpu001", "gpu002")), ("7_1", ("gpu001", "gpu002")), ("7", ())])
def test_a_job_is_known_by_its_number_and_as_squeue_shows_it(job: str, nodes: tuple[str, ...]) -> None:
    jobs = SlurmJobs({"jobs": [["7_1", "9", "gpu[001-002]", "RUNNING"]]})
    assert jobs.nodes_of(job) == nodes
    assert jobs.state_of(job) == ("running" if nodes else "")


@pytest.mark.parametrize(
    ("job", "others"),
    [("77", ("77+1",)), ("77+0", ("77+1",)), ("77+1", ("77+0",)), ("78", ("77+0",)), ("7", ()), ("7_1", ()), ("8", ())],
)
def test_the_other_components_of_a_heterogeneous_job_are_known(job: str, others: tuple[str, ...]) -> None:
    rows = [("77+0", "77", "gpu[001-002]"), ("77+1", "78", "cpu001"), ("7_1", "7", "gpu003"), ("7_2", "8", "gpu004")]
    assert SlurmJobs({"jobs": [[*row, "RUNNING"] for row in rows]}).other_components_of(job) == others


@pytest.mark.parametrize(
    ("state", "takes_steps"),
    [
        ("SIGNALING", True),
        ("STOPPED", True),
        ("RESIZING", True),
        ("SUSPENDED", False),
        ("CONFIGURING", False),
        ("COMPLETING", False),
    ],
)
def test_a_job_that_has_nodes_takes_steps_by_its_state(state: str, takes_steps: bool) -> None:
    jobs = SlurmJobs({"jobs": [["9", "9", "gpu001", state]]})
    assert bool(jobs.nodes_of("9")) is takes_steps
    assert jobs.state_of("9") == state.lower()
