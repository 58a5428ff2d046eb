"""Images with one deviation each from the good machine's golden manifest, and the gate's findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.faults.software import with_cuda, with_driver, with_package
from tests.testbed import software
from tests.testbed.healthy import KERNEL
from tests.testbed.image import File, Link, NodeImage
from tests.testbed.node import with_file, with_service, with_tool, without_efa, without_file, without_module
from tests.testbed.software import DPKG, EFA_RECORD, LIBRARIES, OFI_NCCL

MODULES_DEP = f"/lib/modules/{KERNEL}/modules.dep"
Put = Callable[[NodeImage], NodeImage]


def without_package(image: NodeImage, name: str) -> NodeImage:
    """The package is not installed."""
    kept = {other: content for other, content in (software.COMMON | software.OF_GPUS).items() if other != name}
    return with_file(image, DPKG, software.dpkg(kept))


def with_efa_installer(image: NodeImage, version: str) -> NodeImage:
    """EFA's installer of this version ran."""
    return with_file(image, EFA_RECORD, software.EFA_INSTALLED.replace("1.44.0", version))


def with_nccl(image: NodeImage, version: str) -> NodeImage:
    """The loader finds this NCCL."""
    moved = without_file(image, f"{LIBRARIES}/libnccl.so.2.27.7")
    linked = with_file(moved, f"{LIBRARIES}/libnccl.so.2", Link(f"libnccl.so.{version}"))
    return with_file(linked, f"{LIBRARIES}/libnccl.so.{version}", software.LIBRARY)


def with_fabric_manager(image: NodeImage, version: str) -> NodeImage:
    """This fabric manager is installed."""
    return with_tool(image, "nv-fabricmanager", f"#!/bin/sh\necho Fabric Manager version is : {version}\n")


def with_unit(
    name: str, *, load: str = "loaded", active: str = "active", sub: str = "running", enabled: str = "enabled"
) -> Put:
    """systemctl's report on that service."""
    return lambda image: with_service(image, name, load=load, active=active, sub=sub, enabled=enabled)


def written_before(path: str) -> Put:
    """The file is a day older than the instance's first boot."""
    return lambda image: with_file(image, path, File("of the builder\n", 0o600, software.BOOTED - 86_400))


def not_built(name: str) -> Put:
    """DKMS has not built the module for the running kernel, so it is not loaded."""

    def put(image: NodeImage) -> NodeImage:
        dep = str(image.files[MODULES_DEP]).replace(f"/{name}.ko", "/other.ko")
        return with_file(without_module(image, name), MODULES_DEP, dep)

    return put


