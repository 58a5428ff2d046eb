"""GPUs and NVSwitches of a node: their number, driver, NUMA nodes and identity, and whether all are alike."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from operator import attrgetter

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, reading_of, readings
from clusterproof.plugins.evidence.gpu.facts_rack import is_rack_wide, models_of
from clusterproof.plugins.evidence.group import Values, describe, differences, majority_of
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [mark.gpu, mark.preflight, mark.ami, mark.hyperpod_node_debugger("G")]


DRIVER = "nvidia"
NO_GPU = "no NVIDIA GPU on the PCI bus"
OF_EIGHT_GPUS = (0, 4, 6)  # NVSwitches of a board with eight: cards have none, Hopper boards four, Ampere boards six


@mark.prolog
@evidence("lspci -d 10de: -nn | grep -i bridge")
def test_nvswitch_count(node: Node) -> None:
    """NVSwitch count.

    Each NVSwitch carries part of the traffic between GPUs. If one is missing or has no driver, fabric manager does not
    start or leaves the GPUs with fewer links. Since Blackwell, NVSwitches are not on the node's PCI bus.

    Remedy (reset or reboot): Reboot the node. If a switch is still missing, replace the node.
    """
    on_bus = [device for device, is_one in each(node.pci_devices, _is_nvswitch) if is_one]
    reported = [readings(device, "driver", "address")[0] for device in on_bus]
    unbound = [reading.get("address", "one of them") for reading in reported if reading.get("driver") == ""]
    nvswitches = len(on_bus)
    with suppress(Incomplete):  # GPUs that do not answer are GPUs
        node.gpus  # noqa: B018 - raises NotApplicable on a node without any
    if node.nvlinks_due is None and len(reading_of(node, "gpus_on_bus", ())) == 8:
        expected = " or ".join(str(count) for count in OF_EIGHT_GPUS if count)
        message = f"{nvswitches} NVSwitches on the PCI bus; expected {expected} with eight GPUs"
        fail_if(nvswitches not in OF_EIGHT_GPUS, message)
    due = known(lambda: node.of_type("nvswitches") if node.of_type("nvswitch") else 0, None)
    if due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVSwitch on its PCI bus")
    fail_if(unbound, f"no driver is bound to {', '.join(unbound)}; expected nvidia-nvswitch on every NVSwitch")
    if due is not None and nvswitches < due <= nvswitches + _of_unknown_kind(node, "is_nvswitch"):
        incomplete(f"{nvswitches} devices on the PCI bus are known to be NVSwitches; expected {due}")
    fail_if(due is not None and nvswitches < due, f"{nvswitches} NVSwitches on the PCI bus; expected {due}")


def _is_nvswitch(device: PciDevice) -> tuple[PciDevice, bool]:
    return device, device.is_nvswitch


def _of_unknown_kind(node: Node, kind: str) -> int:
    """How many devices on the bus may be of a kind, as their class or vendor was not read."""
    return sum(not readings(device, kind)[0] for device in node.pci_devices)


@evidence("lspci -d 10de: -nnk; lsmod | grep nouveau")
def test_gpu_driver(node: Node) -> None:
    """GPU driver binding.

    CUDA cannot use a GPU that is bound to nouveau or to a hypervisor's driver. If both nouveau and NVIDIA's driver are
    loaded, whichever is first at the next boot gets the GPUs.

    Remedy (fix configuration): Blacklist nouveau (modprobe.d and the initial RAM disk), then reboot the node.
    """
    gpus: tuple[PciDevice, ...] = ()
    with part:
        gpus = gpus_of(node)
    for gpu in gpus:
        with part:  # that no driver holds it is another check's finding
            address = known(lambda: gpu.address[:20], "a GPU")  # noqa: B023 - called at once
            fail_if(gpu.driver not in ("", DRIVER), f"{gpu.driver[:40]} holds {address}; expected {DRIVER}")
    if not (gpus or readings(node, "gpus_on_bus")[1]):
        not_applicable(NO_GPU)
    evaluate_nouveau(node, has_gpus=bool(gpus))


def evaluate_nouveau(node: Node, *, has_gpus: bool) -> None:
    """A concern if nouveau is loaded on a node that has GPUs, as is known where NVIDIA's driver is loaded too."""
    modules = node.modules
    seen = f"nouveau is loaded{' alongside nvidia' if DRIVER in modules else ''}"
    concern_if("nouveau" in modules and (has_gpus or DRIVER in modules), f"{seen}; expected not loaded")


