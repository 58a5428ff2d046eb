"""Limits on numbers: harmless excess is counted, and excess that could hide a fault is incomplete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml
import pytest

from clusterproof.plugins.agent.reading import MAX_FILE_BYTES, Broke, Node
from clusterproof.plugins.agent.tools import MAX_LISTING_BYTES, MAX_OUTPUT_BYTES, command, lines
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.gpu import collect_nvml_gpu
from clusterproof.plugins.evidence.host.collect_processes import MAX_BLOCKED
from clusterproof.plugins.evidence.slurm import slurm, slurm_jobs
from clusterproof.plugins.evidence.slurm.facts import SlurmCluster
from clusterproof.plugins.evidence.storage.collect_mounts import MAX_FSTAB, MAX_MOUNTS, read
from tests.builders.evaluated import verdict_of
from tests.builders.probed import host_root, read_under

MOUNTS: dict[str, Any] = {"mounts": [], "fstab": [], "passed_over": 0}


def test_a_file_that_is_too_long_to_be_read_whole_is_not_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * MAX_FILE_BYTES)
    node = Node(str(tmp_path))
    assert len(node.read("/file")) == MAX_FILE_BYTES
    (tmp_path / "file").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert node.text("/file") == {"error": "EFBIG", "text": "/file: File too large"}


@pytest.mark.long
def test_a_listing_without_end_is_not_understood() -> None:
    with pytest.raises(Broke, match=r"head -c \d+ /dev/zero prints more than"):
        lines(Node(collector_s=60), "head", "-c", str(MAX_LISTING_BYTES + 1), "/dev/zero")


@pytest.mark.long
def test_a_program_that_prints_too_much_is_not_passed_on_as_whole() -> None:
    answer = command(Node(collector_s=60), "head", "-c", str(MAX_OUTPUT_BYTES), "/dev/zero")
    assert len(str(answer["output"])) == MAX_OUTPUT_BYTES
    with pytest.raises(Broke, match=r"head -c \d+ /dev/zero prints more than"):
        command(Node(collector_s=60), "head", "-c", str(MAX_OUTPUT_BYTES + 1), "/dev/zero")


@pytest.mark.long
def test_every_job_and_every_switch_of_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = "\n".join(f"SwitchName=s{number} Level=0 Nodes=gpu{number}" for number in range(9_000))
    jobs = "\n".join(f"{number}|{number}|gpu1|RUNNING" for number in range(30_000))
    for name, text in {"switches": switches, "jobs": jobs}.items():
        (tmp_path / name).write_text(text)
    for name, text in {
        "scontrol": f'#!/bin/sh\ncase "$*" in *topology) cat {tmp_path}/switches ;; esac\n',
        "squeue": f"#!/bin/sh\ncat {tmp_path}/jobs\n",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    shown: Any = slurm_jobs.read(Node(collector_s=60))
    assert len(shown["jobs"]) == 30_000
    cluster: Any = slurm.read(Node(collector_s=60))
    assert len(SlurmCluster(cluster).switches) == 9_000


def test_each_control_group_has_some_of_many_processes_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`_process` and the driver's calls are replaced: their own tests are in tests/evidence/gpu."""
    of_job = [{"pid": pid, "cgroup": "/job_7"} for pid in range(1000)]
    monkeypatch.setattr(collect_nvml_gpu, "_processes", lambda *_: [*of_job, {"pid": 1000, "cgroup": "/stray"}])
    monkeypatch.setattr(collect_nvml_gpu, "ASKED", {})
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", int)
    record = collect_nvml_gpu.gpu(Node(), 0)
    shown: Any = record["processes"]
    assert {"pid": 1000, "cgroup": "/stray"} in shown
    assert record["processes_left_out"] == 1001 - len(shown) > 0


@pytest.mark.parametrize("left_out", [0, None, 9])
def test_processes_of_a_gpu_that_were_left_out_are_said(left_out: int | None) -> None:
    gpu = {"index": 0, "lost": None, "memory_used_mib": 0, "utilization_percent": 0, "processes_left_out": left_out}
    mine = {"pid": 7, "name": "x", "cgroup": "/job_7", "uid": 7, "program": "x", "parent": {}}
    result = verdict_of("gpu.no_leftover_processes", nvml={"gpus": [{**gpu, "processes": [mine]}], "daemon_users": []})
    messages = [finding.message for finding in result.findings if finding.verdict is Verdict.INCOMPLETE]
    assert any("9 more processes" in message for message in messages) == bool(left_out)