# The change to the good machine, and every line that the gate then prints.
DEVIATIONS: dict[str, tuple[Put, list[str]]] = {
    "an older containerd": (
        lambda image: with_package(image, "containerd.io", "1.7.20-1"),
        ["containerd 1.7.20-1; expected containerd == 1.7.27-1"],
    ),
    "a newer containerd": (
        lambda image: with_package(image, "containerd.io", "2.0.4-1"),
        ["containerd 2.0.4-1; expected containerd == 1.7.27-1"],
    ),
    "a rebuilt containerd": (
        lambda image: with_package(image, "containerd.io", "1.7.27-2"),
        ["containerd 1.7.27-2; expected containerd == 1.7.27-1"],
    ),
    "no enroot": (
        lambda image: without_package(image, "enroot"),
        ["no enroot; expected enroot == 3.5.0-1"],
    ),
    "a container toolkit of another version": (
        lambda image: with_package(image, "nvidia-container-toolkit", "1.16.2-1"),
        ["nvidia_container_toolkit 1.16.2-1; expected nvidia_container_toolkit == 1.17.8-1"],
    ),
    "a runtime that the machine did not have": (
        lambda image: with_package(image, "nvslurm-plugin-pyxis", "0.20.0-1"),
        ["pyxis 0.20.0-1; expected no pyxis"],
    ),
    "another libfabric": (
        lambda image: with_package(image, "libfabric-aws-bin", "2.1.0amzn5.0"),
        ["libfabric 2.1.0amzn5.0; expected libfabric == 2.3.1amzn2.0"],
    ),
    "an older aws-ofi-nccl": (
        lambda image: with_package(image, "libnccl-ofi", "1.16.3-1"),
        ["aws_ofi_nccl 1.16.3-1; expected aws_ofi_nccl == 1.17.1-1"],
    ),
    "an older EFA installer": (
        lambda image: with_efa_installer(image, "1.43.2"),
        ["efa_installer 1.43.2; expected efa_installer == 1.44.0"],
    ),
    "no EFA installer": (
        lambda image: without_file(image, EFA_RECORD),
        ["no efa_installer; expected efa_installer == 1.44.0"],
    ),
    "another NCCL": (
        lambda image: with_nccl(image, "2.26.2"),
        ["nccl 2.26.2; expected nccl == 2.27.7"],
    ),
    "another CUDA": (
        lambda image: with_cuda(image, "12.8.0"),
        ["cuda 12.8.0; expected cuda == 12.9.1"],
    ),
    "another cuDNN": (
        lambda image: with_file(image, "/usr/include/cudnn_version.h", software.CUDNN.replace("MINOR 13", "MINOR 10")),
        ["cudnn 9.10.0; expected cudnn == 9.13.0"],
    ),
    "another Slurm": (
        lambda image: with_file(
            image, "/opt/slurm/include/slurm/slurm_version.h", "#define SLURM_VERSION_NUMBER 0x180504\n"
        ),
        ["slurm 24.05.4; expected slurm == 24.11.6"],
    ),
    "another DCGM": (
        lambda image: with_package(image, "datacenter-gpu-manager-4-core", "1:4.2.3-2"),
        ["dcgm 1:4.2.3-2; expected dcgm == 1:4.4.1-1"],
    ),
    "another glibc": (
        lambda image: with_package(image, "libc6", "2.35-0ubuntu3.9"),
        ["glibc 2.35-0ubuntu3.9; expected glibc == 2.35-0ubuntu3.10"],
    ),
    "the wrong fabric manager": (
        lambda image: with_fabric_manager(image, "570.133.20"),
        ["fabric_manager 570.133.20; expected fabric_manager == 580.126.09"],
    ),
    "no fabric manager's program": (
        lambda image: without_file(image, "/usr/bin/nv-fabricmanager"),
        ["no fabric_manager; expected fabric_manager == 580.126.09"],
    ),
    "another driver, and its libcuda with it": (
        lambda image: with_driver(image, "580.95.05"),
        [
            "driver 580.95.05; expected driver == 580.126.09",
            "fabric_manager 580.95.05; expected fabric_manager == 580.126.09",  # it comes with the driver
            "libcuda 580.95.05; expected libcuda == 580.126.09",
        ],
    ),
    "another EFA driver": (
        lambda image: with_file(image, "/sys/module/efa/version", "2.15.1g\n"),
        ["efa 2.15.1g; expected efa == 2.17.3g"],
    ),
    "another gdrcopy": (
        lambda image: with_file(image, "/sys/module/gdrdrv/version", "2.4\n"),
        ["gdrcopy 2.4; expected gdrcopy == 2.5.1"],
    ),
    "a module that is not loaded": (
        lambda image: without_module(image, "nvidia_uvm"),
        ["module nvidia_uvm is installed; expected loaded"],
    ),
    "a module that was not built for this kernel": (
        not_built("ena"),
        ["module ena is absent; expected loaded"],
    ),
    "a module that takes the GPUs": (
        lambda image: with_file(image, "/sys/module/nouveau/initstate", "live\n"),
        ["module nouveau is loaded; expected not loaded"],
    ),
    "an empty library": (
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2.27.7", ""),
        ["library libnccl.so.2: NCCL/libnccl.so.2 is empty; expected whole"],
    ),
    "a library whose link leads nowhere": (
        lambda image: with_file(image, f"{OFI_NCCL}/libnccl-net.so", Link("libnccl-net-gone.so")),
        [f"library libnccl-net.so: {OFI_NCCL}/libnccl-net.so leads nowhere; expected whole"],
    ),
    "no NCCL plug-in": (
        lambda image: without_file(image, f"{OFI_NCCL}/libnccl-net.so"),
        ["library libnccl-net.so: absent; expected whole"],
    ),
    "a service that is not enabled": (
        with_unit("munge", enabled="disabled"),
        ["service munge is active, disabled; expected active, enabled"],
    ),
    "a service that does not run": (
        with_unit("chrony", active="inactive", sub="dead"),
        ["service chrony is inactive, enabled; expected active, enabled"],
    ),
    "a service that is not installed": (
        with_unit("nvidia-dcgm", load="not-found", active="inactive", sub="dead", enabled=""),
        ["service nvidia-dcgm is absent; expected active, enabled"],
    ),
    "a masked service": (
        with_unit("nvidia-fabricmanager", load="masked", active="inactive", sub="dead", enabled="masked"),
        ["service nvidia-fabricmanager is inactive, masked; expected active, enabled"],
    ),
    "an EFA device less": (
        lambda image: without_efa(image, "rdmap113s0"),
        ["efa 31; expected efa == 32"],
    ),
    "half of /dev/shm": (
        lambda image: replace(image, tmpfs=image.tmpfs | {"/dev/shm": "512g"}),
        ["dev_shm_gib 512; expected dev_shm_gib >= 1013"],
    ),
    "the machine-id of the machine that built it": (
        written_before(software.MACHINE_ID),
        [f"older than the instance: {software.MACHINE_ID}; expected none of these in an image"],
    ),
    "the host key of the machine that built it": (
        written_before(software.HOST_KEY),
        [f"older than the instance: {software.HOST_KEY}; expected none of these in an image"],
    ),
}

# The same for a machine that only builds the image.
ON_BUILD_HOST: dict[str, tuple[Put, list[str]]] = {
    "modules that were not built for this kernel": (
        lambda image: with_file(image, MODULES_DEP, "updates/dkms/efa.ko.zst:\n"),
        [
            "module gdrdrv is absent; expected loaded",
            "module ib_core is absent; expected loaded",
            "module ib_uverbs is absent; expected loaded",
            "module nvidia is absent; expected loaded",
            "module nvidia_peermem is absent; expected installed",
            "module nvidia_uvm is absent; expected loaded",
        ],
    ),
    "a service of the GPUs that is not enabled": (
        with_unit("nvidia-fabricmanager", active="inactive", sub="dead", enabled="disabled"),
        ["service nvidia-fabricmanager is inactive, disabled; expected active, enabled"],
    ),
    "the wrong fabric manager": DEVIATIONS["the wrong fabric manager"],
    "no NCCL plug-in": DEVIATIONS["no NCCL plug-in"],
    "the machine-id of the machine that built it": DEVIATIONS["the machine-id of the machine that built it"],
}
