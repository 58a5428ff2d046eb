"""A node's GPUs, according to the driver and on the bus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import (
    PCI_DEVICES,
    SWITCHES,
    Absent,
    CollectorData,
    collected_as,
    collected_by,
    limited,
    list_collected_as,
)
from clusterproof.plugins.evidence.field import objects, optional, reading_of, readings, require, table
from clusterproof.plugins.evidence.gpu.facts import HIDDEN, Gpu, Nvml
from clusterproof.plugins.evidence.gpu.facts_parts import is_unsupported
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from clusterproof.plugins.evidence.network.facts import fastest_models
from clusterproof.plugins.evidence.pci.facts import Paths, PciDevice, PciSwitch, paths_of, switches_of, unread_kind

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


MAX_UUID = 80  # characters of one, as it goes into every result
MAX_UUIDS = 128  # no node has more than 16

nvml = collected_as("nvml", Nvml)


@collected_by("nvml_inforom")
def inforoms(_node: Node, inforom: CollectorData) -> Mapping[str, object]:
    """Whether each GPU's InfoROM is intact, by PCI address, or why that is unknown. Raises Absent without a driver."""
    return inforom.get("gpus", table)


@collected_by()
def driver_hangs(node: Node) -> str:
    """What NVML was doing when it exceeded its deadline, else empty. Raises Incomplete."""
    collector = node.collector("nvml")
    if collector.status is Status.BROKE:
        raise Incomplete(f"NVML could not be read: {collector.detail}", cause="nvml could not be read")
    if collector.starved and collector.status is Status.TIMED_OUT:
        raise Incomplete(f"NVML {collector.detail}; the node was too busy to ask it", cause="the node is too busy")
    return (
        f"NVML {collector.detail or 'did not answer'}" if collector.status in (Status.TIMED_OUT, Status.STUCK) else ""
    )


@collected_by()
def driver_error(node: Node) -> str:
    """NVML's error if the driver does not start, else empty."""
    try:
        return node.nvml.error
    except Absent:
        return "no NVML library"


@collected_by()
def gpu_count(node: Node) -> int:
    """How many GPUs NVML counts; 0 if the driver does not start. Raises Incomplete if some are hidden from it."""
    if node.driver_error:
        return 0
    if node.hidden_gpus:
        raise Incomplete(f"NVML counts {node.nvml.count} GPUs: {node.hidden_gpus}", cause=HIDDEN)
    return node.nvml.count


@collected_by("nvml")
def hidden_gpus(_node: Node, reported: CollectorData) -> str:
    """Which GPUs a device cgroup hides from the probe, in words; empty if none."""
    hidden = Nvml(reported.value).hidden
    return f"{', '.join(hidden)} {HIDDEN}" if hidden else ""


@collected_by()
def gpus(node: Node) -> tuple[Gpu, ...]:
    """The GPUs that NVML counts, at least one. Raises Incomplete if there should be some, else NotApplicable."""
    if not node.driver_error and (counted := node.nvml.gpus):
        return tuple(like_its_peers(gpu, counted, node) for gpu in counted)
    why = node.driver_error or "the driver counts none"
    if not node.gpus_on_bus and not _gpus_are_expected(node):
        raise NotApplicable(f"no NVIDIA GPU on the PCI bus ({why})")
    raise Incomplete(f"no GPU answers: {why}", cause=f"no GPU answers: {why}")


UNLIKE = {"error": "NOT_SUPPORTED; others of its kind answer"}
WITH_RULES = frozenset({"nvlinks", "fabric", "temperature_margin_c"})  # checks have one for a GPU without them
OF_ECC = frozenset({"ecc_enabled", "ecc_uncorrected_dram", "ecc_corrected_total"})  # whichever model has it
MODES = ("name", "ecc_enabled", "mig_mode")


def like_its_peers(gpu: Gpu, others: Iterable[Gpu], node: Node) -> Gpu:
    """A GPU whose missing values are unread rather than inapplicable, if the driver supports them on an equal GPU.

    Equal GPUs have one model and the same modes, as far as known; for ECC, of a type that has it, all GPUs count. What
    no equal GPU reports may be unknown to the driver.
    """
    own = gpu.record
    missing = {key for key, value in own.items() if is_unsupported(value)} - WITH_RULES
    if not missing:
        return gpu
    of_ecc = OF_ECC & missing if own.get("ecc_enabled") is not False else frozenset()
    unlike = of_ecc if of_ecc and _has_ecc(node) else frozenset()
    for other in others:
        if all(not is_answered(own.get(mode)) or own.get(mode) == other.record.get(mode) for mode in MODES):
            unlike |= {key for key in missing if is_answered(other.record.get(key))}
    return Gpu(gpu.index, {**own, **dict.fromkeys(unlike, UNLIKE)}) if unlike else gpu


def is_answered(value: object) -> bool:
    """Whether a driver answered with a value rather than an error."""
    return value is not None and not (isinstance(value, dict) and "error" in value)


def _has_ecc(node: Node) -> bool:
    try:
        return bool(node.of_type("ecc"))
    except (Incomplete, NotApplicable):
        return False


