"""GPUDirect RDMA: kernel modules, the IOMMU, and the PCIe settings between GPUs and network devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

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
from clusterproof.plugins.evidence.field import each, reading_of, readings, require
from clusterproof.plugins.evidence.group import Values, describe, differences, majority_of
from clusterproof.plugins.evidence.kernel_log.wording import report
from clusterproof.plugins.evidence.network.facts import INFINIBAND
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts_config import PciFunction, PciPaths, PciSettings

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


PROPRIETARY = "P"  # in a kernel module's taint


@mark.ami
@evidence("lsmod | grep -E 'nvidia_peermem|gdrdrv'; cat /sys/module/nvidia/taint; uname -r; dmesg | grep peermem")
def test_peermem(node: Node) -> None:
    """GPUDirect RDMA kernel support.

    Without GPUDirect RDMA, all network traffic is copied through host memory. It needs nvidia_peermem, or a kernel with
    DMA-BUF and NVIDIA's open kernel modules; gdrcopy's gdrdrv speeds up small messages on EFA. On nodes with RoCE it is
    required only with NVLink, since others may use these ports for storage. An nvidia_peermem built for a different
    kernel or RDMA stack does not load, and the kernel logs why.

    Remedy (fix configuration): Load nvidia_peermem (modprobe nvidia-peermem), or install the open kernel modules;
    install gdrcopy and load gdrdrv. If nvidia_peermem does not match the kernel, reinstall NVIDIA's driver after the
    RDMA stack (MLNX_OFED).
    """
    evaluate_fit(node)
    if node.expected("efa") == 0:
        if not has_fabric(node):
            not_applicable(
                f"{node.type_name or 'this node'} has neither an EFA device nor GPUs with another RDMA fabric"
            )
        if "nvidia_peermem" not in node.modules:
            evaluate_dma_buf(node)
        return
    if not node.type.gdr:
        not_applicable(f"according to the catalogue, {node.type_name} has no GPUDirect RDMA")
    if "nvidia_peermem" not in node.modules:
        evaluate_dma_buf(node)
    concern_if("gdrdrv" not in node.modules, "gdrdrv is not loaded; expected on a node with EFA and GPUs")


def has_fabric(node: Node) -> bool:
    """Whether its GPUs communicate over active ports of InfiniBand, or of RoCE. Raises Incomplete."""
    reading, unread = readings(node, "ib_devices", "gpus_on_bus")
    if not all(reading.values()):
        return False
    require(why for why in unread if isinstance(why, Incomplete))
    if not (reading.get("ib_devices") and reading.get("gpus_on_bus")):
        return False
    layers = node.active_link_layers
    return INFINIBAND in layers or bool(layers and node.nvlinks_due)


def evaluate_fit(node: Node) -> None:
    """A concern if nvidia_peermem did not fit when it was loaded, is not loaded now, and nothing replaces it."""
    reading, _ = readings(node, "modules", "gpus_on_bus")
    if "nvidia_peermem" in reading.get("modules", ()) or not reading.get("gpus_on_bus", True):
        return
    with suppress(Incomplete):
        if has_dma_buf(node) and is_open(node):
            return
    with suppress(Incomplete):
        report(node, "gpu.peermem", "a module built for this kernel and its RDMA stack")


def evaluate_dma_buf(node: Node) -> None:
    """A concern if the kernel or the module cannot export GPU memory to RDMA devices as DMA-BUF."""
    kernel, module, can = "a kernel of unknown version", "an unknown", []
    with part:
        can.append(has_dma_buf(node))
        kernel = f"kernel {node.boot.kernel[:40]}"
    with part:
        can.append(is_open(node))
        module = "the open" if can[-1] else "a proprietary"
    lack = f"no DMA-BUF with {kernel} and {module} NVIDIA module; expected one of the two"
    concern_if(not all(can), f"nvidia_peermem is not loaded, and {lack}")


def has_dma_buf(node: Node) -> bool:
    """Whether the kernel has DMA-BUF."""
    version = re.match(r"(\d{1,4})\.(\d{1,4})", node.boot.kernel)
    if not version:
        incomplete(f"the kernel release is {node.boot.kernel[:40]!r}; expected a version number")
    least = (node.threshold("dma_buf.kernel_major"), node.threshold("dma_buf.kernel_minor"))
    return (int(version[1]), int(version[2])) >= least


def is_open(node: Node) -> bool:
    """Whether NVIDIA's open kernel module is loaded. Raises Incomplete if no module is loaded."""
    if not node.nvidia_taint:
        incomplete("no NVIDIA kernel module is loaded, or its taint was not read; expected a loaded module")
    return PROPRIETARY not in node.nvidia_taint


