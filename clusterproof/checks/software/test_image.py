"""Machine images: libraries that load, complete container runtimes, and files that an image should not carry."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.expectation import EC2
from clusterproof.plugins.evidence.field import known, readings, require
from clusterproof.plugins.evidence.network.facts_node import has_efa
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import Image, LeftFile, Library, OwnFile

pytestmark = [mark.software, mark.ami]

DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# Who get the key of the launch from cloud-init: the default users of distributions and of their images for EC2.
CLOUD_USERS = ("ubuntu", "ec2-user", "rocky", "admin", "almalinux", "centos", "cloud-user", "debian", "fedora")
RUNTIMES = ("containerd", "dockerd")
TOOLKIT_PROGRAMS = ("nvidia-container-runtime", "nvidia-container-cli")


@mark.preflight
@mark.hyperpod_version_checker
@evidence("ldconfig -p | grep -E 'libcuda|libnvidia-ml|libnccl'; ls -lL /opt/amazon/ofi-nccl/lib*")
def test_libraries_load(node: Node) -> None:
    """GPU libraries.

    Each library must be in a folder that the loader searches (/etc/ld.so.conf.d and its defaults) or where EFA's and
    NVIDIA's installers put it, and must not be empty or a dangling link. libnccl and its network plug-in may be in
    containers instead, and so may the whole driver, if NVML answers: their absence counts for images only.

    Remedy (fix configuration): Reinstall what is missing (driver, libnccl2, EFA's installer), then run ldconfig.
    """
    libraries = node.software.libraries
    due = known(lambda: libraries_due(node), ())
    if not due and not any(libraries.values()):
        not_applicable("no GPU on this node")
    wrong = {name: fault for name, files in libraries.items() if (fault := broken(name, files))}
    is_bare = bool(due) and node.occasion != "ami" and all(libraries.get(name) == () for name in DRIVER_LIBRARIES)
    hangs = known(lambda: node.driver_hangs, "") if is_bare else ""
    is_elsewhere = is_bare and bool(known(lambda: node.nvml.driver, ""))
    missing = [f"no {name}" for name in due if not (libraries.get(name) or hangs or is_elsewhere)]
    fail_if(
        wrong or missing,
        f"{', '.join([*wrong.values(), *missing])}; expected each library to exist and not to be empty",
    )
    for name, files in libraries.items():
        if files and name not in wrong and not any(is_whole(library) for library in files):
            incomplete(f"the size of {name} may not be read")
    if hangs:
        incomplete(f"{hangs}, and the host's loader finds no library of the driver, which may be in a container")
    if is_elsewhere:
        seen = "NVML answers and the host's loader finds no library of the driver"
        not_applicable(f"{seen}, which may be in a container, as with NVIDIA's GPU Operator")


def libraries_due(node: Node) -> tuple[str, ...]:
    """The names of libraries that must be there."""
    if not has_gpus(node):
        return ()
    if node.occasion != "ami":
        return DRIVER_LIBRARIES
    plugin = ("libnccl-net.so",) if known(lambda: has_efa(node), False) else ()
    return (*DRIVER_LIBRARIES, "libnccl.so.2", *plugin)


def has_gpus(node: Node) -> bool:
    """Whether the node has NVIDIA GPUs, or should have some."""
    on_bus, unread = readings(node, "gpus_on_bus")
    if on_bus.get("gpus_on_bus"):
        return True
    try:
        return node.expected("gpus") > 0
    except Incomplete:
        require(unread)
        return False  # unknown: then none is due, and the check that counts them is incomplete itself


def broken(name: str, files: tuple[Library, ...]) -> str:
    """What is wrong with the files of a library; empty if one of them is whole or unread."""
    empty = [library.label for library in files if not library.dangles and is_empty(library)]
    dangling = [library.label for library in files if library.dangles]
    if not files or len(empty) + len(dangling) < len(files):
        return ""
    problems = [f"{path} is empty" for path in empty] + [f"{path} is a dangling link" for path in dangling]
    return f"{name}: {', '.join(problems)}"


def is_empty(library: Library) -> bool:
    """Whether a file is empty; False if its size is unknown."""
    try:
        return library.bytes == 0
    except Incomplete:
        return False


def is_whole(library: Library) -> bool:
    """Whether a file exists and is not empty."""
    try:
        return library.bytes > 0
    except Incomplete:
        return False


@mark.hyperpod_node_debugger("D")
@evidence("cat /run/cloud-init/result.json; ls -la /root /home/*/.ssh /var/crash; ls /var/lib/dpkg/updates")
def test_image_clean(node: Node) -> None:
    """Image cleanliness.

    Searches a node booted from the image for cloud-init errors; credentials, private keys and shell histories in home
    directories; login keys other than the launch key; crash dumps; an unfinished package installation; and a machine-id
    or ssh host keys older than the instance, which every machine would share. host.services covers failed units. Only
    names, sizes and times are read, never the contents of these files.

    Remedy (fix configuration): Remove the files in the image recipe and rebuild the image. For cloud-init errors, see
    /var/log/cloud-init.log.
    """
    image, window_s = node.image, node.threshold("image.first_boot_s")
    for rule in (initialised, left_behind, under_way, baked_in, strangers):
        with part:
            leftovers = rule(image, window_s)
            assert not leftovers, f"{leftovers}; expected none of these in an image"
    with part:
        if image.cloud_init is None and known(lambda: node.platform.vendor, EC2) == EC2:
            incomplete("cloud-init wrote no result")


def initialised(image: Image, _: float) -> str:
    """The errors of cloud-init."""
    return ", ".join(f"cloud-init: {text}" for text in image.cloud_init or ())


def left_behind(image: Image, _: float) -> str:
    """The files that exist and are not empty."""
    left = [file.label for file in image.left if looked_at(file, "bytes") is not None]
    return f"left behind: {', '.join(left)}" if left else ""


def under_way(image: Image, _: float) -> str:
    """The signs of a package manager that has not finished."""
    return f"not ended: {', '.join(image.under_way)}" if image.under_way else ""


def baked_in(image: Image, window_s: float) -> str:
    """The files that must be unique to each machine but came with the image; none if the first boot's time is
    unknown.
    """
    first_boot = known(lambda: image.first_boot, None)
    if first_boot is None:
        return ""
    before = first_boot - window_s
    written = [(file.label, looked_at(file, "written")) for file in image.identity]
    baked = [label for label, written_at in written if written_at is not None and written_at < before]
    return f"older than the instance: {', '.join(baked)}" if baked else ""


def looked_at(file: LeftFile | OwnFile, what: str) -> int | None:
    """A size or a time of a file; None if this user has no access, which is reported separately."""
    reading, unread = readings(file, what)
    with part:
        if unread:
            incomplete(f"{file.label}: {unread[0]}", "may not be looked at")
    return reading.get(what)


def strangers(image: Image, _: float) -> str:
    """The accounts that can log in without cloud-init having allowed it."""
    odd = []
    for user, login in image.keys.items():
        with part:
            allowed, usable = int(user in CLOUD_USERS), login.keys - login.commands
            if usable > allowed:
                odd.append(f"{usable} keys may log in as {user}, cloud-init gives {allowed}")
    return ", ".join(odd)


@mark.hyperpod_node_debugger("M")
@evidence("nvidia-container-cli info; cat /etc/nvidia-container-runtime/config.toml; cat /etc/slurm/plugstack.conf")
def test_container_runtime(node: Node) -> None:
    """Container runtime for GPUs.

    containerd and docker need NVIDIA's container toolkit and its configuration; /etc/enroot needs enroot; and every
    plug-in in Slurm's plugstack.conf must exist, or jobs do not start.

    Remedy (fix configuration): Install what is missing: enroot, pyxis, or the NVIDIA container toolkit, and configure
    it (nvidia-ctk runtime configure --runtime=containerd, or docker), then restart the runtime.
    """
    image = node.image
    programs, enroot = known(lambda: image.programs, None), known(lambda: image.enroot, False)
    plugins, runtimes = known(lambda: image.plugins, ()), [name for name in RUNTIMES if name in (programs or ())]
    if not runtimes and not enroot and not plugins:
        not_applicable("no container runtime here")
    missing = known(lambda: toolkit_missing(node), []) if runtimes else []
    wrong = [f"{' and '.join(runtimes)} without {name}" for name in missing]
    wrong += ["/etc/enroot without enroot"] if enroot and programs is not None and "enroot" not in programs else []
    for plugin in plugins:
        with part:
            path = readings(plugin, "path")[0].get("path", "a plug-in")
            if not plugin.bytes and plugin.need == "required":
                wrong.append(f"Slurm requires {path}, which does not exist")
            elif not plugin.bytes:
                concern(f"Slurm's optional plug-in {path} does not exist; expected every plug-in in plugstack.conf")
    fail_if(wrong, f"{', '.join(wrong)}; expected complete container runtimes")


def toolkit_missing(node: Node) -> list[str]:
    """The missing parts of NVIDIA's container toolkit; empty on a node without GPUs."""
    if not has_gpus(node):
        return []
    missing = [name for name in TOOLKIT_PROGRAMS if name not in node.image.programs]
    is_configured = any(size > 0 for size in known(lambda: node.image.toolkit, (1,)))
    return missing + ([] if is_configured else ["configuration of NVIDIA's container toolkit"])
