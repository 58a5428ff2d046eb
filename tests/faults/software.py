"""Installed software: versions compatible with each other, with the group and with the manifest."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.faults.gpu_link import b200
from tests.testbed import software
from tests.testbed.image import Folder, Link, NodeImage
from tests.testbed.imds import IDENTITY
from tests.testbed.node import with_file, with_nvml, without_file
from tests.testbed.software import DPKG, EFA_RECORD, LIBRARIES

DRIFT, COMPAT, INSTALLER = "software.version_drift", "software.version_compat", "software.efa_installer_string"
CUDA = "/usr/local/cuda-12.9/version.json"


def with_package(image: NodeImage, name: str, version: str) -> NodeImage:
    """The package has this version."""
    return with_file(image, DPKG, software.dpkg(software.COMMON | software.OF_GPUS | {name: version}))


def with_driver(image: NodeImage, version: str) -> NodeImage:
    """The driver is installed and loaded, as its files show."""
    loaded = with_file(without_libcuda(image), "/sys/module/nvidia/version", f"{version}\n")
    linked = with_file(loaded, f"{LIBRARIES}/libcuda.so.1", Link(f"libcuda.so.{version}"))
    return with_nvml(with_file(linked, f"{LIBRARIES}/libcuda.so.{version}", software.library), driver=version)


def with_cuda(image: NodeImage, version: str) -> NodeImage:
    """The active CUDA toolkit reports this version."""
    return with_file(image, CUDA, software.CUDA.replace("VERSION", version))


def without_libcuda(image: NodeImage) -> NodeImage:
    """No libcuda is installed."""
    files = {path: entry for path, entry in image.files.items() if not path.startswith(f"{LIBRARIES}/libcuda.so")}
    return replace(image, files=files)


FAULTS = (
    Fault(
        "a containerd that the group does not have",
        lambda image: with_package(image, "containerd.io", "1.7.20-1"),
        {DRIFT: CONCERN},
        "containerd 1.7.20-1; expected 1.7.27-1 as on 3 of 4 nodes",
    ),
    Fault(
        "an instance of another AMI",
        lambda image: with_file(
            image, IDENTITY, str(image.files[IDENTITY]).replace("ami-0abcdef1234567890", "ami-0fedcba9876543210")
        ),
        {DRIFT: CONCERN},
        "AMI ami-0fedcba9876543210; expected ami-0abcdef1234567890 as on 3 of 4 nodes",
    ),
    Fault(
        "another release of the distribution",
        lambda image: with_file(image, "/etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\n'),
        {DRIFT: CONCERN},
        "OS Ubuntu 24.04.3 LTS; expected Ubuntu 22.04.5 LTS as on 3 of 4 nodes",
    ),
    Fault(
        "an NCCL that the group has and this node does not",
        lambda image: without_file(
            without_file(
                with_file(image, DPKG, software.dpkg(software.COMMON | software.OF_GPUS | {"libnccl2": ""})),
                f"{LIBRARIES}/libnccl.so.2",
            ),
            f"{LIBRARIES}/libnccl.so.2.27.7",
        ),
        {DRIFT: CONCERN},
        "nccl none; expected 2.27.7 as on 3 of 4 nodes",
    ),
    Fault(
        "a CUDA toolkit beside the group's",
        lambda image: with_file(image, "/usr/local/cuda-12.6/version.json", "{}"),
        {DRIFT: CONCERN},
        "CUDA toolkits 12.6, 12.9; expected 12.9 as on 3 of 4 nodes",
    ),
    Fault(
        "a probe that runs in a container, and sees the container's software",
        lambda image: with_file(image, "/.dockerenv", ""),
        {DRIFT: NA},
        "2 are needed to compare",
    ),
    Fault(
        "a package database that cannot be read",
        lambda image: with_file(image, DPKG, Folder()),
        {DRIFT: INCOMPLETE},
        "the package database could not be read (EISDIR)",
    ),
    Fault(
        "a new driver installed while the old one runs",
        lambda image: with_nvml(with_file(image, "/sys/module/nvidia/version", "570.133.20\n"), driver="570.133.20"),
        {COMPAT: FAIL, DRIFT: CONCERN, "software.container_libraries": FAIL},
        "the driver in the kernel is 570.133.20 and libcuda is 580.126.09; expected one version",
    ),
    Fault(
        "a CUDA toolkit too new for the driver",
        lambda image: with_cuda(with_driver(image, "570.133.20"), "13.0.1"),
        {COMPAT: FAIL, DRIFT: CONCERN},
        "CUDA 13.0.1 with driver 570.133.20; expected driver 580 or newer",
    ),
    Fault(
        "a CUDA toolkit too new for the driver, with libraries that bridge it",
        lambda image: with_file(
            with_cuda(with_driver(image, "570.133.20"), "13.0.1"),
            "/usr/local/cuda-12.9/compat/libcuda.so.580.82.07",
            software.LIBRARY,
        ),
        {COMPAT: CONCERN, DRIFT: CONCERN},
        "through its compatibility libraries (580.82.07)",
    ),
    Fault(
        "a CUDA toolkit newer than the driver's own, of the same first number",
        lambda image: with_driver(image, "570.133.20"),
        {COMPAT: CONCERN, DRIFT: CONCERN},
        "CUDA 12.9.1 with driver 570.133.20; expected driver 575.51.03 or newer, which PTX needs to compile",
    ),
    Fault(
        "a CUDA toolkit too new for the driver beside the one in use",
        lambda image: with_file(with_driver(image, "575.57.08"), "/usr/local/cuda-13.1/version.json", "{}"),
        {COMPAT: CONCERN, DRIFT: CONCERN},
        "CUDA 13.1 is installed with driver 575.57.08; expected driver 580 or newer",
    ),
    Fault(
        "an aws-ofi-nccl too old for the EFA installer",
        lambda image: with_package(image, "libnccl-ofi", "1.7.1-1"),
        {COMPAT: FAIL, DRIFT: CONCERN},
        "EFA installer 1.44.0 with aws-ofi-nccl 1.7.1-1; expected aws-ofi-nccl 1.7.3 or newer",
    ),
    Fault(
        "a driver whose version is no version",
        lambda image: with_file(image, "/sys/module/nvidia/version", "(none)\n"),
        {
            COMPAT: INCOMPLETE,
            DRIFT: CONCERN,
            "gpu.fabric_manager": INCOMPLETE,
            "software.container_libraries": INCOMPLETE,
        },
        "'(none)' is not a version",
    ),
    Fault(
        "the closed kernel module under Blackwell GPUs",
        lambda image: with_file(image, "/sys/module/nvidia/taint", "POE\n"),
        {COMPAT: FAIL, "gpu.peermem": CONCERN},
        "B200 GPUs with NVIDIA's closed kernel module",
        base=b200,
    ),
    Fault(
        "a kernel module under Blackwell GPUs that does not say whether it is the open one",
        lambda image: without_file(image, "/sys/module/nvidia/taint"),
        {COMPAT: INCOMPLETE, "gpu.peermem": INCOMPLETE},
        "it is unknown whether NVIDIA's kernel module",
        base=b200,
    ),
    Fault(
        "an EFA record without the installer's version",
        lambda image: with_file(image, EFA_RECORD, "# Packages installed:\nlibfabric-aws-bin_2.3.1amzn2.0_amd64\n"),
        {INSTALLER: FAIL, COMPAT: INCOMPLETE},
        "names no version: '# Packages installed:",
    ),
    Fault(
        "an EFA record with libfabric's version instead of the installer's",
        lambda image: with_file(image, EFA_RECORD, "# EFA installer version: 2.3.1amzn2.0\n"),
        {INSTALLER: FAIL, DRIFT: CONCERN},
        "EFA installer 2.3.1amzn2.0, which is a version of libfabric; expected the installer's own",
    ),
    Fault(
        "an EFA record that cannot be read",
        lambda image: with_file(image, EFA_RECORD, Folder()),
        {INSTALLER: INCOMPLETE, COMPAT: INCOMPLETE},
        "efa_installer could not be read (EISDIR)",
    ),
    Fault(
        "no EFA record on a node whose jobs bring their own software",
        lambda image: without_file(image, EFA_RECORD),
        {INSTALLER: NA, DRIFT: CONCERN},
        "may live in the container",
    ),
    Fault(
        "no EFA record in an image",
        lambda image: without_file(image, EFA_RECORD),
        {INSTALLER: FAIL, DRIFT: CONCERN},
        "expected EFA's software in the image",
        occasion="ami",
    ),
)
