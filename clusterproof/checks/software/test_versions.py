"""Versions: the same within a group, and compatible with each other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from clusterproof.plugins.catalog import compatibility
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern,
    concern_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.network.facts_node import has_efa
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software import version
from clusterproof.plugins.manifest import fabric_manager

pytestmark = [mark.software, mark.ami, mark.hyperpod_version_checker]

COMPAT_FOLDER = "/compat/"  # libraries for CUDA programs that are newer than the driver
LIBFABRIC = "amzn"  # in the versions of Amazon's libfabric, never in those of the EFA installer


@mark.preflight
@evidence("uname -r; cat /sys/module/nvidia/version; dpkg -l | grep -E 'nccl|libfabric|efa|containerd|slurm'")
def test_version_drift(node: Node) -> None:
    """Versions compared with the group.

    Compares the versions of kernel, driver, CUDA, cuDNN, NCCL, EFA, libfabric, aws-ofi-nccl, gdrcopy, Lustre, Slurm,
    container runtime and Neuron among nodes of one group and type, hosts with hosts and containers with containers, as
    well as the distribution and the AMI.

    Remedy (fix configuration): Find out which version is intended, then replace the node, or rebuild it from the
    group's image.
    """
    with suppress(NotApplicable):  # there is nobody to compare with, as is said below
        made_from = differences(node, "what nodes are made from", _made_from, absent=None)
        concern_if(made_from, describe(made_from))
    container = node.software.container
    with part:
        node.software.packages  # noqa: B018 - what it did not report is not compared
    with part:
        node.software.components, node.software.toolkits  # noqa: B018
    deviations = differences(node, f"versions in {container or 'hosts'}", lambda other: versions(other, container))
    concern_if(deviations, describe(deviations))


def versions(node: Node, container: str) -> Values:
    """Every component's version; None if it could not be read. Raises Incomplete for a node of another kind."""
    software = node.software
    if software.container != container:
        raise Incomplete("these are the versions of another kind of node")
    components = readings(software, "components")[0].get("components", ())
    by_component: dict[str, str | None] = {readable(name): None for name in (software.unreported if components else ())}
    for name in (name for name in components if name != "packages"):
        try:
            by_component[readable(name)] = software.version(name)
        except Incomplete:
            by_component[readable(name)] = None
    toolkits, _ = readings(software, "toolkits")
    return (
        {**by_component, "CUDA toolkits": ", ".join(toolkits["toolkits"])} if toolkits.get("toolkits") else by_component
    )


def _made_from(node: Node) -> Values:
    """The distribution, for containers apart from hosts, and the AMI; None if it is unknown."""
    container = _known(lambda: node.software.container)
    os, ami = _known(lambda: node.boot.os), _known(lambda: node.metadata.identity.image_id)
    return {f"OS of {container}" if container else "OS": os, "AMI": ami}


def _known(value: Callable[[], str]) -> str | None:
    with suppress(Incomplete, NotApplicable):
        return value() or None
    return None


def readable(component: str) -> str:
    """A component's name for people."""
    return component.replace("_", " ")


@mark.preflight
@evidence("cat /proc/driver/nvidia/version /usr/local/cuda/version.json; head -1 /opt/amazon/efa_installed_packages")
def test_version_compat(node: Node) -> None:
    """Version compatibility.

    The driver in the kernel and libcuda must have the same version; a CUDA toolkit needs a driver that is not too old;
    each EFA installer needs a minimum version of aws-ofi-nccl; Grace Hopper and Blackwell GPUs need NVIDIA's open
    kernel module. Fabric manager must have the driver's version too; it is compared here if NVML does not report the
    driver.

    Remedy (fix configuration): Install the expected version. If driver and libcuda differ, reboot: a new driver was
    installed while the old one is still loaded.
    """
    rules = (driver_and_libcuda, driver_and_cuda, driver_and_toolkits, installer_and_plugin, kernel_module)
    for rule in (*rules, driver_and_fabric_manager):
        with part:
            rule(node)


def installed_version(node: Node, component: str) -> str:
    """A component's version. Raises NotApplicable if the node does not have it, Incomplete if it is unread."""
    installed = node.software.version(component)
    if installed is None:
        missing = "NVIDIA's driver" if component == "driver" else readable(component)
        not_applicable(f"nothing to compare: {missing} is not installed here")
    return installed


def older(release: str, least: str) -> bool:
    """Whether a version is older than another. Raises Incomplete if it is not a version."""
    try:
        return version.is_older(release, least)
    except ValueError as problem:
        raise Incomplete(str(problem)) from None


def numbers(release: str) -> tuple[int, ...]:
    """A version's numbers. Raises Incomplete if it is not a version."""
    try:
        return version.parse(release).numbers
    except ValueError as problem:
        raise Incomplete(str(problem)) from None


