"""What a job lacks in its container: device files that do not open, libraries that do not load."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, Fault
from tests.testbed.compiled import of_newer_glibc
from tests.testbed.image import Device, Folder, Link, NodeImage
from tests.testbed.node import with_file, without_file
from tests.testbed.software import LIBRARIES, OFI_NCCL, library

DEVICES, LOADED = "software.container_devices", "software.container_libraries"
MODULES = "network.efa_modules"
GPUS = [f"/dev/nvidia{number}" for number in range(8)]
NO_RIGHT = Link("/proc/1/ns/net")  # opens for nobody: EPERM, as if refused by a device cgroup
NO_MODE = Link("/proc/sys/kernel/random/uuid")  # EACCES on write, even for root
NO_DRIVER = Device(195, 0)  # ENXIO, like the file of a GPU that its driver has released
REGISTERED = "Character devices:\n  1 nvidia-uvm\n195 nvidia\n\nBlock devices:\n259 blkext\n"
OF_NULL = "Character devices:\n  1 mem\n195 nvidia\n"


def with_files(image: NodeImage, entry: Link | Device | Folder, *paths: str) -> NodeImage:
    """Put this content in all of these files."""
    for path in paths:
        image = with_file(image, path, entry)
    return image


def without_files(image: NodeImage, *paths: str) -> NodeImage:
    """Remove all of these files."""
    for path in paths:
        image = without_file(image, path)
    return image


def verbs(first: int) -> list[str]:
    """The device files of EFA devices from this number on."""
    return [f"/dev/infiniband/uverbs{number}" for number in range(first, 32)]


FAULTS = (
    Fault(
        "a container that lost its GPUs to a daemon-reload of systemd",
        lambda image: with_files(image, NO_RIGHT, *GPUS, "/dev/nvidiactl", "/dev/nvidia-uvm"),
        {DEVICES: FAIL},
        "runtime: the device cgroup refuses /dev/nvidia-uvm, /dev/nvidiactl; expected each file here to open",
    ),
    Fault(
        "a container whose device cgroup refuses every GPU and nothing else",
        lambda image: with_files(image, NO_RIGHT, *GPUS),
        {DEVICES: FAIL},
        "runtime: the device cgroup refuses /dev/nvidia0, /dev/nvidia1, /dev/nvidia2 and 5 more; expected",
    ),
    Fault(
        "GPUs that a job's user may not open",
        lambda image: with_files(image, NO_MODE, *GPUS),
        {DEVICES: FAIL},
        "runtime: this user may not open /dev/nvidia0, /dev/nvidia1, /dev/nvidia2 and 5 more",
    ),
    Fault(
        "GPUs whose driver refuses to open them",
        lambda image: with_files(with_file(image, "/proc/devices", REGISTERED), NO_DRIVER, *GPUS),
        {DEVICES: FAIL},
        "node: the driver refuses /dev/nvidia0 (ENXIO)",
    ),
    Fault(
        "files of GPUs with a number that no driver has",
        lambda image: with_files(with_file(image, "/proc/devices", "Character devices:\n"), NO_DRIVER, *GPUS),
        {DEVICES: FAIL},
        "runtime: no loaded driver has the device of /dev/nvidia0 (ENXIO), /dev/nvidia1 (ENXIO)",
    ),
    Fault(
        "a container in which /dev/null hides the GPUs",
        lambda image: with_file(image, "/proc/devices", OF_NULL),
        {DEVICES: FAIL},
        "runtime: no loaded driver has the device of /dev/nvidia0 (/dev/null or its like is in its place)",
    ),
    Fault(
        "folders where files of GPUs were to be mounted",
        lambda image: with_files(image, Folder(), *GPUS),
        {DEVICES: FAIL},
        "runtime: no loaded driver has the device of /dev/nvidia0 (EISDIR)",
    ),
    Fault(
        "a container without GPUs",
        lambda image: without_files(image, *GPUS),
        {DEVICES: FAIL},
        "runtime: 0 GPUs have a device file here; expected 1",
    ),
    Fault(
        "a container without nvidia-uvm",
        lambda image: without_file(image, "/dev/nvidia-uvm"),
        {DEVICES: FAIL},
        "runtime: no /dev/nvidia-uvm here; expected what CUDA opens before GPUs",
    ),
    Fault(
        "a container without EFA devices",
        lambda image: without_files(image, *verbs(0)),
        {DEVICES: FAIL, MODULES: FAIL},
        "runtime: 0 of the node's 32 network devices have their file in /dev/infiniband: NCCL falls back to TCP",
    ),
    Fault(
        "a container with all GPUs and four of 32 EFA devices",
        lambda image: without_files(image, *verbs(4)),
        {DEVICES: CONCERN, MODULES: FAIL},
        "runtime: 4 of the node's 32 network devices have their file in /dev/infiniband, and all of its GPUs",
    ),
    Fault(
        "a container whose device cgroup refuses an EFA device",
        lambda image: with_file(image, "/dev/infiniband/uverbs7", NO_RIGHT),
        {DEVICES: FAIL},
        "runtime: the device cgroup refuses /dev/infiniband/uverbs7",
    ),
    Fault(
        "a container without GDRCopy",
        lambda image: without_file(image, "/dev/gdrdrv"),
        {DEVICES: CONCERN},
        "runtime: no /dev/gdrdrv here, but gdrdrv is loaded",
    ),
    Fault(
        "a plug-in of the node that needs a newer glibc than the image has",
        lambda image: replace(
            with_file(image, f"{OFI_NCCL}/libnccl-net-ofi.so", of_newer_glibc()),
            mounted=(*image.mounted, f"901 900 0:99 / {OFI_NCCL} ro - overlay overlay ro"),
        ),
        {LOADED: FAIL},
        "runtime: libnccl-net.so does not load: /lib",
    ),
    Fault(
        "an NCCL in the image that is cut off",
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2.27.7", library()[:500]),
        {LOADED: FAIL},
        "image: libnccl.so.2 does not load",
    ),
    Fault(
        "an image that brings the libcuda of another driver",
        lambda image: with_file(
            with_file(image, f"{LIBRARIES}/libcuda.so.1", Link("libcuda.so.535.54.03")),
            f"{LIBRARIES}/libcuda.so.535.54.03",
            library("libcuda.so.1"),
        ),
        {LOADED: FAIL},
        f"image: libcuda.so.1 is of driver 535.54.03 ({LIBRARIES}/libcuda.so.535.54.03); "
        "expected 580.126.09, which the kernel of the node has loaded",
    ),
    Fault(
        "an image without NCCL's plug-in for EFA",
        lambda image: without_file(image, f"{OFI_NCCL}/libnccl-net.so"),
        {LOADED: CONCERN},
        "image: no libnccl-net.so where the loader looks",
    ),
)