TRANSLATED = ("DMA", "DMA-FQ")
X86 = "x86_64"
EMULATED = ("1b36:", "15ad:", "1d0f:")  # vendors of ports in virtual machines, by pci.ids: QEMU, VMware, Amazon
DATA_DIRECT = "15b3:2100"  # the function by which a ConnectX-8 reaches the memory of a GPU past the CPU


@evidence("sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'")
def test_pcie_acs(node: Node) -> None:
    """PCIe access control between GPUs and network devices.

    A GPU and a network device below the same PCIe switch reach each other through it, unless access control services
    (ACS) on its ports redirect that traffic through the CPU (ReqRedir, CmpltRedir, UpstreamFwd, SrcValid). Virtual
    machines are skipped, since their bridges are emulated, and so is Grace, which needs different settings.

    Remedy (fix configuration): Disable ACS in the firmware, or boot with pci=config_acs=… for these ports. Leave it on
    if the host runs virtual machines.
    """
    paths = node.pci_settings
    require_metal(node)
    functions, ports = paths.functions, dict[str, tuple[str, str]]()
    for port, gpu, nic in paths.between():
        ports.setdefault(port, (gpu, nic))
    if not ports and paths.are_unplaced:
        of_ports = each(paths.ports, lambda row: (row.address, row.settings.redirects if row.settings else ()))
        named = ", ".join(f"{address} ({' '.join(redirects)})" for address, redirects in of_ports if redirects)
        if named:
            incomplete(
                f"ACS is on at {named}, but the PCI topology is unknown; expected "
                "the bridges above each device, as a live run reports them"
            )
        not_applicable("no port known here has ACS on")
    if not ports:
        not_applicable("no GPU here is below one PCIe switch with a network device")
    for port, (gpu, nic) in ports.items():
        with part:
            row = functions.get(port)
            redirects = row.settings.redirects if row and row.settings else ()
            seen = f"{port}, between {gpu} and {nic}, has ACS {' '.join(redirects)} on"
            concern_if(redirects, f"{seen}; expected these off")


@evidence("grep . /sys/bus/pci/devices/*/iommu_group/type; cat /proc/cmdline")
def test_pcie_iommu(node: Node) -> None:
    """IOMMU mode of GPUs and network devices.

    An IOMMU that translates every device access slows traffic between GPUs and the network and sends it through the
    CPU. On bare metal it should be off, or in passthrough (identity) mode.

    Remedy (fix configuration): Boot with iommu=pt, or disable the IOMMU in the firmware. Hosts with more than 255 CPUs
    need it on, so use iommu=pt there.
    """
    paths = node.pci_settings
    require_metal(node)
    if not paths.endpoints:
        not_applicable("no GPU or network device on the PCI bus")
    modes = dict(each(paths.endpoints, lambda row: (row.address, row.iommu)))
    translated = [f"{address} ({mode})" for address, mode in modes.items() if mode in TRANSLATED]
    seen = f"the IOMMU translates for {len(translated)} of {len(modes)} devices: {', '.join(translated[:4])}"
    concern_if(translated, f"{seen}; expected passthrough (identity), or no IOMMU")


@evidence("sudo lspci -vvv | grep -E '^[0-9a-f]|MaxPayload|RlxdOrd'")
def test_pcie_settings(node: Node) -> None:
    """PCIe requests of GPUs and network devices.

    A device whose MaxPayload differs from the port above it loses packets or sends small ones. A smaller MaxReadReq, or
    no relaxed ordering, makes it slower than most of its model (than any, if no other node reports the device), unless
    most nodes of the group have it so; a MaxPayload below other nodes' makes all slower. Payloads are not compared in
    virtual machines, since their ports are emulated.

    Remedy (fix configuration): Compare the firmware settings with a healthy node and reboot; a driver or setpci may
    have changed the device since boot.
    """
    paths = node.pci_settings
    if all(reading_of(row, "settings", row) is None for row in paths.rows):
        not_applicable("no GPU or network device on PCI Express is awake here")
    functions = paths.functions
    for row in paths.endpoints:
        with part:
            port = functions.get((row.path or ("",))[-1])
            own, above = row.settings, port.settings if port else None
            is_unlike = own and above and own.max_payload and above.max_payload and own.max_payload != above.max_payload
            if own and above and is_unlike and not is_emulated(port, paths):
                at_port = f"and {above.max_payload} bytes on the port above it"
                seen = f"MaxPayload of {row.address} is {own.max_payload} bytes, {at_port}"
                concern(f"{seen}; expected the same")
    for what, read in SETTINGS.items():
        for values in settings_by_model(paths, read).values():
            odd_ones(node, what, values)
    with suppress(NotApplicable):
        deviations = differences(node, IN_GROUP_OF, majority_settings, absent=None)
        counts = node.group.counts(IN_GROUP_OF, majority_settings)
        best = {name: max(settings, key=rank) for name, settings in counts.items() if settings}
        less = [row for row in deviations if rank(row.own) < rank(row.majority or best[row.name])]
        concern_if(less, describe(less))