def blocked_root(folder: Path, uids: int, each: int) -> Path:
    files: dict[str, str | bytes] = {"proc/uptime": "1000.0 1\n", "etc/passwd": "", "etc/group": ""}
    for number in range(each * uids):
        fields = (
            f"{number + 100} (x) D 1 {number} {number} " + " ".join(["0"] * 15) + f" {number} " + " ".join(["0"] * 30)
        )
        files[f"proc/{number + 100}/stat"] = fields
        files[f"proc/{number + 100}/wchan"] = f"wait_{number % uids}"
    return host_root(folder, files)


@pytest.mark.long
def test_each_wait_of_many_blocked_processes_is_shown(tmp_path: Path) -> None:
    processes = read_under(blocked_root(tmp_path, 3, 50), "processes")
    assert len(processes["blocked"]) == MAX_BLOCKED
    assert {process["wait"] for process in processes["blocked"]} == {"wait_0", "wait_1", "wait_2"}
    assert min(process["pid"] for process in processes["blocked"]) == 100  # the oldest
    assert (processes["blocked_alike"], processes["blocked_left_out"]) == (150 - MAX_BLOCKED, 0)


@pytest.mark.long
def test_blocked_processes_of_kinds_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    processes = read_under(blocked_root(tmp_path, 70, 2), "processes")
    assert processes["blocked_left_out"] == 2 * (70 - MAX_BLOCKED)


@pytest.mark.parametrize(
    ("check", "collectors", "verdict", "words"),
    [
        (
            "host.d_state",
            {"processes": {"blocked": [], "blocked_left_out": 3}},
            Verdict.INCOMPLETE,
            "in state D: 3 more",
        ),
        ("host.d_state", {"processes": {"blocked": [], "blocked_alike": 3}}, Verdict.PASS, ""),
        ("host.d_state", {"processes": {"blocked": []}}, Verdict.PASS, ""),  # an older recording
        (
            "storage.mounts_expected",
            {"mounts": {**MOUNTS, "left_out": 2}},
            Verdict.INCOMPLETE,
            "2 more mounted file systems",
        ),
        ("storage.mounts_expected", {"mounts": {**MOUNTS, "left_out": 0}}, Verdict.PASS, ""),
        (
            "host.services",
            {"services": {"services": {}, "failed": [], "restarting": [], "left_out": 4}},
            Verdict.INCOMPLETE,
            "4 more units, not listed here, failed",
        ),
        (
            "host.shm_leftovers",
            {"memory": {"nccl_shm": {"count": 9, "kib": 2048, "oldest_s": 60.0, "left_out": 1}}},
            Verdict.INCOMPLETE,  # the jobs are not known here either
            "9 NCCL segments of at least 2 MiB, the oldest at least 1 minutes old",
        ),
    ],
)
def test_what_was_left_out_makes_a_check_incomplete_or_is_said(
    check: str, collectors: dict[str, Any], verdict: Verdict, words: str
) -> None:
    result = verdict_of(check, kernel_log={"lines": [], "truncated": False}, **collectors)
    assert (result.verdict, words in result.message) == (verdict, True), result.message


def test_mounts_that_are_left_out_are_counted_but_for_those_of_walks(tmp_path: Path) -> None:
    rows = ["1 0 0:1 / / rw - ext4 /dev/a rw"]
    rows += [f"{number} 1 0:{number} / /data/{number} rw - nfs server:/{number} rw" for number in range(2, 300)]
    rows += ["999 1 0:999 / /home rw - autofs auto rw"]
    rows += [f"{number} 1 0:{number} / /home/u{number} rw - nfs server:/u{number} rw" for number in range(1000, 1300)]
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("\n".join(rows) + "\n")
    mounts: Any = read(Node(str(tmp_path), collector_s=60))
    assert len(mounts["mounts"]) == MAX_MOUNTS
    assert mounts["left_out"] == 1 + 298 - MAX_MOUNTS


@pytest.mark.long
def test_an_fstab_without_end_is_an_error_and_not_cut(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("1 0 0:1 / / rw - ext4 /dev/a rw\n")
    (tmp_path / "etc").mkdir()
    entry = "server:/x /x{number} nfs defaults 0 0\n"
    (tmp_path / "etc/fstab").write_text("".join(entry.format(number=number) for number in range(MAX_FSTAB)))
    assert len(read(Node(str(tmp_path), collector_s=60))["fstab"]) == MAX_FSTAB  # type: ignore[index] # a table
    with (tmp_path / "etc/fstab").open("a") as more:
        more.write(entry)
    assert read(Node(str(tmp_path), collector_s=60))["fstab"]["error"] == "E2BIG"  # type: ignore[index] # a table
