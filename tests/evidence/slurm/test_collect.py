"""The collectors `slurm` and `slurm_jobs`, with commands that print real clusters' output."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent import tools
from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.evidence.slurm import slurm as collector
from clusterproof.plugins.evidence.slurm import slurm_jobs
from clusterproof.plugins.evidence.slurm.facts import SlurmCluster

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
def test_nodes_in_a_ring_or_a_torus_of_slurm_26_05_are_in_its_topology(commands: Path) -> None:
    text = "RingName=r1 Nodes=gpu[1-4] RingSize=4\nTorusName=t1 Dims=2x2x2 Nodes=tpu[1-8]\n"
    (commands / "topology").write_text(text)
    assert read()["topology"] == [{"switch": "r1", "nodes": "gpu[1-4]"}, {"switch": "t1", "nodes": "tpu[1-8]"}]


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
    assert read()["topology"]["error"].startswith(error)


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


@pytest.mark.long
def test_slurm_is_found_where_nobodys_path_has_it(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "ELSEWHERE", (str(commands),))
    monkeypatch.setenv("PATH", "/nowhere")
    assert [node["name"] for node in read()["nodes"]] == ["gpu1"]


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