@evidence("nvidia-smi topo -m; grep . /sys/bus/pci/devices/*/numa_node")
def test_gpu_numa(node: Node) -> None:
    """GPU NUMA nodes.

    Each process of a job is bound to the CPUs near its GPU. A GPU in the wrong slot, or one that the firmware assigns
    to the wrong NUMA node, sends all its host traffic over the link between the sockets.

    Remedy (investigate): Compare nvidia-smi topo -m, the slots and the firmware settings (NUMA nodes per socket) with a
    healthy node. In a cloud, replace the node.
    """
    gpus = gpus_of(node)
    counts = Counter(each(gpus, lambda gpu: gpu.numa))
    is_meant = False
    with suppress(NotApplicable):  # too few nodes to compare with
        deviations = differences(node, NUMA, numa_nodes, absent=None)
        concern_if(deviations, describe(deviations))
        is_meant = not deviations and are_at_majority_addresses(node)  # as all nodes have it
    is_whole = counts.total() == len(gpus) and not _of_unknown_kind(node, "is_nvidia_gpu")
    mean = counts.total() / max(len(counts), 1)
    if is_whole and mean.is_integer() and len(set(counts.values())) > 1 and not is_meant:
        seen = ", ".join(f"{count} GPUs on NUMA node {numa}" for numa, count in sorted(counts.items()))
        concern(f"{seen}; expected {mean:.0f} on each")


NUMA = "NUMA nodes of the GPUs"


def are_at_majority_addresses(node: Node) -> bool:
    """Whether most nodes have a GPU at the address of each GPU here that is on a NUMA node."""
    own = numa_nodes(node)
    has_majority = (value is None or majority_of(node, NUMA, numa_nodes, name, None) for name, value in own.items())
    return len(own) == len(gpus_of(node)) and all(has_majority)


def numa_nodes(node: Node) -> Values:
    """The NUMA node of each GPU by address; None if the firmware names none, which is reported separately."""
    gpus = [gpu for gpu in node.pci_devices if reading_of(gpu, "is_nvidia_gpu")]
    every = each(gpus, lambda gpu: (f"NUMA node of {gpu.address}", gpu.numa))
    return {name: str(numa) if numa >= 0 else None for name, numa in every}


def gpus_of(node: Node) -> tuple[PciDevice, ...]:
    """The devices on the bus that are known to be GPUs. Raises NotApplicable if there are none."""
    devices = each(node.pci_devices, lambda device: (device, device.is_nvidia_gpu))
    gpus = tuple(device for device, is_gpu in devices if is_gpu)
    if not gpus:
        not_applicable(NO_GPU)
    return gpus


SWITCHED = {"True": "on", "False": "off"}
ON_ONE_BOARD = 2  # GPUs at most: GB200 and GB300 boards carry two, and both report the board's serial
KIND = {"name": "GPU", "vbios": "VBIOS", "memory_total_mib": "memory (MiB)", "power_limit_w": "power limit (W)"}
KIND_IF_REPORTED = {
    "mig_mode": "MIG",
    "pcie_gen_max": "PCIe generation at most",
    "pcie_width_max": "PCIe lanes at most",
    "power_limit_default_w": "default power limit (W)",
    "clock_max_mhz": "maximum clock (MHz)",
}
OF_ONE_MODEL = {  # what GPUs of one node have alike; their VBIOS and power limits have checks of their own
    "memory_total_mib": "memory (MiB)",
    "power_limit_default_w": "default power limit (W)",
    "clock_max_mhz": "maximum clock (MHz)",
}


@evidence("nvidia-smi --query-gpu=index,uuid,serial --format=csv")
def test_gpu_identity(node: Node) -> None:
    """GPU identity.

    UUID and serial identify the hardware behind a finding, even after a node is replaced; every result includes them.
    Two GPUs that report the same value are one GPU seen twice, or have damaged firmware. Two nodes with the same GPUs
    are one machine listed under two names. Values that most nodes of the group report are ignored, unless those nodes
    have the same boot ID too.

    Remedy (reset or reboot): Reboot the node. If two GPUs still report the same value, replace it. If one machine is
    listed under two names, correct the inventory.
    """
    evaluate_machine(node)
    for name in ("uuid", "serial"):
        counts = Counter(each(node.gpus, attrgetter(name)))  # some have no serial
        shared = [
            f"{name} {value[:60]} of {counts[value]} GPUs"
            for value in counts
            if counts[value] > (on_one_board(node, counts) if name == "serial" else 1)
        ]
        concern_if(shared, f"{', '.join(shared)}; expected a different one for each GPU")


