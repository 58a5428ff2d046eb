"""An image compared with its golden manifest, one line for each deviation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.software import version
from clusterproof.plugins.manifest import (
    ABSENT,
    ACTIVE,
    DRIVERS,
    INSTALLED,
    LOADED,
    NOT_LOADED,
    component,
    listed,
    size_of,
    state_of_library,
    state_of_module,
    states_of_service,
    unattached,
    version_of,
)

pytestmark = [mark.software, mark.ami, mark.hyperpod_version_checker]


@evidence("uname -r; dpkg-query -W; rpm -qa; head -1 /opt/amazon/efa_installed_packages; nv-fabricmanager --version")
def test_versions_expected(node: Node) -> None:
    """Versions against the manifest.

    Compares the policy's table [versions], one rule per component: `cuda = "== 12.9"`, `efa_installer = "1.43 to
    1.50"`, `nccl = "!= 2.27"`, `docker = "absent"`. Only as many numbers as the rule has are compared.
    software.drivers_expected covers drivers.

    Remedy (fix configuration): Rebuild the image with these versions, or change the manifest.
    """
    rows = {name: rule for name, rule in node.policy.versions.items() if component(name) not in DRIVERS}
    compare(node, rows, "versions", lambda name, rule: of_version(node, name, rule))


@evidence("grep . /sys/module/{nvidia,efa,gdrdrv,mlx5_core,neuron}/version")
def test_drivers_expected(node: Node) -> None:
    """Drivers against the manifest.

    Compares the rows `driver`, `efa`, `gdrcopy`, `ofed` and `neuron_driver` of the table [versions]. A driver reports
    its version only once it is loaded, so on a machine without the device, such as a build host, these rows are not
    applicable.

    Remedy (fix configuration): Rebuild the image with these drivers, or change the manifest.
    """
    rows = {name: rule for name, rule in node.policy.versions.items() if component(name) in DRIVERS}
    compare(node, rows, "versions", lambda name, rule: of_version(node, name, rule))


@evidence("lsmod; grep -E 'nvidia|efa|gdrdrv|lustre' /lib/modules/$(uname -r)/modules.dep")
def test_modules_expected(node: Node) -> None:
    """Kernel modules against the manifest.

    Compares the table [modules]: `nvidia = "loaded"`, `lustre = "installed"` for the running kernel, `nouveau = "not
    loaded"` or `"absent"`. On a machine without the device, the module must be installed; whether it is loaded is not
    applicable.

    Remedy (fix configuration): Install the module for the image's kernel (DKMS builds it if the kernel headers are
    installed), and load it at boot (/etc/modules-load.d).
    """
    compare(node, node.policy.modules, "modules", lambda name, rule: of_module(node, name, rule))


@evidence("ldconfig -p | grep -E 'libcuda|libnvidia-ml|libnccl'; ls -lL /opt/amazon/ofi-nccl/lib*")
def test_libraries_expected(node: Node) -> None:
    """Libraries against the manifest.

    Compares the table [libraries]: `"libnccl.so.2" = "whole"` means that the library is where the loader or the
    installers put it, neither empty nor a dangling link; `"absent"` is for libraries that jobs bring themselves.

    Remedy (fix configuration): Reinstall what is missing and run ldconfig, or change the manifest.
    """
    compare(node, node.policy.libraries, "libraries", lambda name, rule: of_library(node, name, rule))


@evidence("systemctl show --property=LoadState,ActiveState,UnitFileState slurmd nvidia-fabricmanager")
def test_services_expected(node: Node) -> None:
    """Services against the manifest.

    Compares the table [services]: `chrony = "active, enabled"`, `slurmd = "enabled"`, `docker = "absent"`. On a machine
    without the device, the service must be installed and enabled; whether it is active is not applicable.

    Remedy (fix configuration): Enable or install the service in the image's recipe, or change the manifest.
    """
    compare(node, node.policy.services, "services", lambda name, rule: of_service(node, name, rule))


@evidence("nproc; free -g; lspci -d 10de:; ls /sys/class/infiniband; df -h / /dev/shm")
def test_sizes_expected(node: Node) -> None:
    """Machine size against the manifest.

    Compares the table [sizes]: `gpus = "== 8"`, `memory_gib = ">= 2000"`, `root_gib = "100 to 500"`. The sizes are for
    the manifest's instance type; on other types the check is not applicable.

    Remedy (fix configuration): Launch the image with the manifest's root volume size and instance type, or change the
    manifest.
    """
    made_on = node.policy.made_on.removeprefix("ml.")
    if made_on and node.policy.sizes and node.instance_type != made_on:
        not_applicable(f"the manifest's sizes are for {made_on}, this is a {node.type_name}")
    compare(node, node.policy.sizes, "sizes", lambda name, rule: of_size(node, name, rule))


def compare(node: Node, rows: Mapping[str, str], table: str, deviation: Callable[[str, str], str]) -> None:
    """Compare a node with the rows of a table: a line for each that it does not match.

    A row that cannot be evaluated here makes the whole not applicable, with the reason: the others are no pass for it.
    """
    if not rows:
        node.platform  # noqa: B018 - a node that reported nothing is not excused
        not_applicable(
            f"nothing to compare with: the policy has no golden manifest with rows for this node in [{table}]"
        )
    unseen: dict[str, list[str]] = {}
    for name, rule in rows.items():
        with part:
            try:
                seen = deviation(name, rule)
            except NotApplicable as why:
                unseen.setdefault(str(why), []).append(name)
                continue
            assert not seen, seen
    if unseen:
        not_applicable("; ".join(f"{why}, for {', '.join(names)}" for why, names in unseen.items()))


def of_version(node: Node, name: str, rule: str) -> str:
    """How a component deviates, as text; empty if it does not. Raises Incomplete, NotApplicable."""
    try:
        if rule != ABSENT:
            version.rules(rule)
        installed = version_of(node, component(name))
        if rule == ABSENT:
            return f"{name} {installed}; expected no {name}" if installed else ""
        if installed is None:
            excuse(unattached(node, component(name)))
            return f"no {name}; expected {name} {rule}"
        condition = version.broken(installed, rule)
    except ValueError as problem:
        raise Incomplete(f"{name}: {problem}") from None
    return f"{name} {installed}; expected {name} {condition}" if condition else ""


def of_module(node: Node, name: str, rule: str) -> str:
    """How a kernel module deviates, as text; empty if it does not. Raises Incomplete, NotApplicable."""
    state = state_of_module(node, name)
    kept = {LOADED: (LOADED,), INSTALLED: (LOADED, INSTALLED), NOT_LOADED: (INSTALLED, ABSENT), ABSENT: (ABSENT,)}
    if state in kept[rule]:
        return ""
    if rule == LOADED and state == INSTALLED:
        excuse(unattached(node, name))
    return f"module {name} is {state}; expected {rule}"


def of_library(node: Node, name: str, rule: str) -> str:
    """How a library deviates, as text; empty if it does not. Raises Incomplete."""
    state = state_of_library(node, name)
    return "" if state == rule else f"library {name}: {state}; expected {rule}"


def of_service(node: Node, name: str, rule: str) -> str:
    """How a service deviates, as text; empty if it does not. Raises Incomplete, NotApplicable."""
    states = states_of_service(node, name)
    lacking = [word for word in listed(rule) if word not in (*states, *([] if ABSENT in states else [INSTALLED]))]
    if lacking == [ACTIVE] and ABSENT not in states:
        excuse(unattached(node, name))
    return f"service {name} is {', '.join(states)}; expected {rule}" if lacking else ""


def of_size(node: Node, name: str, rule: str) -> str:
    """How a size deviates, as text; empty if it does not. Raises Incomplete."""
    size = size_of(node, name)
    condition = version.broken(str(size), rule)
    return f"{name} {size}; expected {name} {condition}" if condition else ""


def excuse(reason: str) -> None:
    """Raise NotApplicable if there is a reason why a row cannot be evaluated on this machine."""
    if reason:
        not_applicable(reason)