def is_emulated(port: PciFunction | None, paths: PciPaths) -> bool:
    """Whether a hypervisor emulates a port, whose settings then say nothing about the real one."""
    return bool(port and port.model.startswith(EMULATED)) or paths.is_virtual


SWITCHED: dict[bool | None, str] = {True: "on", False: "off"}
Read = Callable[[PciSettings], object]  # in words; None where there is no such setting
SETTINGS: dict[str, Read] = {
    "MaxReadReq": lambda settings: settings.max_read_request,
    "relaxed ordering": lambda settings: SWITCHED.get(settings.relaxed_ordering),
}
IN_GROUP: dict[str, Read] = {**SETTINGS, "MaxPayload": lambda settings: settings.max_payload}

OF_DEVICES, IN_GROUP_OF = "PCIe settings of devices", "settings of PCIe"
AND = " and "  # between the settings of a model none of which has a majority


def rank(value: str) -> list[tuple[int, str]]:
    """A sort key for settings, worst first: a greater number is better, and on is better than off."""
    return [(int(setting) if setting.isdecimal() else 0, setting) for setting in value.split(AND)]


def settings_by_model(paths: PciPaths, read: Read) -> dict[str, dict[str, str]]:
    """The settings of each device, by model and address, as far as they are known."""
    by_model: dict[str, dict[str, str]] = {}
    for row in paths.endpoints:
        with part:
            value, model, address = read(row.settings) if row.settings else None, row.model, row.address
            if value is not None:
                by_model.setdefault(model, {})[address] = str(value)
    return by_model


def odd_ones(node: Node, what: str, values: Mapping[str, str]) -> None:
    """A concern for each device whose setting is worse than that of most of its model here (than any, if no other node
    reports the device).
    """
    majority_value, best = majority_value_of(node, values), max(values.values(), key=rank)
    least = int(node.threshold("group.compared_nodes"))
    for address, value in values.items():
        name = f"{what} of {address}"
        elsewhere, seen = majority_of(node, OF_DEVICES, settings_of, name, None), f"{name} is {value}"
        if majority_value and rank(value) < rank(majority_value):
            is_meant = elsewhere is not None and elsewhere.value == value
            concern_if(not is_meant, f"{seen}; expected {majority_value}, as on most of its model here")
        elif node.group.counts(OF_DEVICES, settings_of).get(name, Counter()).total() < least:
            count = [*values.values()].count(best)
            concern_if(value != best, f"{seen}; expected {best}, like {count} of its model here")


def majority_value_of(node: Node, values: Mapping[str, str]) -> str | None:
    """The value of most devices; None if no value has a majority."""
    value, count = Counter(values.values()).most_common(1)[0]
    return value if count > len(values) * node.threshold("group.majority") else None


def settings_of(node: Node) -> Values:
    """Each setting of each device."""
    return {
        f"{what} of {address}": value
        for what, read in SETTINGS.items()
        for values in settings_by_model(node.pci_settings, read).values()
        for address, value in values.items()
    }


def majority_settings(node: Node) -> Values:
    """The setting of most devices of a model, otherwise all of theirs, by the setting's name with the model."""
    return {
        f"{what} of {model}": majority_value_of(node, values) or AND.join(sorted({*values.values()}, key=rank))
        for what, read in (SETTINGS if may_be_virtual(node.pci_settings) else IN_GROUP).items()
        for model, values in settings_by_model(node.pci_settings, read).items()
    }


def may_be_virtual(paths: PciPaths) -> bool:
    """Whether the devices may be those of a virtual machine, as far as is known."""
    return bool(reading_of(paths, "is_virtual", True))


def require_metal(node: Node) -> None:
    """Raise NotApplicable on a virtual machine, and on Grace."""
    if node.pci_settings.is_virtual:
        not_applicable("a virtual machine: its PCIe bridges are emulated, and its IOMMU is the host's")
    models = [reading_of(row, "model") for row in node.pci_settings.rows]
    if node.pci_settings.machine != X86 or DATA_DIRECT in models:
        not_applicable("Grace, or network devices that reach GPUs without the CPU: their ports need different settings")
