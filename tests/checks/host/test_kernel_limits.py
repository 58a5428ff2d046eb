"""Results on a node that runs out of open files, or of processes and threads."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.index import make_index, of_occasions
from tests.checks.network.given import verdict

PASS, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE
PLENTY = {"open_files": 700, "max_files": 2**63 - 1, "threads": 700, "pid_max": 4194304, "threads_max": 16511894}
SLURMD = "/sys/fs/cgroup/system.slice/slurmd.service"


def limits(*groups: dict[str, Any], **changed: object) -> dict[str, Any]:
    """A node with these values, and plenty of everything else."""
    return {"kernel_limits": {**PLENTY, "groups": list(groups), **changed}}


@pytest.mark.parametrize(
    ("data", "says", "message"),
    [
        (limits(), PASS, ""),
        (limits(max_files=100_001, open_files=70_000), PASS, ""),
        (
            limits(max_files=100_000, open_files=70_000),
            CONCERN,
            "70000 of 100000 files are open; expected less than 70",
        ),
        (limits(max_files=65_536), PASS, ""),
        (limits(max_files=2000), CONCERN, "fs.file-max 2000; expected at least 65536, as for a user"),
        (limits(max_files=0), CONCERN, "700 of 0 files are open"),
        (limits(max_files=None), INCOMPLETE, "max_files was not reported"),
        ({}, INCOMPLETE, "kernel_limits: was not requested"),
    ],
)
def test_open_files_are_held_against_what_the_kernel_allows(data: dict[str, Any], says: Verdict, message: str) -> None:
    result = verdict("host.open_files", data)
    assert result.verdict is says, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("data", "says", "message"),
    [
        (limits(), PASS, ""),
        (limits(pid_max=32_768), PASS, ""),
        (limits(pid_max=4096), CONCERN, "kernel.pid_max 4096; expected at least 32768"),
        (limits(pid_max=1000), CONCERN, "700 of 1000 (kernel.pid_max); expected less than 70 %"),
        (limits(threads_max=1000), CONCERN, "700 of 1000 (kernel.threads-max)"),
        (limits(pid_max=1000, threads_max=900), CONCERN, "700 of 900 (kernel.threads-max); expected"),
        (limits({"path": SLURMD, "pids": 358, "max": 512}), PASS, ""),
        (limits({"path": SLURMD, "pids": 359, "max": 512}), CONCERN, f"359 of 512 ({SLURMD})"),
        (limits({"path": SLURMD, "pids": {"error": "EIO", "text": ""}, "max": 512}), INCOMPLETE, "EIO"),
        (limits(groups={"error": "EACCES", "text": ""}), INCOMPLETE, "EACCES"),
        ({}, INCOMPLETE, "kernel_limits: was not requested"),
    ],
)
def test_threads_are_held_against_the_least_that_is_allowed(data: dict[str, Any], says: Verdict, message: str) -> None:
    result = verdict("host.process_ids", data)
    assert result.verdict is says, result.message
    assert message in result.message


def test_what_any_user_can_use_up_keeps_no_node_from_a_job() -> None:
    around_jobs = of_occasions(make_index(), ("prolog", "epilog"))
    assert not around_jobs.keys() & {"host.open_files", "host.process_ids", "network.ena_allowance"}
