"""What a job may lock, open and share: its own limits, and its container's /dev/shm."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node

FAIL, CONCERN, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.PASS
ULIMITS, MEMLOCK, SHM = "host.ulimits", "network.memlock", "host.dev_shm"
ENOUGH = {"memlock": None, "nofile": 1048576, "nproc": None, "stack": 8 * 2**20}
EFA = {"name": "rdmap0s0", "vendor": "1d0f", "device": "efa2", "ports": []}
# As on enroot 4.1, whose user namespace cannot see which programs root's processes run.
UNREAD = {"slurmd": {"error": "EACCES"}, "containerd": {"error": "EACCES"}}


def limits(own: dict[str, Any], daemons: dict[str, Any]) -> Any:
    return node("gpu001", boot=boot(), rdma={"devices": [EFA]}, limits={"login": own, "daemons": daemons})


@pytest.mark.parametrize("check", [ULIMITS, MEMLOCK])
@pytest.mark.parametrize("daemons", [UNREAD, {"slurmd": {**ENOUGH, "memlock": 65536, "nofile": 1024, "stack": 1}}])
def test_a_job_has_its_own_limits_whatever_those_of_daemons_are(check: str, daemons: dict[str, Any]) -> None:
    expect(result_of(check, limits(ENOUGH, daemons), occasion="job"), PASS, "")


@pytest.mark.parametrize(
    ("check", "verdict", "message"),
    [
        (ULIMITS, CONCERN, "nofile 1024 for this job; expected at least nofile"),
        (MEMLOCK, FAIL, "memlock is 64 KiB for this job; expected at least"),
    ],
)
def test_little_is_said_of_the_job_itself(check: str, verdict: Verdict, message: str) -> None:
    few = {**ENOUGH, "nofile": 1024, "memlock": 65536}
    expect(result_of(check, limits(few, UNREAD), occasion="job"), verdict, message)


@pytest.mark.parametrize(
    ("source", "occasion", "message"),
    [
        ("shm", "job", "runtime: /dev/shm has 0.0625 GiB; expected at least 16 GiB"),  # docker, podman, containerd
        ("tmpfs", "job", "/dev/shm has 0.0625 GiB"),  # the node's own: enroot, --ipc=host
    ],
)
def test_a_small_dev_shm_is_whose_who_mounted_it(source: str, occasion: str, message: str) -> None:
    mount = {"path": "/dev/shm", "source": source, "type": "tmpfs", "options": ["rw"], "alive": "yes"}
    size = {"total_kib": 65536, "free_kib": 65536}
    result = result_of(SHM, node("gpu001", boot=boot(), mounts={"mounts": [{**mount, **size}]}), occasion=occasion)
    assert (result.verdict, result.message.startswith(message)) == (FAIL, True), result.message
