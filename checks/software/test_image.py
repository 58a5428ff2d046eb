"""What an image contains: libraries that load, complete container runtimes, and nothing left behind."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, incomplete, not_applicable
from clusterproof.plugins.evidence.expectation import EC2
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software.facts import Image, Keys, Library
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.software, mark.ami]

DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
CLOUD_USERS = ("ubuntu", "ec2-user", "rocky", "admin")  # who get the key of the launch from cloud-init
RUNTIMES = ("containerd", "dockerd")
TOOLKIT_PROGRAMS = ("nvidia-container-runtime", "nvidia-container-cli")


@mark.preflight
@mark.hyperpod_version_checker
@evidence("ldconfig -p | grep -E 'libcuda|libnvidia-ml|libnccl'; ls -lL /opt/amazon/ofi-nccl/lib*")
def test_libraries_load(node: Node) -> None:
    """GPU libraries.

    A library must be where the loader looks (the folders of /etc/ld.so.conf.d and its own) or where EFA's and NVIDIA's
    installers put it: a file that is not empty, and no dangling link. libnccl and its network plug-in may live in
    containers: their absence from the host counts for images only.

    Remedy (fix configuration): Reinstall what is missing (driver, libnccl2, EFA's installer), then run ldconfig.
    """
    libraries = node.software.libraries
    due = libraries_due(node)
    if not due and not any(libraries.values()):
        not_applicable("no GPU on this node")
    wrong = [words for name, found in libraries.items() if (words := broken(name, found))]
    wrong += [f"no {name}" for name in due if not libraries.get(name)]
    assert not wrong, f"{', '.join(wrong)}; expected each to be found and whole"
    for name, found in libraries.items():
        if found and not any(is_whole(library) for library in found):
            incomplete(f"the size of {name} may not be read")


def libraries_due(node: Node) -> tuple[str, ...]:
    """The names of libraries that must be there."""
    if not has_gpus(node):
        return ()
    if node.occasion != "ami":
        return DRIVER_LIBRARIES
    plugin = ("libnccl-net.so",) if node.efa_devices or node.expected("efa") else ()
    return (*DRIVER_LIBRARIES, "libnccl.so.2", *plugin)


def has_gpus(node: Node) -> bool:
    """Whether the node has NVIDIA GPUs, or should have some."""
    if node.gpus_on_bus:
        return True
    try:
        return node.expected("gpus") > 0
    except Incomplete:
        return False  # unknown: then none is due, and the check that counts them is incomplete itself


def broken(name: str, found: tuple[Library, ...]) -> str:
    """What is wrong with a library that is there under its name; empty where one of its files is whole or unread."""
    empty = [library.path for library in found if not library.dangles and is_empty(library)]
    dangling = [library.path for library in found if library.dangles]
    if not found or len(empty) + len(dangling) < len(found):
        return ""
    said = [f"{path} is empty" for path in empty] + [f"{path} leads nowhere" for path in dangling]
    return f"{name}: {', '.join(said)}"


def is_empty(library: Library) -> bool:
    """Whether a file is empty; one of unknown size is not."""
    try:
        return library.bytes == 0
    except Incomplete:
        return False


def is_whole(library: Library) -> bool:
    """Whether a file is there and not empty."""
    try:
        return library.bytes > 0
    except Incomplete:
        return False


@mark.hyperpod_node_debugger("D")
@evidence("cat /run/cloud-init/result.json; ls -la /root /home/*/.ssh /var/crash; ls /var/lib/dpkg/updates")
def test_image_clean(node: Node) -> None:
    """Image cleanliness.

    A node booted from the image is searched for errors of cloud-init, credentials, private keys and shell histories in
    home directories, keys of people who may log in besides the one of the launch, crash dumps, a package manager that
    did not finish, and a machine-id or host keys of sshd that are older than the instance: every machine would have the
    same. test_services covers failed units. Names, sizes and times are read, never the contents of these files.

    Remedy (fix configuration): Remove them in the image's recipe and rebuild it; see cloud-init's log for its errors.
    """
    image = node.image
    errors = image.cloud_init
    wrong = [f"cloud-init: {text}" for text in errors or ()]
    left, unread = left_behind(image)
    wrong += [f"left behind: {', '.join(left)}"] if left else []
    wrong += [f"not ended: {', '.join(image.under_way)}"] if image.under_way else []
    baked, unread_times = baked_in(image, node.threshold("image.first_boot_s"))
    wrong += [f"older than the instance: {', '.join(baked)}"] if baked else []
    data, no_keys = readings(image, "keys")
    wrong += strangers(data.get("keys", {}))
    assert not wrong, f"{', '.join(wrong)}; expected none of it in an image"
    require([*unread, *no_keys, *unread_times])
    if errors is None and node.platform.vendor == EC2:
        incomplete("cloud-init left no result")


def left_behind(image: Image) -> tuple[list[str], list[Incomplete | NotApplicable]]:
    """The files that are there and not empty, and why others are unknown: this user may not look at them."""
    left: list[str] = []
    unread: list[Incomplete | NotApplicable] = []
    for file in image.left:
        data, why = readings(file, "bytes")
        left += [file.path] if data else []
        unread += [Incomplete(f"{file.path}: {reason}", "may not be looked at") for reason in why]
    return left, unread


def baked_in(image: Image, boot_s: float) -> tuple[list[str], list[Incomplete | NotApplicable]]:
    """The files that must be each machine's own but came with the image; none where the first boot is unknown."""
    data, unread = readings(image, "first_boot", "identity")
    if data.get("first_boot") is None:
        return [], unread
    before = data["first_boot"] - boot_s
    baked: list[str] = []
    for file in data.get("identity", ()):
        written, why = readings(file, "written")
        baked += [file.path] if written and written["written"] < before else []
        unread += [Incomplete(f"{file.path}: {reason}", "may not be looked at") for reason in why]
    return baked, unread


def strangers(keys: Mapping[str, Keys]) -> list[str]:
    """Who may log in that cloud-init did not let in."""
    found = []
    for user, data in keys.items():
        allowed = 1 if user in CLOUD_USERS else 0
        usable = data.keys - data.commands
        if usable > allowed:
            found.append(f"{usable} keys may log in as {user}, cloud-init gives {allowed}")
    return found


@mark.hyperpod_node_debugger("M")
@evidence("nvidia-container-cli info; cat /etc/nvidia-container-runtime/config.toml; cat /etc/slurm/plugstack.conf")
def test_container_runtime(node: Node) -> None:
    """Container runtime for GPUs.

    With containerd or docker, NVIDIA's container toolkit and its configuration must be there too; with /etc/enroot,
    enroot; and every plug-in that Slurm's plugstack.conf names must exist, or slurmd's jobs do not start.

    Remedy (fix configuration): Install the NVIDIA container toolkit (nvidia-ctk runtime configure), enroot or pyxis,
    whichever is missing.
    """
    image = node.image
    runtimes = [name for name in RUNTIMES if name in image.programs]
    if not runtimes and not image.enroot and not image.plugins:
        not_applicable("no container runtime here")
    wrong = [f"no {name} beside {' and '.join(runtimes)}" for name in toolkit_missing(node)] if runtimes else []
    if image.enroot and "enroot" not in image.programs:
        wrong.append("/etc/enroot without enroot")
    missing = {plugin.path: plugin.need for plugin in image.plugins if not plugin.bytes}
    wrong += [f"Slurm requires {path}, which is not there" for path, need in missing.items() if need == "required"]
    assert not wrong, f"{', '.join(wrong)}; expected container runtimes that are whole"
    if missing:
        concern(
            f"Slurm's optional plug-ins {', '.join(missing)} are not there; expected those that plugstack.conf names"
        )


def toolkit_missing(node: Node) -> list[str]:
    """What is missing of NVIDIA's container toolkit; nothing on a node without GPUs."""
    if not has_gpus(node):
        return []
    missing = [name for name in TOOLKIT_PROGRAMS if name not in node.image.programs]
    configured = any(size > 0 for size in node.image.toolkit)
    return missing + ([] if configured else ["configuration of NVIDIA's container toolkit"])
