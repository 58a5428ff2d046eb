"""What a job's programs get in their container, beside what the kernel of the node has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings
from clusterproof.plugins.evidence.gpu.facts_rack import is_of_a_rack
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import DeviceFile, container

pytestmark = [mark.software, mark.job, mark.hyperpod_node_debugger("M")]

ACCELERATORS = (
    ("GPUs", "nvidia", re.compile(r"/dev/nvidia\d{1,9}")),
    ("Neuron devices", "neuron", re.compile(r"/dev/neuron\d{1,9}")),
)
CONTROLS = ("/dev/nvidiactl", "/dev/nvidia-uvm")  # CUDA opens both before any GPU
CONTROL = re.compile(r"/dev/nvidia(?:ctl|-uvm)")
VERBS = re.compile(r"/dev/infiniband/uverbs\d{1,9}")
CHANNELS = re.compile(r"/dev/nvidia-caps-imex-channels/channel\d{1,9}")
GDRCOPY = re.compile(r"/dev/gdrdrv")
CGROUP, MODE, BUSY = "EPERM", "EACCES", ("EBUSY", "EAGAIN", "EINTR", "EMFILE", "ENFILE", "ENOMEM")
IN_ITS_PLACE = {"mem": "/dev/null or its like is in its place", "no device": "a plain file is in its place"}
OF_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
COMPATIBLE = "/compat/"  # the folder of CUDA's forward compatibility, whose libcuda is newer than the driver


@evidence("ls -l /dev/nvidia* /dev/infiniband; nvidia-smi -L; cat /sys/fs/cgroup/devices.list")
def test_container_devices(node: Node) -> None:
    """Devices of the job's container.

    A container shares the kernel of its node, which says what devices there are. Each device file is opened and closed.
    If the device cgroup refuses one, the *runtime* did not allow it, or systemd took it away again, as it does at each
    `systemctl daemon-reload` if NVIDIA's runtime allowed it without telling systemd. If the driver that owns the file's
    number refuses it, the *node* is at fault. Another file in its place, as /dev/null that hides it, counts as refused.
    Without a network device, GDRCopy or an IMEX channel, NCCL goes on and is slow. As with nvidia-smi, opening a GPU
    that nobody uses initialises it.

    Remedy (fix configuration): runtime: start the container anew with CDI or --device, which survive a daemon-reload;
    request the devices (--gpus, --device /dev/infiniband, resources of the pod, NVIDIA_VISIBLE_DEVICES). node: look at
    the driver there.
    """
    gpus = known(lambda: [device for device in node.pci_devices if device.driver in ("nvidia", "neuron")], [])
    if not gpus and not container.of(node).devices:
        due = node.expected("gpus")  # where nobody knows whether it should have some, nothing is proven
        fail_if(due, f"node: the kernel shows none of its GPUs; expected {due}")
        not_applicable("the node has no GPU, no Neuron device, and no device file of a network device")
    for name, driver, files in ACCELERATORS:
        with part:
            accelerators(node, name, sum(device.driver == driver for device in gpus), files)
    with part:
        network_devices(node)
    opened, refused = container.of(node).opened(GDRCOPY)
    with part:
        require_opened(refused)
        library = container.of(node).libraries.get("libgdrapi.so.2")  # as the image has it, where the job uses it
        uses_it = bool(gpus) and library is not None and library.is_there
        missing = uses_it and not opened and not refused and "gdrdrv" in node.modules
        concern_if(missing, "runtime: no /dev/gdrdrv here, and gdrdrv is loaded; expected it, for libgdrapi")
    with part:
        opened, refused = container.of(node).opened(CHANNELS)
        require_opened(refused)
        missing = known(lambda: bool(gpus) and is_of_a_rack(node), False) and not opened and not refused
        seen = "runtime: no IMEX channel here: NCCL cannot use NVLink between trays"
        concern_if(missing, f"{seen}; expected /dev/nvidia-caps-imex-channels/channel0")


def accelerators(node: Node, name: str, on_node: int, files: re.Pattern[str]) -> None:
    """Fail where the job does not get the GPUs that it is due, or what CUDA opens before them."""
    data, asked = container.of(node), None
    opened, refused = data.opened(files)
    if not on_node and not opened and not refused:
        return
    if name == "GPUs":
        with part:
            controls, unopened = data.opened(CONTROL)
            require_opened(unopened)
            missing = [path for path in CONTROLS if (opened or refused) and path not in {*controls, *unopened}]
            fail_if(missing, f"runtime: no {' and no '.join(missing)} here; expected what CUDA opens before GPUs")
        asked = None if shares_gpus(node) else data.gpus_due
    due = asked if asked is not None else 1 if not refused or not is_container(node) else len(opened) + len(refused)
    if len(opened) >= due:
        return
    require_opened(refused)
    fail_if(True, f"runtime: device files of {len(opened)} of the node's {on_node} {name} here; expected {due}")


def shares_gpus(node: Node) -> bool:
    """Whether a GPU is partitioned, so that a job gets several devices by one file."""
    return any(readings(gpu, "mig_mode")[0].get("mig_mode") for gpu in readings(node, "gpus")[0].get("gpus", ()))


def network_devices(node: Node) -> None:
    """Fail where no network device of the kernel's can be opened, or one refuses to be."""
    data = container.of(node)
    opened, refused = data.opened(VERBS)
    require_opened(refused)
    there = len(data.verbs) if node.rdma_devices else 0
    seen = f"runtime: {len(opened)} of the node's {there} network devices have their file in /dev/infiniband"
    of_job = sum(len(data.opened(files)[0]) for _, _, files in ACCELERATORS)
    on_node = sum(device.driver in ("nvidia", "neuron") for device in node.pci_devices)
    has_all = of_job >= on_node > 0
    if there and not opened:
        tcp = f"{seen}: NCCL falls back to TCP between nodes; expected those that the job needs"
        fail_if(has_all, tcp)
        concern_if(True, tcp)  # a job of some GPUs may be of this node alone
    least = there if node.efa_devices else min(there, on_node)  # others may be for storage
    concern_if(has_all and len(opened) < least, f"{seen}, and all of its GPUs; expected {least}")


