"""What the testbed needs of a machine: marks that skip a test and say what is missing and how to install it."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.counterparts import installed

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRY_OVERLAY = (
    "mount -t tmpfs testbed /mnt && cd /mnt && mkdir upper work root"
    " && mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work testbed root"
)
TRY_VETH = "ip link add end1 type veth peer name end2"
TRY_BRIDGE = f"ip link add trial type bridge && {TRY_VETH}"


def _without_root() -> str:
    return "" if os.geteuid() == 0 else "needs root: run these tests as root"


def _without(program: str, package: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    return "" if path else f"{program} is not installed: apt-get install {package}"


def _without_path(path: str, what: str) -> str:
    return "" if Path(path).exists() else f"this machine has no {path}: {what}"


@functools.cache
def _refused(what: str, script: str) -> str:
    """The kernel's error for `script` in separate namespaces, or "" if it is allowed."""
    spaces = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup", "--fork"]
    tried = subprocess.run([*spaces, "/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    return f"{what} is not permitted here: {tried.stderr.strip()}" if tried.returncode else ""


def _without_nodes() -> str:
    return (
        _without_root()
        or _without("gcc", "gcc")
        or _without_path("/usr/include/stdio.h", "apt-get install libc6-dev")
        or _without("unshare", "util-linux")
        or _without("nsenter", "util-linux")
        or _without("tar", "tar")
        or _without("ip", "iproute2")
        or _refused("an overlay over / in a namespace", TRY_OVERLAY)
    )


def _without_cluster() -> str:
    return (
        _without_nodes()
        or _without("sshd", "openssh-server")
        or _without("ssh", "openssh-client")
        or _refused("a bridge in a network namespace", TRY_BRIDGE)
    )


def _without_ethtool() -> str:
    return (
        _without_root()
        or _without("ethtool", "ethtool")
        or _without("unshare", "util-linux")
        or _without("ip", "iproute2")
        or _refused("a pair of interfaces in a network namespace", TRY_VETH)
    )


def _without_slurm() -> str:
    return (
        _without_cluster()
        or _without("slurmctld", "slurmctld")
        or _without("slurmd", "slurmd")
        or _without("srun", "slurm-client")
        or _without("munged", "munge")
    )


def _without_accounting() -> str:
    return (
        _without_slurm()
        or _without("slurmdbd", "slurmdbd")
        or _without("mariadbd", "mariadb-server-core")
        or _without("my_print_defaults", "mariadb-client-core")
    )


def without_torch() -> str:
    """Why no training can run; empty if one can."""
    tried = subprocess.run(
        ["/usr/bin/python3", "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)"], check=False
    )
    return "the system's Python has no PyTorch: apt-get install python3-torch" if tried.returncode else ""


def _without_mpi() -> str:
    return _without("mpirun", "openmpi-bin") or _without("mpicc", "libopenmpi-dev") or _without_header("mpi.h")


def _without_header(name: str) -> str:
    tried = subprocess.run(["mpicc", "-E", "-include", name, "-x", "c", "/dev/null"], capture_output=True, check=False)
    return f"there is no {name}: apt-get install libopenmpi-dev" if tried.returncode else ""


def _without_frozen() -> str:
    return (
        _without_nodes()
        or _without("mkfs.ext4", "e2fsprogs")
        or _without_path("/dev/loop-control", "its kernel has no loop devices")
    )


def _without_kubernetes() -> str:
    return (
        _without_root()
        or installed.without("kubernetes")
        or _without("etcd", "etcd-server")
        or _without("containerd", "containerd")
        or _without("runc", "runc")
        or ("" if importlib.util.find_spec("kubernetes") else "pip install kubernetes 'python-dateutil<3'")
    )


def _without_runc() -> str:
    return (
        _without_nodes()
        or _without("runc", "runc")
        or _without_path("/sys/fs/cgroup/devices/devices.list", "its kernel has no device cgroup of version 1")
        or _without_path("/dev/fuse", "its kernel has no FUSE")
    )


def _without_kubectl() -> str:
    return _without_kubernetes() or installed.without("kubectl")


def _mark(reason: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(reason), reason=reason)


needs_runc = _mark(_without_runc())
needs_podman = _mark(_without_runc() or _without("podman", "podman"))
needs_chromium = _mark(_without("chromium", "chromium") or _without("chromedriver", "chromium-driver"))
needs_pdftotext = _mark(_without("pdftotext", "poppler-utils"))
needs_root = _mark(_without_root())
needs_gcc = _mark(_without("gcc", "gcc"))
needs_sshd = _mark(_without("sshd", "openssh-server"))
needs_ssh = _mark(_without("ssh", "openssh-client"))
needs_pynvml = _mark("" if importlib.util.find_spec("pynvml") else "pip install nvidia-ml-py")
needs_ethtool = _mark(_without_ethtool())
needs_nvme_cli = _mark(_without("nvme", "nvme-cli"))
needs_fio = _mark(_without("fio", "fio"))
needs_stress_ng = _mark(_without("stress-ng", "stress-ng"))
needs_iperf3 = _mark(_without("iperf3", "iperf3"))
needs_fi_pingpong = _mark(_without("fi_pingpong", "libfabric-bin"))
needs_nodes = _mark(_without_nodes())  # entered() works
needs_frozen = _mark(_without_frozen())  # … with a frozen file system
needs_hung_mount = _mark(_without_nodes() or _without_path("/dev/fuse", "its kernel has no FUSE"))
needs_two_cpus = _mark("" if (os.cpu_count() or 1) > 1 else "this machine has one CPU")
needs_numa_balancing = _mark(
    _without_path("/proc/sys/kernel/numa_balancing", "its kernel is built without NUMA balancing")
)
needs_cluster = _mark(_without_cluster())  # testbed() works
needs_openmpi = _mark(_without_mpi())  # with_all_reduce() works
needs_slurm = _mark(_without_slurm())  # slurm() works
needs_accounting = _mark(_without_accounting())  # and slurm(is_accounted=True)
needs_torch = _mark(without_torch())  # of the system's Python, which fake nodes have
needs_kubernetes = _mark(_without_kubernetes())  # machine() works
needs_kubectl = _mark(_without_kubectl())  # … and gate_bed()
