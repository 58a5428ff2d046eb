"""A munged that does not run beside slurmd is reported even if systemd does not know it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders.probed import PATIENT, collect_under, host_root, probe_node
from tests.testbed.needs import needs_root, needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm import slurm

pytestmark = pytest.mark.long

OF_ANOTHER = "a process called munged runs as neither root nor munge"
SLURM_CONF = "etc/slurm/slurm.conf"
SLURMD = {"proc/7/comm": "slurmd\n", "proc/uptime": "900.0 1.0\n", SLURM_CONF: "ClusterName=x\n"}


@pytest.mark.parametrize(
    ("files", "without_munge"),
    [
        (SLURMD, "/etc/slurm/slurm.conf"),
        (SLURMD | {SLURM_CONF: "AuthType=auth/munge\ninclude more.conf\n"}, "/etc/slurm/slurm.conf"),
        (SLURMD | {SLURM_CONF: "  authtype = auth/slurm\n"}, ""),
        (SLURMD | {SLURM_CONF: "#AuthType=auth/slurm\nInclude more.conf\n"}, ""),  # it may be set there
        (SLURMD | {"proc/8/comm": "munged\n"}, ""),  # root's
        (SLURMD | {SLURM_CONF: ""}, ""),
        ({"proc/uptime": "900.0 1.0\n", SLURM_CONF: "ClusterName=x\n"}, ""),
    ],
)
def test_slurmd_needs_a_munged_where_its_slurm_conf_does(
    tmp_path: Path, files: dict[str, str], without_munge: str
) -> None:
    reported = collect_under(host_root(tmp_path, files), "services").value or {}
    assert reported.get("without_munge", "") == without_munge


@needs_root
@pytest.mark.parametrize(
    ("passwd", "program", "without_munge"),
    [
        ("munge:x:65534:65534::/:\n", "/usr/sbin/munged", ""),
        ("zorg:x:65534:65534::/:\n", "/usr/sbin/munged", {"error": "EPERM", "text": OF_ANOTHER}),
        ("munge:x:65534:65534::/:\n", "/home/zorg/sleep", {"error": "EPERM", "text": OF_ANOTHER}),
    ],
)
def test_a_process_that_a_user_calls_munged_is_none(
    tmp_path: Path, passwd: str, program: str, without_munge: object
) -> None:
    folder = host_root(tmp_path, SLURMD | {"proc/8/comm": "munged\n", "etc/passwd": passwd})
    exe = folder / "proc/8/exe"
    exe.unlink()
    exe.symlink_to(program)
    os.chown(folder / "proc/8", 65534, 65534)
    reported = collect_under(folder, "services").value or {}
    assert reported.get("without_munge", "") == without_munge


@needs_slurm
def test_of_a_real_slurm_without_systemd_a_munged_that_was_killed_is_missed() -> None:
    image = replace(healthy_p5("gpu001"), services=None)
    with slurm({"gpu001": image}) as bed:
        node = bed.node("gpu001")
        before = probe_node(node, ["services"], PATIENT).collectors["services"]
        node.run(["pkill", "-KILL", "munged"])
        after = probe_node(node, ["services"], PATIENT).collectors["services"]
    assert before.value is None
    assert after.value["without_munge"] == "/etc/slurm/slurm.conf"
    assert "systemctl" in after.value["services"]["text"]
