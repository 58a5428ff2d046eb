"""Software of a healthy node: packages, libraries, EFA's and NVIDIA's software, cloud-init's record."""

from __future__ import annotations

import platform
from pathlib import Path

from tests.testbed.compiled import shared_library
from tests.testbed.image import OPENS, Content, File, Folder, Link

LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"
DPKG = "/var/lib/dpkg/status"
EFA_RECORD = "/opt/amazon/efa_installed_packages"
OFI_NCCL = f"/opt/amazon/ofi-nccl/lib/{platform.machine()}-linux-gnu"
CLOUD_INIT = "/run/cloud-init/result.json"
PLUGSTACK = "/opt/slurm/etc/plugstack.conf.d/pyxis.conf"
PYXIS = "/usr/local/lib/slurm/spank_pyxis.so"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
KEYS = "/home/ubuntu/.ssh/authorized_keys"
FIRST_BOOT = "/var/lib/cloud/instance/sem/config_ssh"
MACHINE_ID = "/etc/machine-id"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
BOOTED = 1_763_500_000  # first boot of the healthy nodes

COMMON = {
    "containerd.io": "1.7.27-1",
    "docker-ce": "5:28.1.1-1~ubuntu.22.04~jammy",
    "libc6": "2.35-0ubuntu3.10",
    "lustre-client-modules-aws": "2.15.6-1fsx25",
    "python3": "3.10.6-1~22.04.1",
    "rdma-core": "60.0-1",
}
OF_GPUS = {
    "datacenter-gpu-manager-4-core": "1:4.4.1-1",
    "enroot": "3.5.0-1",
    "libfabric-aws-bin": "2.3.1amzn2.0",
    "libnccl-ofi": "1.17.1-1",
    "libnccl2": "2.27.7-1+cuda12.9",
    "nvidia-container-toolkit": "1.17.8-1",
}
EFA_INSTALLED = """# EFA installer version: 1.44.0
# Debug packages installed: no
# Packages installed:
efa-config_1.18_all efa-profile_1.7_all libfabric-aws-bin_2.3.1amzn2.0_amd64 libnccl-ofi_1.17.1-1_amd64
"""
CUDNN = """#define CUDNN_MAJOR 9
#define CUDNN_MINOR 13
#define CUDNN_PATCHLEVEL 0
"""
SLURM = "#define SLURM_VERSION_NUMBER 0x180b06\n"
TOOLKIT_VERSION = "12.9"
CUDA = '{"cuda": {"name": "CUDA SDK", "version": "VERSION"}}\n'
LIBRARY = "\x7fELF"
CLOUD_INIT_RESULT = '{"v1": {"datasource": "DataSourceEc2Local", "errors": []}}\n'
FORCED = 'no-pty,command="echo Please login as the user ubuntu" ssh-ed25519 AAAA launch\n'


def device_files(gpus: int) -> dict[str, Content]:
    """Device files of NVIDIA's driver for this many GPUs, and of GDRCopy."""
    files = (*(f"nvidia{number}" for number in range(gpus)), "nvidiactl", "nvidia-uvm", "gdrdrv")
    return {f"/dev/{name}": OPENS for name in files}


def library(soname: str = "lib.so") -> bytes:
    """A library that loads and does nothing."""
    return shared_library(Path(__file__).with_name("library.c"), soname)


def package(name: str, version: str, status: str = "install ok installed") -> str:
    """An entry of dpkg's database."""
    return (
        f"Package: {name}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\nDescription: of the testbed\n\n"
    )


def dpkg(packages: dict[str, str]) -> str:
    """The whole dpkg database."""
    return "".join(package(name, version) for name, version in packages.items())


def files(driver: str = "", toolkit: str = TOOLKIT_VERSION) -> dict[str, Content]:
    """The files of a healthy node, with those of GPUs and EFA if it has a driver."""
    return files_of_any() | (files_of_gpus(driver, toolkit) if driver else {})


def files_of_any() -> dict[str, Content]:
    """The files of every healthy node."""
    return {
        DPKG: dpkg(COMMON),
        "/opt/slurm/include/slurm/slurm_version.h": SLURM,
        CLOUD_INIT: CLOUD_INIT_RESULT,
        FIRST_BOOT: File("", written=BOOTED),
        MACHINE_ID: File("ec2f1e2d3c4b5a69788796a5b4c3d2e1\n", written=BOOTED - 20),
        HOST_KEY: File("a key of the testbed\n", 0o600, BOOTED + 3),
        KEYS: File("ssh-ed25519 AAAA launch\n", 0o600),
        "/root/.ssh/authorized_keys": File(FORCED, 0o600),
        "/root/.bash_history": File("", 0o600),
    }


def files_of_gpus(driver: str, toolkit: str) -> dict[str, Content]:
    """The further files of a node with GPUs and EFA."""
    return {
        DPKG: dpkg(COMMON | OF_GPUS),
        "/usr/local/cuda": Link(f"cuda-{toolkit}"),
        f"/usr/local/cuda-{toolkit}/version.json": CUDA.replace("VERSION", f"{toolkit}.1"),
        "/usr/include/cudnn_version.h": CUDNN,
        f"{LIBRARIES}/libcuda.so.1": Link(f"libcuda.so.{driver}"),
        f"{LIBRARIES}/libcuda.so.{driver}": library,
        f"{LIBRARIES}/libgdrapi.so.2": library,
        f"{LIBRARIES}/libnccl.so.2": Link("libnccl.so.2.27.7"),
        f"{LIBRARIES}/libnccl.so.2.27.7": library,
        EFA_RECORD: EFA_INSTALLED,
        "/etc/ld.so.conf.d/100_ofinccl.conf": f"{OFI_NCCL}\n",
        f"{OFI_NCCL}/libnccl-net.so": Link("libnccl-net-ofi.so"),
        f"{OFI_NCCL}/libnccl-net-ofi.so": lambda: library("libnccl-net.so"),
        TOOLKIT: "[nvidia-container-cli]\n",
        "/etc/enroot": Folder(),
        PLUGSTACK: f"required {PYXIS}\n",
        PYXIS: LIBRARY,
    }


SYS = {"module/nvidia/taint": "OE\n", "module/efa/version": "2.17.3g\n", "module/gdrdrv/version": "2.5.1\n"}
PROC = {"1/cgroup": "0::/init.scope\n"}
TOOLS = dict.fromkeys(("nvidia-container-runtime", "nvidia-container-cli", "enroot"), "#!/bin/sh\nexit 0\n")
