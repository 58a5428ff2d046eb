"""Slurm's report on the cluster, and its checks: each can fail, and all are silent on a healthy cluster."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent import tools
from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.slurm import slurm as collector
from clusterproof.plugins.evidence.slurm import slurm_jobs
from clusterproof.plugins.evidence.slurm.facts import SlurmCluster, SlurmJobs, SlurmNode
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


# The collector, with commands that print real clusters' output

SAMPLES = Path(__file__).parents[4] / "shared" / "samples" / "slurm"
NODE = (
    "NodeName=gpu1 Arch=x86_64 CPUAlloc=0 ActiveFeatures=(null) Gres=gpu:h100:8(S:0-1) NodeAddr=10.0.0.1 "
    "NodeHostName=gpu1 OS=Linux 6.8 #1 SMP State=IDLE+DRAIN Partitions=gpu,all  Reason=fan = loud; see #12 "
    "[root@2026-07-22T23:31:17]\n"
)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, first on PATH; scontrol and squeue print the files next to them."""
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\nfor last; do :; done\n[ {name} = squeue ] && last=jobs\nexec cat "{tmp_path}/$last"\n'
        )
        (tmp_path / name).chmod(0o755)
    for name, text in {
        "config": "ClusterName = c1\nPrologEpilogTimeout     = 300\nHealthCheckProgram = (null)\n\nslurmctld is UP\n",
        "node": NODE,
        "partition": "PartitionName=gpu AllowGroups=ALL Default=YES Nodes=gpu1 State=UP\n",
        "jobs": "12_3|15|gpu1|RUNNING\n",
        "topology": "SwitchName=core Level=1 LinkSpeed=1 Nodes=gpu[1-2] Switches=leaf0\n"
        "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=gpu[1-2]\nSwitchName=spare Level=0 Nodes=(null)\n"
        "BlockName=b1 BlockIndex=0 Nodes=gpu3 BlockSize=4\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "15")
    return tmp_path


def read() -> Any:
    return collector.read(Node())


@pytest.mark.long
def test_the_collector_reports_nodes_partitions_jobs_settings_and_topology(commands: Path) -> None:
    assert read() == {
        "nodes": [
            {
                "name": "gpu1",
                "host": "gpu1",
                "address": "10.0.0.1",
                "state": "IDLE+DRAIN",
                "gres": "gpu:h100:8(S:0-1)",
                "partitions": "gpu,all",
                "features": "",
                "reason": "fan = loud; see #12",
                "reason_user": "root",
                "reason_time": "2026-07-22T23:31:17",
            }
        ],
        "partitions": [{"partition": "gpu", "state": "UP", "is_default": True}],
        "config": {"PrologEpilogTimeout": "300", "HealthCheckProgram": "(null)"},
        "topology": [{"switch": "leaf0", "nodes": "gpu[1-2]"}, {"switch": "b1", "nodes": "gpu3"}],
    }
    assert slurm_jobs.read(Node()) == {"jobs": [["12_3", "15", "gpu1", "RUNNING"]], "job": "15"}


@pytest.mark.long
def test_slurm_is_asked_by_the_slurm_conf_that_srun_goes_by(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_CONF": "/opt/c1/slurm.conf", "SQUEUE_USERS": "ann", "SLURM_CLUSTERS": "c2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("scontrol", "squeue"):
        text = (commands / name).read_text()
        (commands / name).write_text(text.replace("exec", f'env | grep ^S[LQ] >>"{commands}/environment"\nexec'))
    read(), slurm_jobs.read(Node())
    assert (commands / "environment").read_text() == "SLURM_CONF=/opt/c1/slurm.conf\n" * 5


@pytest.mark.long
@pytest.mark.parametrize("printed", ["scontrol: error: No topology information available\n", ""])
def test_a_cluster_without_a_topology_says_none(printed: str, commands: Path) -> None:
    (commands / "topology").write_text(printed)
    assert read()["topology"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (
            "slurm_load_topo error: Unable to contact slurm controller (connect failure)\n",  # it ends with 0
            "Unable to contact slurm controller (connect failure)",
        ),
        (None, "scontrol show topology ended with 1: "),
    ],
)
def test_a_topology_that_slurm_does_not_report_is_unknown(printed: str | None, error: str, commands: Path) -> None:
    (commands / "topology").unlink()
    if printed:
        (commands / "topology").write_text(printed)
    topology = read()["topology"]
    assert topology["error"].startswith(error)
    report = healthy()
    many(report)
    result = of({**report, "topology": topology})["slurm_topology"]
    assert result.verdict is Verdict.INCOMPLETE
    assert f"slurm: topology could not be read ({error[:20]}" in result.message


@pytest.mark.long
def test_what_slurms_commands_warn_of_is_no_partition_and_no_job(commands: Path) -> None:
    before = read(), slurm_jobs.read(Node())
    for name in ("partition", "jobs", "node"):
        text = (commands / name).read_text()
        (commands / name).write_text(f"error: _parse_next_key: Parsing error at unrecognized key: Parameters\n{text}")
    assert (read(), slurm_jobs.read(Node())) == before


@pytest.mark.long
def test_a_command_that_fails_is_broken_evidence(commands: Path) -> None:
    (commands / "node").unlink()
    with pytest.raises(Broke, match="scontrol -o show node ended with 1"):
        read()


def test_a_host_without_slurm_has_no_such_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "FOLDERS", ("/nowhere",))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Absent, match="no scontrol on PATH"):
        read()


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the captures lie beside the checkout")
@pytest.mark.parametrize(
    ("sample", "count", "states"),
    [("scky-24.11.7-scontrol_nodes.txt", 20, {"MIXED+DYNAMIC_NORM", "IDLE+DYNAMIC_NORM"})],
)
def test_nodes_of_a_real_cluster_are_read(commands: Path, sample: str, count: int, states: set[str]) -> None:
    shutil.copy(SAMPLES / sample, commands / "node")
    rows = read()["nodes"]
    assert len(rows) == count
    assert {row["state"] for row in rows} == states


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the captures lie beside the checkout")
def test_the_configuration_of_a_real_cluster_is_read(commands: Path) -> None:
    shutil.copy(SAMPLES / "gcm-sample-scontrol-show-config-output.txt", commands / "config")
    cluster = SlurmCluster(read())
    assert cluster.program("Prolog") == "/public/slurm/prolog/prologs.sh"
    assert cluster.limit_of("Prolog") == "300"
    assert cluster.setting("HealthCheckInterval") == "0"
    assert cluster.setting("HealthCheckProgram") == ""