@collected_by()
def idle_gpus(node: Node) -> tuple[Gpu, ...]:
    """The GPUs known to be unused: no process holds them, and they do not compute."""
    return tuple(gpu for gpu in node.gpus if not is_busy(gpu, node) and reading_of(gpu, "processes") == ())


def is_busy(gpu: Gpu, node: Node) -> bool:
    """Whether a GPU computes; one that does not report it is assumed to be busy."""
    return bool(reading_of(gpu, "utilization_percent", 100) >= node.threshold("gpu.busy_percent"))


def _gpus_are_expected(node: Node) -> bool:
    try:
        return node.expected("gpus") > 0
    except Incomplete:
        return False


NO_PATHS = "nothing here says what is above PCI devices: it is an older recording, or a capture without them"

pci_devices = list_collected_as("pci", "devices", PciDevice, PCI_DEVICES)


@collected_by()
def gpus_on_bus(node: Node) -> tuple[PciDevice, ...]:
    """The NVIDIA GPUs that the PCI bus shows, whatever the driver says."""
    return tuple(device for device in node.pci_devices if device.is_nvidia_gpu)


@collected_by("pci")
def pci_switches(node: Node, pci: CollectorData) -> tuple[PciSwitch, ...]:
    """The PCIe switches above GPUs and network devices. Raises NotApplicable where it is unknown what is above them."""
    switches = pci.get("switches", optional(objects))
    if switches is None:
        raise NotApplicable(NO_PATHS)
    ports = (PciDevice(entry) for entry in limited(switches, SWITCHES))
    return switches_of(ports, node.pci_devices, rdma_models(node))


def rdma_models(node: Node) -> frozenset[str]:
    """The models of the node's fastest RDMA devices, as far as they are known."""
    return fastest_models(reading_of(node, "ib_devices", ()))


def unread_rdma_models(node: Node) -> list[Incomplete | NotApplicable]:
    """Why it is unknown which adapters of other vendors connect nodes; empty if there are none, or it is known."""
    if not any(reading_of(device, "is_spare_port") for device in node.pci_devices):
        return []
    reading, unread = readings(node, "ib_devices")
    return unread + [why for device in reading.get("ib_devices", ()) for why in readings(device, "model", "ports")[1]]


@collected_by()
def gpu_paths(node: Node) -> Mapping[str, Paths]:
    """How far each GPU is from other devices: as `nvidia-smi topo -m` says, else by the bus. Raises NotApplicable."""
    reported = {gpu.label: reading_of(gpu, "paths") for gpu in reading_of(node, "gpus", ())}
    captured = {label: paths for label, paths in reported.items() if paths is not None}
    by_gpu = captured or paths_of(node.pci_devices, rdma_models(node))
    if not by_gpu and node.gpus_on_bus:
        placed = (device for device in node.pci_devices if reading_of(device, "path"))
        require(why for device in placed for why in unread_kind(device))
        raise NotApplicable(NO_PATHS)
    return by_gpu


@collected_by()
def gpu_uuids(node: Node) -> tuple[str, ...]:
    """The UUIDs of the GPUs that answer; empty where the driver was not asked or gave none."""
    reported = [gpu.record.get("uuid") for gpu in reading_of(node, "gpus", ())]
    return tuple(printable(uuid, MAX_UUID) for uuid in reported[:MAX_UUIDS] if isinstance(uuid, str))


NAMES = ("name", "nvlink_states", "pcie_gen_max", "pcie_width_max", "pcie_width")


@collected_by()
def of_each(node: Node) -> Mapping[str, tuple[Any, ...]]:
    """By name, a value of each GPU, in their order: None where it is not reported."""
    reported = [readings(gpu, *NAMES)[0] for gpu in node.gpus]
    return {name: tuple(reading.get(name) for reading in reported) for name in NAMES}


@collected_by()
def nvlinks_between(node: Node) -> Mapping[str, Mapping[str, int]]:
    """How many NVLinks lead from each GPU to others, of those that report them."""
    return {gpu.label: reading["nvlinks_to"] for gpu in node.gpus if (reading := readings(gpu, "nvlinks_to")[0])}


@collected_by()
def gpu_at(node: Node) -> Mapping[str, Gpu]:
    """The GPUs by their addresses on the bus, of those that report one."""
    return {pci_address(reading_of(gpu, "pci", "")): gpu for gpu in reversed(node.gpus)}


def same_model_values(gpu: Gpu, node: Node, name: str) -> list[tuple[int, Any]]:
    """A value of each GPU that may be of this one's model, with its index, of those that report it."""
    own, values = reading_of(gpu, "name"), of_each.of(node)
    return [
        (other.index, value)
        for other, model, value in zip(node.gpus, values["name"], values[name], strict=True)
        if (None in (own, model) or model == own) and value is not None
    ]


def has_majority_model(gpu: Gpu, node: Node) -> bool:
    """Whether it is known to be of the model of most GPUs of the node."""
    models = Counter(model for model in of_each.of(node)["name"] if model is not None)
    return 2 * models[reading_of(gpu, "name")] > len(node.gpus)
