"""A fake node is the same whatever is installed or runs on this machine, or is in the environment."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults import BY_NAME
from tests.testbed import base
from tests.testbed.image import Content, Link, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_cpu
from tests.testbed.software import DPKG, LIBRARIES, package

pytestmark = needs_nodes
ROOT = Path(__file__).parents[2]
SAYS_YES = "#!/bin/sh\necho yes\n"
PYTHON = f"python3.{sys.version_info.minor}"
PACKAGES = ("/usr/lib/python3/dist-packages", f"/usr/local/lib/{PYTHON}/dist-packages", "/opt/conda/lib/site-packages")
PROGRAMS = (
    *("fio", "iperf3", "nvbandwidth", "dcgmi", "nvidia-smi", "docker", "slurmctld", "scontrol", "chronyc", "mpirun"),
    *("fi_info", "fi_pingpong", "neuron-ls", "lspci", "nvme", "lfs", "rpm", "enroot", "nvidia-container-cli"),
    *("nv-fabricmanager", "journalctl", "all_reduce_perf", "ibstat", "ethtool", "nccom-test", "stress-ng"),
)
FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/amazon/efa/bin", "/opt/slurm/bin", "/opt/nccl-tests/build")
TORCH = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.9.0'\n", "torch-2.9.0.dist-info/METADATA": ""}
LINKED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2", "libnccl-net.so", "libcudnn.so.9", "libfabric.so.1")
INSTALLED: dict[str, Content] = {
    **{f"{folder}/{name}": text for folder in PACKAGES for name, text in TORCH.items()},
    **{f"{LIBRARIES}/{name}": "" for name in LINKED},
    "/opt/conda/bin/python3": Link("/usr/bin/python3"),
    "/etc/ld.so.conf.d/zz-vendor.conf": "/opt/vendor/lib\n",
    "/opt/vendor/lib/libnccl.so.2.99.9": "",
    "/usr/local/cuda-13.9/version.json": '{"cuda": {"version": "13.9.0"}}',
    "/usr/include/cudnn_version.h": "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 1\n",
    "/etc/slurm/slurm.conf": "SlurmUser=nobody\n",
    "/etc/nvidia-container-runtime/config.toml": "",
    "/etc/resolv.conf": "nameserver 127.0.0.9\n",
    "/etc/security/limits.conf": "* hard memlock 64\n",
    "/etc/profile.d/vendor.sh": "export NCCL_PROTO=Simple\n",
    "/etc/environment": "NCCL_ALGO=Ring\n",
    "/etc/nccl.conf": "NCCL_DEBUG=INFO\n",
    "/run/docker.sock": "",
    "/run/reboot-required": "",
    "/var/crash/vmcore": "dump",
    "/var/run/chrony/chronyd.pid": "1\n",
    "/home/somebody/.ssh/authorized_keys": "ssh-ed25519 AAAA somebody\n",
    "/root/.aws/credentials": "[default]\n",
    DPKG: package("libnccl2", "2.99.9-1") + package("docker.io", "99.0-1"),
}
ENVIRONMENT = {
    "SLURM_JOB_ID": "4711",
    "NCCL_DEBUG": "TRACE",
    "CUDA_VISIBLE_DEVICES": "0",
    "LD_LIBRARY_PATH": "/opt/vendor/lib",
    "PATH": f"/opt/conda/bin:{':'.join(FOLDERS)}:/usr/sbin:/bin",
}
BARE = NodeImage(whole_machine=True, tmpfs={"/cache": "1g"})
FURNISHED = NodeImage(
    files=INSTALLED,
    tools={f"{folder}/{name}": SAYS_YES for folder in FOLDERS for name in PROGRAMS},
    daemons=dict.fromkeys(("slurmd", "containerd", "dockerd", "chronyd", "dcgm"), "65536"),
    tmpfs={"/cache": "1g"},
    whole_machine=True,
)
VARYING = ("now", "seconds", "times", "read_s", "init_s", "free_kib", "inodes_free")  # differ in any two reads
SAMPLE = random.Random(26).sample([name for name, fault in BY_NAME.items() if not fault.marks], 6)
SCRIPT = f"""
import json, sys
from tests.faults.__main__ import prove
from tests.faults.proof import healthy
from tests.testbed.load import loadable_p5
from tests.testbed.node import healthy_cpu, healthy_p5

def lasting(data):
    if isinstance(data, dict):
        return {{key: lasting(value) for key, value in data.items() if key not in {VARYING}}}
    return [lasting(value) for value in data] if isinstance(data, list) else data

for base in (healthy_p5, healthy_cpu, loadable_p5):
    for name, each in healthy(base).collectors.items():
        print(json.dumps([f"{{base.__name__}}: {{name}}", [each.status.value, lasting(each.value), each.detail]]))
for name in sys.argv[1:]:
    print(json.dumps([name, prove(name).in_words()]))
"""


def seen_on(machine: NodeImage, *faults: str, environment: Mapping[str, str] | None = None) -> dict[str, object]:
    """The evidence of healthy nodes, and the verdicts on faults, with the testbed on such a machine."""
    own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": "/cache"}
    with entered(machine, "machine") as running:
        command = [sys.executable, "-c", SCRIPT, *faults]
        ran = running.run(command, env={**(environment or {}), **own}, timeout=600)
    assert ran.returncode == 0, ran.stderr.decode()
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def test_a_node_has_a_network_of_its_own_with_a_loopback() -> None:
    with entered(healthy_cpu()) as node:
        assert Path(f"/proc/{node.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        assert node.run(["ip", "-o", "link"]).stdout.startswith(b"1: lo: <LOOPBACK,UP,LOWER_UP>")
        node.run(["ip", "link", "set", "lo", "down"])
        assert b"UP" not in node.run(["ip", "-o", "link"]).stdout.partition(b">")[0]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("find /proc/driver /proc/fs -type f", ""),
        ("cut -d: -f3 /proc/self/cgroup | sort -u", "/"),
        ("find /home /media /mnt /opt /root /srv /usr/local /var -type f", ""),
        ("find / -xdev -name site-packages -o -xdev -name dist-packages", ""),
        ("command -v gcc perl dpkg systemctl", ""),
    ],
)
def test_a_node_shows_nothing_of_what_this_machine_has(command: str, answer: str) -> None:
    with entered(NodeImage()) as node:
        assert node.run(["/bin/sh", "-c", command]).stdout.decode().strip() == answer


def test_the_system_beneath_is_made_once_and_goes_when_nobody_has_used_it_for_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "CACHE", tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "recent").mkdir()
    os.utime(tmp_path / "old", (0, 0))
    made = base.system.__wrapped__()
    inode = made.stat().st_ino
    assert base.system.__wrapped__().stat().st_ino == inode
    assert {path.name for path in tmp_path.iterdir()} == {made.name, "recent"}


def test_what_starts_with_a_node_has_nothing_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    with entered(healthy_cpu()) as node:
        environment = node.run(["/bin/sh", "-c", "cat /proc/$(cat /run/slurmd.pid)/environ"]).stdout
    assert b"PATH=" in environment
    assert b"SLURM_JOB_ID" not in environment


def test_evidence_and_verdicts_are_the_same_with_and_without_what_users_have_installed() -> None:
    without, with_ = seen_on(BARE, *SAMPLE), seen_on(FURNISHED, *SAMPLE, environment=ENVIRONMENT)
    assert with_ == without
    assert [name for name in SAMPLE if not str(with_[name]).startswith("caught")] == []