def is_container(node: Node) -> bool:
    """Whether this is a container, whose runtime puts only files there that may be opened; a step of Slurm is none."""
    return bool(known(lambda: node.software.container, ""))


def require_opened(refused: dict[str, DeviceFile]) -> None:
    """Fail for device files that are there and cannot be opened, by whose fault that is."""
    by_cgroup = some(path for path, device in refused.items() if device.refused == CGROUP)
    by_mode = some(path for path, device in refused.items() if device.refused == MODE)
    others = [device for device in refused.values() if device.refused not in (CGROUP, MODE, *BUSY)]
    by_driver = some(f"{device.path} ({device.refused})" for device in others if device.is_of_its_driver)
    by_nobody = some(
        f"{one.path} ({one.refused or IN_ITS_PLACE.get(one.driver, one.driver)})"
        for one in others
        if not one.is_of_its_driver
    )
    busy = some(f"{path} ({device.refused})" for path, device in refused.items() if device.refused in BUSY)
    with part:
        fail_if(by_cgroup, f"runtime: the device cgroup refuses {by_cgroup}; expected each file here to open")
    with part:
        fail_if(by_mode, f"runtime: this user may not open {by_mode}; expected each file here to open")
    with part:
        fail_if(by_nobody, f"runtime: no loaded driver has the device of {by_nobody}; expected each file here to open")
    with part:
        fail_if(by_driver, f"node: the driver refuses {by_driver}; expected each file here to open")
    if busy:
        incomplete(f"could not be opened just now: {busy}")


def numbers(version: str) -> list[int]:
    """A version's numbers, to be compared."""
    return [int(number) for number in version.split(".") if number.isdecimal()]


def some(paths: Iterable[str], most: int = 3) -> str:
    """Some of these paths: `/dev/nvidia0, /dev/nvidia1 and 6 more`."""
    paths = list(paths)
    return ", ".join(paths[:most]) + (f" and {len(paths) - most} more" if len(paths) > most else "")


@evidence("ldconfig -p | grep -E 'libcuda|libnccl|libfabric'; ldd LIBRARY; cat /sys/module/nvidia/version")
def test_container_libraries(node: Node) -> None:
    """Libraries of the job's container.

    Each library of the driver, of NCCL and of the network is loaded, in a process of its own. If the job has GPUs, the
    driver's libraries must be there, in the version that the kernel has loaded, or newer as CUDA's forward
    compatibility. Those that are mounted into the container were brought from the node by the *runtime*, perhaps by a
    list that is out of date, such as a CDI specification from before an upgrade of the driver; the others are the
    *image*'s. A library of the node does not load if it needs a newer glibc than the image has.

    Remedy (fix configuration): runtime: write the CDI specification anew (nvidia-ctk cdi generate), start the container
    anew, and ask for NVIDIA_DRIVER_CAPABILITIES=compute,utility. image: remove the driver's libraries from it; build on
    an image as new as the node's libraries, or bring the plug-in in the image.
    """
    libraries = container.of(node).libraries
    gpus = container.of(node).opened(ACCELERATORS[0][2])
    if not any(gpus) and not any(library.is_there for library in libraries.values()):
        not_applicable("no GPU here, and none of these libraries")
    for name, library in libraries.items():
        with part:
            if library.unread:
                incomplete(f"{name} was not loaded: {library.unread}")
            said = " ".join(library.text.split())[:300]
            fail_if(library.is_there and said, f"{library.whose}: {name} does not load: {said}; expected it to load")
    with part:
        missing = [name for name in OF_DRIVER if any(gpus) and not libraries[name].is_there]
        seen = f"runtime: no {' and no '.join(missing)}, and GPUs are here"
        fail_if(missing, f"{seen}; expected the runtime to bring the driver's libraries")
    loaded = known(lambda: node.software.version("driver"), None)
    with part:
        if loaded and not loaded[0].isdecimal():
            incomplete(f"the driver that is loaded is {loaded!r:.40}, which is not a version")
    for name in OF_DRIVER if loaded and loaded[0].isdecimal() else ():
        with part:
            of_driver = libraries[name]
            is_newer = numbers(of_driver.version) > numbers(loaded or "")
            if of_driver.version not in ("", loaded) and not (is_newer and COMPATIBLE in of_driver.path):
                seen = f"{of_driver.whose}: {name} is of driver {of_driver.version} ({of_driver.path})"
                fail_if(True, f"{seen}; expected {loaded}, which the kernel of the node has loaded")
    plugin = next((name for name in libraries if name.startswith("libnccl-net")), "")
    with part:
        lacks = plugin and any(gpus) and node.efa_devices and not libraries[plugin].is_there
        concern_if(lacks, f"image: no {plugin} where the loader looks: NCCL uses TCP over EFA's nodes; expected it")
