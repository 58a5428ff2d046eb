"""The golden manifest of an image: its rule words, and what a node reports for each of its rows.

It is part of a policy: a rule by name in each of its tables. `compose` writes one from a good machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from clusterproof.plugins.catalog.instance_types import machine_row
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.strict import Table, nearest
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.host.collect_services import WANTED as SERVICES
from clusterproof.plugins.evidence.network.collect_rdma import MODULES
from clusterproof.plugins.evidence.software import collect_versions
from clusterproof.plugins.evidence.software.collect_versions import LOADED as LIBRARIES
from clusterproof.plugins.evidence.software.version import rules

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node
    from clusterproof.plugins.evidence.software.facts import Library

ABSENT = "absent"
LOADED, INSTALLED, NOT_LOADED = "loaded", "installed", "not loaded"
WHOLE = "whole"
ACTIVE = "active"
MODULE = (LOADED, INSTALLED, NOT_LOADED, ABSENT)
LIBRARY = (WHOLE, ABSENT)
SERVICE = (
    ACTIVE,
    "inactive",
    "failed",
    INSTALLED,
    ABSENT,
    "enabled",
    "disabled",
    "static",
    "masked",
    "indirect",
    "alias",
)
SIZES = ("cpus", "memory_gib", "gpus", "efa", "nvme_disks", "root_gib", "dev_shm_gib")
FABRIC_MANAGER = "fabric_manager"  # a component with its version from its own program
COMPONENTS = tuple(
    dict.fromkeys(
        (
            *(row[0] for row in collect_versions.FILES),
            *collect_versions.LIBRARIES.values(),
            "cuda_compat",
            FABRIC_MANAGER,
            *collect_versions.PACKAGES,
        )
    )
)

GPU, EFA, NEURON = "NVIDIA GPU", "EFA device", "Neuron device"
IB, RDMA = "InfiniBand or RoCE device", "RDMA device"
DRIVERS = ("driver", "efa", "gdrcopy", "neuron_driver", "ofed")  # components that show their version once loaded
DEVICE_OF: Mapping[str, str] = {  # what must be attached before a driver, module or service can work
    **dict.fromkeys(("driver", "gdrcopy", "gdrdrv", "nvidia", "nvidia_uvm", "nvidia_peermem", "nvidia_fs"), GPU),
    **dict.fromkeys(("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "dcgm"), GPU),
    **dict.fromkeys(("neuron_driver", "neuron"), NEURON),
    **dict.fromkeys(("ofed", "mlx5_core", "mlx5_ib"), IB),
    **dict.fromkeys(("ib_core", "ib_uverbs"), RDMA),
    "efa": EFA,
}


def listed(rule: str) -> list[str]:
    """The words of a rule with several: `active, enabled`."""
    return [word.strip() for word in rule.split(",")]


def component(name: str) -> str:
    """A component by the probe's name: `EFA-installer` is `efa_installer`."""
    return name.lower().replace("-", "_")


KIB_PER_GIB = 1024 * 1024


def version_of(node: Node, component: str) -> str | None:
    """A component's version; None if the node lacks it. Raises Incomplete."""
    if component == FABRIC_MANAGER:
        return fabric_manager(node)
    version = node.software.version(component)
    if version is None:
        node.software.packages  # noqa: B018 - absent only where the database could be read
    return version


def fabric_manager(node: Node) -> str | None:
    """Fabric manager's version from its own program; None if there is none. Raises Incomplete."""
    try:
        output = node.fabric_manager_version.output
    except Absent:
        return None
    match = re.search(r"(?<!\d)\d+\.\d+(?:\.\d+)?", output)
    if not match:
        raise Incomplete(f"nv-fabricmanager --version says {output.strip()[:60]!r}, which is not a version")
    return match[0]


def state_of_module(node: Node, name: str) -> str:
    """Whether a kernel module is loaded, installed for the running kernel, or absent. Raises Incomplete."""
    if name in node.modules:
        return LOADED
    return INSTALLED if name in node.image.modules else ABSENT


def state_of_library(node: Node, name: str) -> str:
    """`whole`, `absent`, or what is wrong with a library. Raises Incomplete."""
    libraries = node.software.libraries.get(name, ())
    if not libraries:
        return ABSENT
    states = [state_of_file(library) for library in libraries]
    if WHOLE in states:
        return WHOLE
    if "" in states:
        raise Incomplete(f"the size of {name} may not be read", cause="may not be looked at")
    return ", ".join(states)


def state_of_file(library: Library) -> str:
    """`whole`, what is wrong with one of a library's files, or empty if unknown."""
    if library.dangles:
        return f"{library.label} leads nowhere"
    record, _ = readings(library, "bytes")
    if not record:
        return ""
    return WHOLE if record["bytes"] else f"{library.label} is empty"


