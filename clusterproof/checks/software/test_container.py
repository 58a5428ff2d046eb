"""The container of a job: device files that open, libraries that load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings, require
from clusterproof.plugins.evidence.gpu.facts_rack import is_of_a_rack
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice
from clusterproof.plugins.evidence.software.facts_container import Container, DeviceFile, LoadedLibrary, container

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
COMPATIBLE = re.compile("/(cuda-)?compat/")  # CUDA's forward compatibility, whose libcuda is newer, and conda's


@evidence(
    "ls -l /dev/nvidia* /dev/infiniband; nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES; "
    "for file in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/infiniband/uverbs*; do true <$file; done"
)
def test_container_devices(node: Node) -> None:
    """Devices of the job's container.

    The kernel that the container shares with its node tells which devices exist; each device file is opened and closed.
    If the device cgroup refuses one, the *runtime* did not allow it, or systemd revoked it: each `systemctl
    daemon-reload` does so if NVIDIA's runtime did not register the device with systemd. If the device's driver refuses,
    the *node* is at fault. A different file in its place, such as a bind-mounted /dev/null, counts as refused. Without
    a network device, GDRCopy or an IMEX channel, NCCL runs but is slow. Like nvidia-smi, opening an idle GPU
    initialises it.

    Remedy (fix configuration): For runtime, restart the container with CDI or --device, which survive a daemon-reload,
    and request the devices (--gpus, --device /dev/infiniband, the pod's resources, NVIDIA_VISIBLE_DEVICES). For node,
    check the driver there. Do not pass the node's CUDA_VISIBLE_DEVICES into a container of some GPUs.
    """
    inside = container.of(node)
    gpus = known(lambda: [device for device in node.pci_devices if device.driver in ("nvidia", "neuron")], None)
    if not gpus and not inside.devices:
        due = node.expected("gpus")  # where nobody knows whether it should have some, nothing is proven
        has_bus = known(lambda: bool(node.pci_devices), False)  # a sandbox, as gVisor's, shows none
        fail_if(due and has_bus, f"node: the kernel shows none of its GPUs; expected {due}")
        fail_if(
            due and not has_bus, f"no GPU has a device file here, and nothing here shows the PCI bus; expected {due}"
        )
        not_applicable("the node has no GPU, no Neuron device, and no device file of a network device")
    for device in inside.devices:
        with part:
            require(readings(device, "path", "refused", "driver")[1])
    for name, driver, files in ACCELERATORS:
        with part:
            accelerators(node, name, files, are_due=any(device.driver == driver for device in gpus or ()))
    with part:
        network_devices(node, None if gpus is None else len(gpus))
    evaluate_gdrcopy(node, gpus)
    evaluate_imex_channel(node, has_gpus=bool(gpus))


def evaluate_gdrcopy(node: Node, gpus: Sequence[PciDevice] | None) -> None:
    """The verdict on GDRCopy's device; None: the GPUs are unknown."""
    opened, refused = container.of(node).opened(GDRCOPY)
    with part:
        require_opened(refused)
    with part:  # a library as the image has it, where the job uses it
        missing = gpus != [] and not opened and not refused and container.of(node).library("libgdrapi.so.2").is_there
        seen = "runtime: no /dev/gdrdrv here, but gdrdrv is loaded"
        if missing:
            container.of(node).require_paths()
        concern_if(missing and "gdrdrv" in node.modules, f"{seen}; expected the device, which libgdrapi needs")


def evaluate_imex_channel(node: Node, *, has_gpus: bool) -> None:
    """The verdict on the device of an IMEX channel, which a tray of a rack needs."""
    opened, refused = container.of(node).opened(CHANNELS)
    with part:
        require_opened(refused)
    with part:
        seen = "runtime: no IMEX channel here: NCCL cannot use NVLink between trays"
        missing = has_gpus and not opened and not refused and is_of_a_rack(node)
        if missing:
            container.of(node).require_paths()
        concern_if(missing, f"{seen}; expected /dev/nvidia-caps-imex-channels/channel0")


def accelerators(node: Node, name: str, files: re.Pattern[str], *, are_due: bool) -> None:
    """Fail if the job does not get the GPUs that it asked for, or the device files that CUDA opens first."""
    inside, wanted = container.of(node), None
    opened, refused = inside.opened(files)
    if not are_due and not opened and not refused:
        return
    if name == "GPUs":
        with part:
            controls, unopened = inside.opened(CONTROL)
            require_opened(unopened)
            missing = [path for path in CONTROLS if (opened or refused) and path not in {*controls, *unopened}]
            if missing:
                inside.require_paths()
            fail_if(missing, f"runtime: no {' and no '.join(missing)} here; expected what CUDA opens before GPUs")
        with part:
            hidden_from_cuda(node, len(opened) + sum(device.refused in BUSY for device in refused.values()))
        wanted = None if shares_gpus(node) else known(lambda: inside.gpus_due, None)
    there = len(opened) + len(refused)
    due = wanted if wanted is not None else 1 if not refused or not is_container(node) else there
    if len(opened) >= due:
        return
    require_opened(refused)
    inside.require_paths()
    fail_if(there < due, f"runtime: {there} {name} have a device file here; expected {due}")


def hidden_from_cuda(node: Node, opened: int) -> None:
    """Fail if the job's environment hides from CUDA all GPUs that open: CUDA numbers them from 0."""
    first = known(lambda: container.of(node).cuda_begins_with, None)  # which older probes did not report
    if first is None or not opened or shares_gpus(node):
        return
    container.of(node).require_paths()
    seen = f"begins with {first}" if first >= 0 else "names no GPU"
    fail_if(
        not 0 <= first < opened,
        f"the job's CUDA_VISIBLE_DEVICES {seen}, and hides all {opened} GPUs; expected numbers from 0 to {opened - 1}",
    )


def shares_gpus(node: Node) -> bool:
    """Whether a GPU is partitioned, so that one device file gives a job several devices."""
    return any(readings(gpu, "mig_mode")[0].get("mig_mode") for gpu in readings(node, "gpus")[0].get("gpus", ()))


def network_devices(node: Node, accelerators_on_node: int | None) -> None:
    """Fail if none of the kernel's network devices can be opened, or one refuses."""
    inside = container.of(node)
    opened, refused = inside.opened(VERBS)
    require_opened(refused)
    inside.require_paths()
    there = len(inside.verbs) if known(lambda: bool(node.rdma_devices), True) else 0
    seen = f"runtime: {len(opened)} of the node's {there} network devices have their file in /dev/infiniband"
    of_job = sum(len(inside.opened(files)[0]) for _, _, files in ACCELERATORS)
    on_node = accelerators_on_node or 0
    has_all = of_job >= on_node > 0
    if there and not opened:
        tcp = f"{seen}: NCCL falls back to TCP between nodes; expected those that the job needs"
        assert not has_all, tcp
        concern(tcp)  # a job of some GPUs may be of this node alone
    least = there if known(lambda: node.efa_devices, ()) else min(there, on_node)  # others may be for storage
    concern_if(has_all and len(opened) < least, f"{seen}, and all of its GPUs; expected {least}")


def is_container(node: Node) -> bool:
    """Whether this is a container, whose runtime puts in only files that may be opened; a step of Slurm is not."""
    return bool(known(lambda: node.software.container, ""))


def require_opened(refused: Mapping[str, DeviceFile]) -> None:
    """Fail for device files that exist but cannot be opened, with the side that is at fault."""
    why = {path: readings(device, "refused")[0].get("refused", "") for path, device in refused.items()}
    others = {path: errno for path, errno in why.items() if errno not in (CGROUP, MODE, *BUSY)}
    by_cgroup = some(path for path, errno in why.items() if errno == CGROUP)
    by_mode = some(path for path, errno in why.items() if errno == MODE)
    with part:
        fail_if(by_cgroup, f"runtime: the device cgroup refuses {by_cgroup}; expected each file here to open")
    with part:
        fail_if(by_mode, f"runtime: this user may not open {by_mode}; expected each file here to open")
    with part:
        drivers = {path: refused[path].driver for path in others}
        by_nobody = some(
            f"{path} ({errno or IN_ITS_PLACE.get(drivers[path], drivers[path])})"
            for path, errno in others.items()
            if not refused[path].is_of_its_driver
        )
        by_driver = some(f"{path} ({errno})" for path, errno in others.items() if refused[path].is_of_its_driver)
        with part:
            fail_if(by_driver, f"node: the driver refuses {by_driver}; expected each file here to open")
        seen = f"runtime: no loaded driver has the device of {by_nobody}"
        fail_if(by_nobody, f"{seen}; expected each file here to open")
    busy = some(f"{path} ({errno})" for path, errno in why.items() if errno in BUSY)
    if busy:
        incomplete(f"could not be opened just now: {busy}")


def numbers(version: str) -> list[int]:
    """A version's numbers, for comparison."""
    return [int(number) for number in version.split(".") if number.isdecimal()]


def some(paths: Iterable[str], most: int = 3) -> str:
    """The first of these paths: `/dev/nvidia0, /dev/nvidia1 and 6 more`."""
    paths = list(paths)
    return ", ".join(paths[:most]) + (f" and {len(paths) - most} more" if len(paths) > most else "")


@evidence("ldconfig -p | grep -E 'libcuda|libnccl|libfabric'; ldd LIBRARY; cat /sys/module/nvidia/version")
def test_container_libraries(node: Node) -> None:
    """Libraries of the job's container.

    Loads each library of the driver, NCCL and the network in a separate process. If the job has GPUs, the driver's
    libraries must exist at the version of the loaded kernel module, or newer with CUDA's forward compatibility.
    Libraries mounted from the node come from the *runtime*, which may use an outdated list, such as a CDI specification
    from before a driver upgrade; the others belong to the *image*. A library from the node does not load if it needs a
    newer glibc than the image has.

    Remedy (fix configuration): For runtime, regenerate the CDI specification (nvidia-ctk cdi generate
    --output=/etc/cdi/nvidia.yaml), restart the container, and set NVIDIA_DRIVER_CAPABILITIES=compute,utility. For
    image, remove the driver's libraries from it, use a base image as new as the node's libraries, or install the
    network plug-in in the image.
    """
    inside = container.of(node)
    libraries, has_gpus = inside.libraries, known(lambda: has_file_of_gpu(inside), None)
    if has_gpus is False and all(map(is_missing, libraries.values())):
        not_applicable("no GPU here, and none of these libraries")
    for name, library in libraries.items():
        with part:
            evaluate_loading(name, library)
    with part:
        missing = [name for name in OF_DRIVER if has_gpus and name in libraries and is_missing(libraries[name])]
        seen = f"runtime: no {' and no '.join(missing)}, but the container has GPUs"
        fail_if(missing, f"{seen}; expected the runtime to bring the driver's libraries")
        require(why for name in OF_DRIVER for why in readings(inside.library(name), "is_there")[1])
    loaded = known(lambda: node.software.version("driver"), None)
    with part:
        if loaded and not loaded[0].isdecimal():
            incomplete(f"the driver that is loaded is {loaded!r:.40}, which is not a version")
    for name in OF_DRIVER if loaded and loaded[0].isdecimal() else ():
        with part:
            evaluate_version(name, inside.library(name), loaded or "")
    plugin = next((name for name in libraries if name.startswith("libnccl-net")), "")
    with part:
        lacks = plugin and has_gpus and not libraries[plugin].is_there and node.efa_devices
        concern_if(
            lacks, f"image: no {plugin} where the loader looks, so NCCL uses TCP instead of EFA; expected the plug-in"
        )


def has_file_of_gpu(inside: Container) -> bool:
    """Whether the container has the device file of a GPU. Raises Incomplete if that is unknown."""
    if any(inside.opened(ACCELERATORS[0][2])):
        return True
    inside.require_paths()
    return False


def evaluate_loading(name: str, library: LoadedLibrary) -> None:
    """Fail if a library exists but does not load. Raises Incomplete."""
    message = " ".join(library.text.split())[:300]
    is_there = bool(library.path) or library.is_there
    if message and is_there:
        if library.unread:
            incomplete(f"{name} was not loaded: {library.unread}")
        raise AssertionError(f"{library.origin}: {name} does not load: {message}; expected it to load")


def is_missing(library: LoadedLibrary) -> bool:
    """Whether the loader is known not to find it."""
    return not readings(library, "is_there")[0].get("is_there", True)


def evaluate_version(name: str, library: LoadedLibrary, loaded: str) -> None:
    """Fail if a library of the driver has another version than the kernel module. Raises Incomplete."""
    is_newer = numbers(library.version) > numbers(loaded)
    if library.version not in ("", loaded) and not (is_newer and COMPATIBLE.search(library.path)):
        seen = f"{library.origin}: {name} is of driver {library.version} ({library.path})"
        raise AssertionError(f"{seen}; expected {loaded}, which the kernel of the node has loaded")
