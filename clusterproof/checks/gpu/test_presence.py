"""Whether all GPUs are there, and answer."""

from __future__ import annotations

from contextlib import suppress

from clusterproof.plugins.catalog import recovery_action
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import each, reading_of
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.host.facts import has_just_booted
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

NO_ACTION = 0  # nvmlDeviceGpuRecoveryAction_t
NO_LIBRARY = "LIBRARY_NOT_FOUND"  # as captures say it, also of nodes without any GPU


@evidence("nvidia-smi -L; lspci -d 10de: -nn")
def test_gpu_count(node: Node) -> None:
    """GPU count.

    The driver's count is compared with the instance type's. A missing GPU that is still on the PCI bus was lost by the
    driver; one that is missing from the bus too failed before the driver saw it. A GPU that the driver counts but the
    bus does not show has fallen off the bus since.

    Remedy (reset or reboot): Reboot the node. If a GPU is still missing, replace the node.
    """
    evaluate_on_bus(node)
    try:
        expected = node.expected("gpus")
    except Incomplete:
        fail_if(is_without_driver(node), f"NVML does not start: {node.driver_error}; expected it to start")
        evaluate_by_bus(node)
        raise
    if expected == 0 and node.gpu_count == 0:
        not_applicable(f"{node.type_name or 'this node'} has no GPU")
    if node.gpu_count == expected:
        return
    if has_just_booted(node):
        incomplete(f"NVML counts {node.gpu_count} GPUs, {node.boot.uptime_s:.0f} s after boot; expected {expected}")
    why = f" ({node.driver_error})" if node.driver_error else ""
    raise AssertionError(f"NVML counts {node.gpu_count} GPUs{why}, {on_bus_in_words(node)}; expected {expected}")


def is_without_driver(node: Node) -> bool:
    """Whether the library is there but the driver does not start, unless the bus shows that there is no GPU."""
    try:
        return bool(node.nvml.error) and bool(node.gpus_on_bus)
    except Absent:
        return False
    except Incomplete:
        if node.nvml.error == NO_LIBRARY:
            with part:
                incomplete(
                    "nvidia-smi or its library is missing; expected a list of PCI devices, in which GPUs would be"
                )
        return node.nvml.error not in ("", NO_LIBRARY)


def evaluate_by_bus(node: Node) -> None:
    """Fail if the driver counts fewer GPUs than the bus shows, apart from those that another driver has or may have."""
    if node.driver_error:
        return
    try:
        drivers = [reading_of(device, "driver") for device in node.gpus_on_bus]
    except Incomplete:
        with part:
            concern_if(node.gpu_count == 0, "NVML starts and counts 0 GPUs; expected at least one")
        return
    own, most = sum(name in ("nvidia", "") for name in drivers), sum(name in ("nvidia", "", None) for name in drivers)
    counted, bus = most if has_just_booted(node) else node.gpu_count, on_bus_in_words(node)
    fail_if(counted < own, f"NVML counts {counted} GPUs, {bus}; expected {own}")
    with part:
        concern_if(
            counted < most, f"NVML counts {counted} GPUs, {bus}; expected {most}, unless another driver holds some"
        )


def evaluate_on_bus(node: Node) -> None:
    """Fail for GPUs that the driver counts but the bus does not show; if it shows none, it is another machine's."""
    try:
        devices, gpus = node.pci_devices, node.gpus
    except (Incomplete, NotApplicable):
        return
    shown = [*each(devices, lambda device: device.address)]
    if len(shown) < len(devices):
        return  # a device without an address may be the GPU
    on_bus = set(shown)
    addresses = {gpu.label: pci_address(reading_of(gpu, "pci", "")) for gpu in gpus}
    gone = {label: address for label, address in addresses.items() if address and address not in on_bus}
    named = ", ".join(f"{label} at {address}" for label, address in gone.items())
    is_of_this_node = not on_bus.isdisjoint(addresses.values())
    fail_if(gone and is_of_this_node, f"the PCI bus does not show {named}; expected all GPUs on it")


def on_bus_in_words(node: Node) -> str:
    """How many GPUs the PCI bus shows."""
    try:
        on_bus = len(node.gpus_on_bus)
    except Incomplete:
        return "the PCI bus was not read"
    return f"{on_bus} on the PCI bus" + (", so the driver lost some" if on_bus > node.gpu_count else "")


@mark.job
@evidence("nvidia-smi -L")
def test_gpu_answers(gpu: Gpu) -> None:
    """GPU responsiveness.

    The driver lists the GPU but cannot talk to it: it is lost, needs a reset, or has fallen off the bus. A single
    failed query is enough, since the driver may keep returning cached values for the others.

    Remedy (reset or reboot): Reset the GPU, or reboot the node. If it happens again, replace the node.
    """
    assert not gpu.lost, f"the driver says {gpu.lost}; expected an answer"


@evidence("nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv")
def test_recovery_action(gpu: Gpu) -> None:
    """Recovery action requested by the driver.

    This is NVIDIA's own verdict: if it is anything but None, the GPU must not run work until the action is done.

    Remedy (reset or reboot): Do what the driver requests: reset the GPU, drain and reset it, or reboot the node.
    """
    number = gpu.recovery_action
    action = recovery_action(number)
    request = action.words if action else f"number {number}, which the catalogue does not know"
    assert number == NO_ACTION, f"the driver requests {request}; expected no recovery action"


@evidence("time nvidia-smi -L")
def test_driver_answers_in_time(node: Node) -> None:
    """NVIDIA driver response time.

    Without persistence mode the driver initialises every GPU on each query. A driver that is slow despite persistence
    mode is often waiting for a faulty GPU.

    Remedy (reset or reboot): Enable persistence mode (nvidia-persistenced). If it stays slow, read the kernel log and
    reboot the node.
    """
    assert not node.driver_hangs, f"{node.driver_hangs}; expected an answer by the deadline"
    try:
        node.gpus  # noqa: B018 - raises NotApplicable on a node without any
    except Incomplete:
        if node.driver_error:
            with suppress(Incomplete):  # there is no library, or it took no time
                evaluate_start(node)
            raise
    evaluate_start(node)


def evaluate_start(node: Node) -> None:
    """A concern if NVML is slow to start."""
    init_s, limit_s = node.nvml.init_s, node.threshold("driver.init_concern_s")
    concern_if(init_s > limit_s, f"NVML took {init_s:.1f} s to start; expected less than {limit_s:.0f} s")