def states_of_service(node: Node, name: str) -> list[str]:
    """What systemd reports for a service: `active`, `enabled`; or `absent`. Raises Incomplete."""
    service = node.services.get(name)
    if service is None:
        raise Incomplete(f"systemd was not asked about {name}")
    if not service.is_installed:
        return [ABSENT]
    return [service.active, *([service.enabled] if service.enabled else [])]


def size_of(node: Node, name: str) -> int:
    """A size of the machine, in whole units. Raises Incomplete."""
    if name == "cpus":
        return node.boot.cpus
    if name == "memory_gib":
        return node.boot.memory_kib // KIB_PER_GIB
    if name == "gpus":
        return len(node.gpus_on_bus)
    if name == "efa":
        return len(node.efa_devices)
    if name == "nvme_disks":
        is_of_any_model = machine_row(node.type_name) or readings(node, "is_outside_ec2")[0].get("is_outside_ec2")
        return sum(not nvme.is_volume if is_of_any_model else nvme.is_local for nvme in node.nvme_controllers)
    return size_of_mount(node, "/" if name == "root_gib" else "/dev/shm")


def size_of_mount(node: Node, path: str) -> int:
    """The size of a file system, in GiB. Raises Incomplete."""
    mount = node.mount_at(path)
    if mount is None or mount.total_kib is None:
        raise Incomplete(f"{path} does not report its size", cause="not reported by the node")
    return mount.total_kib // KIB_PER_GIB


def unattached(node: Node, name: str) -> str:
    """Why a driver, module or service cannot work here: its device is not attached. Raises Incomplete."""
    device = DEVICE_OF.get(name)
    if device is None or is_attached(node, device):
        return ""
    return f"no {device} is attached to this {node.type_name or 'machine'}"


def is_attached(node: Node, device: str) -> bool:
    """Whether the node has such a device, or should have one. Raises Incomplete."""
    if device == GPU:
        on_bus = (readings(pci, "is_nvidia_gpu")[0] for pci in readings(node, "pci_devices")[0].get("pci_devices", ()))
        is_there = any(known_of.get("is_nvidia_gpu") for known_of in on_bus)
        return is_there or node.expected("gpus") > 0 or bool(node.gpus_on_bus)
    if device == NEURON:
        return node.neuron_devices_due > 0
    if device == IB:
        return node.target.expect.get("ib", 0) > 0 or bool(node.ib_devices)
    rdma, unread = readings(node, "efa_devices", *(["ib_devices"] if device == RDMA else []))
    if any(rdma.values()) or node.expected("efa") > 0:
        return True
    require(unread if device == RDMA else ())  # of EFA the bus says it too
    return False


MANIFEST_TABLES = ("manifest", "versions", "modules", "libraries", "services", "sizes")


def manifest_of(table: Table) -> dict[str, Any]:
    """The policy fields for a manifest. Raises InventoryError."""
    about = table.table("manifest")
    about.only("made_of", "made_on", "instance_type")
    return {
        "made_on": about.text("instance_type"),
        "versions": _rows(table.table("versions"), COMPONENTS, _is_version_rule, component),
        "modules": _rows(table.table("modules"), MODULES, _one_of(MODULE)),
        "libraries": _rows(table.table("libraries"), LIBRARIES, _one_of(LIBRARY)),
        "services": _rows(table.table("services"), SERVICES, _all_of(SERVICE)),
        "sizes": _rows(table.table("sizes"), SIZES, rules),
    }


def _rows(
    table: Table, names: Collection[str], read: Callable[[str], object], named: Callable[[str], str] = str
) -> dict[str, str]:
    """A table's rules by name; `names` are the valid names, as `named` spells them."""
    for name in table.values:
        if named(name) not in names:
            raise InventoryError(
                f"{table.where}: the probe does not look at {name!r:.60}{nearest(name, names)}; "
                f"expected {', '.join(names)}"
            )
    rules = {str(name): table.text(str(name)) for name in table.values}
    for name, rule in rules.items():
        try:
            read(rule)
        except ValueError as wrong:
            raise InventoryError(f"{table.where}: {name}: {wrong}") from None
    return rules


def _is_version_rule(rule: str) -> object:
    return rule == ABSENT or rules(rule)


def _one_of(choices: Collection[str]) -> Callable[[str], object]:
    def read(rule: str) -> None:
        if rule not in choices:
            raise ValueError(f"{rule!r:.60} is not a rule; expected {' or '.join(choices)}")

    return read


def _all_of(choices: Collection[str]) -> Callable[[str], object]:
    def read(rule: str) -> None:
        for word in listed(rule):
            _one_of(choices)(word)

    return read