def evaluate_machine(node: Node) -> None:
    """A concern if another node of the group reports the same GPUs."""
    shared, most = (
        node.group.shared("GPU UUIDs", uuids),
        max(2, len(node.group.nodes) * node.threshold("group.majority")),
    )
    one_machine = {node.name, *node.same_machine}
    reported = [shared.get(uuid, ()) for uuid in uuids(node)]
    known = [names if len(names) <= most else one_machine.intersection(names) for names in reported]
    of_others = [names for names in known if len(names) > 1]
    others = sorted({name for names in of_others for name in names} - {node.name})
    if not others:
        return
    from clusterproof.plugins.core.nodeset import fold  # hardly ever

    why = ", with the same boot ID, so the same machine" if {*others} <= {*node.same_machine} else ""
    seen = f"{len(of_others)} of {len(known)} GPUs are also reported by {fold(others)}{why}"
    concern_if(seen, f"{seen}; expected GPUs that no other node has")


def uuids(node: Node) -> list[str]:
    """The UUIDs of its GPUs, as far as they are known."""
    return [reading["uuid"] for gpu in node.gpus if (reading := readings(gpu, "uuid")[0])]


def on_one_board(node: Node, serials: Counter[str]) -> int:
    """How many GPUs may report one serial: it is the board's, and all boards of a node have the same number of GPUs.

    On a tray of Grace a board has two GPUs, of which one may be missing.
    """
    is_tray = is_rack_wide(models_of(node.gpus))
    is_even = len(serials) > 1 and len(set(serials.values())) == 1
    return ON_ONE_BOARD if is_tray or is_even else 1


@evidence(
    "nvidia-smi --query-gpu=index,name,vbios_version,memory.total,enforced.power.limit,power.default_limit,"
    "clocks.max.graphics,mig.mode.current,pcie.link.gen.max,pcie.link.width.max --format=csv"
)
def test_gpu_uniform(node: Node) -> None:
    """GPUs compared with the group.

    Jobs run at the pace of the slowest GPU. Model, memory size, VBIOS, power limit, maximum clock, MIG mode and PCIe
    link are compared with most nodes of the group or, if the group has no majority, among the node's own GPUs.

    Remedy (investigate): If the power limit is lower, restore it (nvidia-smi -pl WATTS). Otherwise replace the node if
    it is slow.
    """
    evaluate_among_gpus(node)
    for gpu in node.gpus:
        for name in KIND:
            with part:
                getattr(gpu, name)
    deviations = differences(node, GPUS, kind_of_gpus)
    concern_if(deviations, describe(deviations))


def evaluate_among_gpus(node: Node) -> None:
    """A concern for each GPU whose value is below, or above, that of most GPUs of its model on the node."""
    by_gpu = [(gpu, readings(gpu, "name", *OF_ONE_MODEL)[0]) for gpu in node.gpus]
    for name, reported in OF_ONE_MODEL.items():
        values = [(gpu.label, reading.get("name"), reading[name]) for gpu, reading in by_gpu if reading.get(name)]
        for label, model, own in values:
            elsewhere, of_model = (majority_of(node, GPUS, kind_of_gpus, key) for key in (reported, KIND["name"]))
            is_of_one = model == one_model(node) and of_model is not None and of_model.value == model
            if is_of_one and elsewhere and SEVERAL not in elsewhere.value and elsewhere.value != UNREPORTED:
                is_odd, expected = as_text(own) != elsewhere.value, f"{elsewhere.value} {elsewhere.how_many}"
            else:
                of_model_values = [value for _, other, value in values if other == model or None in (other, model)]
                counts = Counter(of_model_values)
                most_common = max(counts, key=lambda value: (counts[value], value))
                count = counts[most_common]
                is_odd = own != most_common and len(values) > ON_ONE_BOARD
                expected = f"{most_common:g}, as on {count} GPUs of the node"
            concern_if(is_odd, f"{label}: {reported} {own:g}; expected {expected}")


GPUS, UNREPORTED, SEVERAL = "GPUs", "not reported", " and "  # the last between a node's values that differ


def one_model(node: Node) -> str | None:
    """The model of all its GPUs; None if there are several models."""
    names = {reading_of(gpu, "name") for gpu in node.gpus}
    return names.pop() if len(names) == 1 else None


def kind_of_gpus(node: Node) -> Values:
    """The kinds of GPUs of the node as text: the distinct values of all its GPUs; None if none reports it."""
    return {reported: values_of(node, name) for name, reported in (KIND | KIND_IF_REPORTED).items()}


def values_of(node: Node, name: str) -> str | None:
    """The distinct values that the node's GPUs report; `not reported` if the driver does not have it."""
    values = set()
    for gpu in node.gpus:
        reading, unread = readings(gpu, name)
        values |= {as_text(value) for value in reading.values() if value is not None}
        values |= {UNREPORTED for why in unread if isinstance(why, NotApplicable)}
    return SEVERAL.join(sorted(values)) or None


def as_text(value: object) -> str:
    """A value as text that is the same on every node: `on`, `700`, `96.00.A5.00.01`."""
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return SWITCHED.get(text, text[:40])