def driver_and_libcuda(node: Node) -> None:
    """Compare the driver in the kernel with the one that programs load."""
    driver, library = installed_version(node, "driver"), installed_version(node, "libcuda")
    differ = numbers(driver) != numbers(library) and COMPAT_FOLDER not in node.software.source("libcuda")
    assert not differ, f"the driver in the kernel is {driver} and libcuda is {library}; expected one version"


def driver_and_cuda(node: Node) -> None:
    """Compare the driver with the CUDA toolkit in use."""
    driver, cuda = installed_version(node, "driver"), installed_version(node, "cuda")
    least, own = compatibility.oldest_driver(numbers(cuda)[:1]), compatibility.own_driver(numbers(cuda)[:2])
    seen = f"CUDA {cuda} with driver {driver}"
    if least and older(driver, least):
        bridged = node.software.version("cuda_compat")
        seen += f" through its compatibility libraries ({bridged})" if bridged else ""
        assert bridged and not older(bridged, least), f"{seen}; expected driver {least} or newer"  # noqa: PT018
        concern(f"{seen}; expected driver {least} or newer")
    concern_if(own and older(driver, own), f"{seen}; expected driver {own} or newer, which PTX needs to compile")


def driver_and_toolkits(node: Node) -> None:
    """Compare the driver with the other CUDA toolkits, which users may choose."""
    driver = installed_version(node, "driver")
    for cuda in node.software.toolkits:
        with part:
            least = compatibility.oldest_driver(numbers(cuda)[:1])
            is_old = least and older(driver, least)
            concern_if(is_old, f"CUDA {cuda} is installed with driver {driver}; expected driver {least} or newer")


def installer_and_plugin(node: Node) -> None:
    """Compare EFA's installer with NCCL's plug-in for it."""
    installer, plugin = installed_version(node, "efa_installer"), installed_version(node, "aws_ofi_nccl")
    least = compatibility.oldest_plugin(numbers(installer))
    seen = f"EFA installer {installer} with aws-ofi-nccl {plugin}"
    assert not least or not older(plugin, least), f"{seen}; expected aws-ofi-nccl {least} or newer"


def kernel_module(node: Node) -> None:
    """Compare the GPU model with the kernel module: open or proprietary."""
    model, driver = gpu_model(node), known(lambda: f" {installed_version(node, 'driver')}", "")
    if not compatibility.kernel_module_needed(model):
        not_applicable(f"{model} GPUs work with either kernel module" if model else f"{node.type_name} has no GPU")
    if not node.nvidia_taint:
        incomplete(f"it is unknown whether NVIDIA's kernel module{driver} is the open or the closed one")
    seen = f"{model} GPUs with NVIDIA's closed kernel module{driver}"
    assert "P" not in node.nvidia_taint, f"{seen}; expected the open kernel module"


def driver_and_fabric_manager(node: Node) -> None:
    """Compare fabric manager with the driver, if only the kernel reports the driver."""
    manager = "" if _known(lambda: node.nvml.driver) else _known(lambda: fabric_manager(node) or "")
    if not manager:
        not_applicable("fabric manager is not known, or compared with the driver that NVML names")
    if not node.of_type("nvswitch"):
        not_applicable(f"{node.type_name or 'this node'} needs no fabric manager on the node")
    driver = installed_version(node, "driver")
    assert manager == driver, f"fabric manager {manager} with driver {driver}; expected the same version"


def gpu_model(node: Node) -> str:
    """The model of its GPUs: from its type, otherwise the driver's name for the first.

    Raises Incomplete, NotApplicable.
    """
    try:
        return node.type.gpu_model or ""
    except Incomplete:
        return node.gpus[0].name


@mark.preflight
@evidence("head -1 /opt/amazon/efa_installed_packages")
def test_efa_installer_string(node: Node) -> None:
    """EFA installer version.

    /opt/amazon/efa_installed_packages begins with a line `# EFA installer version: 1.43.2`. A version such as
    2.3.1amzn2.0 is libfabric's, not the installer's.

    Remedy (fix configuration): Run EFA's installer again, or rebuild the image with an installer that writes this file.
    """
    if not has_efa(node):
        not_applicable("no EFA device on this node")
    problem = node.software.names_no_version("efa_installer")
    assert not problem, f"{problem}; expected a line '# EFA installer version: X'"
    installer = node.software.version("efa_installer")
    if installer is None:
        assert node.occasion != "ami", "no /opt/amazon/efa_installed_packages; expected EFA's software in the image"
        not_applicable("EFA's installer did not run here; the EFA software may live in the container")
    assert LIBFABRIC not in installer, (
        f"EFA installer {installer}, which is a version of libfabric; expected the installer's own"
    )
