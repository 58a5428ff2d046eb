"""Are all GPUs there, and do they answer?"""

from __future__ import annotations

from clusterproof.plugins.catalog import recovery_action
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, incomplete, not_applicable
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.kernel_log.facts import pci_address
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

NO_ACTION = 0  # nvmlDeviceGpuRecoveryAction_t


@evidence("nvidia-smi -L; lspci -d 10de: -nn")
def test_gpu_count(node: Node) -> None:
    """GPU count.

    The driver's count is compared with what the instance type has. A GPU that is still on the PCI bus was lost by the
    driver ("fell off"); one that is not on the bus either failed before the driver saw it. One that the driver counts
    but the bus does not show has dropped off the bus since.

    Remedy (reset or reboot): Reboot the node. If a GPU is still missing, replace the node.
    """
    try:
        expected = node.expected("gpus")
    except Incomplete:
        require_on_bus(node)
        raise
    if expected == 0 and node.gpu_count == 0:
        not_applicable(f"{node.type_name or 'this node'} has no GPU")
    if node.gpu_count == expected:
        require_on_bus(node)
        return
    if has_just_booted(node):
        incomplete(f"NVML counts {node.gpu_count} GPUs, {node.boot.uptime_s:.0f} s after boot; expected {expected}")
    why = f" ({node.driver_error})" if node.driver_error else ""
    raise AssertionError(f"NVML counts {node.gpu_count} GPUs{why}, {on_bus_in_words(node)}; expected {expected}")


def require_on_bus(node: Node) -> None:
    """Fail GPUs that the driver counts and the bus does not show; if it shows none of them, it is another machine's."""
    try:
        on_bus, gpus = {device.address for device in node.gpus_on_bus}, node.gpus
    except (Incomplete, NotApplicable):
        return
    data = {gpu.label: pci_address(readings(gpu, "pci")[0].get("pci", "")) for gpu in gpus}
    gone = {label: address for label, address in data.items() if address and address not in on_bus}
    named = ", ".join(f"{label} at {address}" for label, address in gone.items())
    assert not gone or on_bus.isdisjoint(data.values()), f"the PCI bus does not show {named}; expected all GPUs on it"


def has_just_booted(node: Node) -> bool:
    """Whether counts cannot be trusted yet; where no uptime was collected, they are all there is."""
    try:
        return node.boot.uptime_s < node.threshold("settle.window_s")
    except Incomplete:
        return False


def on_bus_in_words(node: Node) -> str:
    """How many GPUs the PCI bus shows."""
    try:
        on_bus = len(node.gpus_on_bus)
    except Incomplete:
        return "the PCI bus was not read"
    return f"{on_bus} on the PCI bus" + (", so the driver lost some" if on_bus > node.gpu_count else "")


@evidence("nvidia-smi -L")
def test_gpu_answers(gpu: Gpu) -> None:
    """GPU responsiveness.

    The driver counts the GPU but cannot talk to it: it is lost, needs a reset, or fell off the bus. One query that says
    so is enough, since the driver may still return what it knew of the GPU before.

    Remedy (reset or reboot): Reset the GPU, or reboot the node. If it happens again, replace the node.
    """
    assert not gpu.lost, f"the driver says {gpu.lost}; expected an answer"


@evidence("nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv")
def test_recovery_action(gpu: Gpu) -> None:
    """Recovery action requested by the driver.

    NVIDIA's own verdict on the GPU: anything but None means that it must not run work until the action is done.

    Remedy (reset or reboot): Do what the driver asks for: reset the GPU, drain and reset it, or reboot the node.
    """
    number = gpu.recovery_action
    action = recovery_action(number)
    words = action.words if action else f"number {number}, which the catalogue does not know"
    assert number == NO_ACTION, f"the driver asks for {words}; expected no recovery action"


@evidence("time nvidia-smi -L")
def test_driver_answers_in_time(node: Node) -> None:
    """NVIDIA driver response time.

    Without persistence mode the driver initialises every GPU on each query. A driver that is slow despite persistence
    mode is often waiting for a faulty GPU.

    Remedy (reset or reboot): Enable persistence mode (nvidia-persistenced). If it stays slow, read the kernel log and
    reboot the node.
    """
    assert not node.driver_hangs, f"{node.driver_hangs}; expected an answer by the deadline"
    if node.driver_error and not node.gpus:
        not_applicable("no NVIDIA GPU on this node")
    limit_s = node.threshold("driver.init_concern_s")
    if node.nvml.init_s > limit_s:
        concern(f"NVML took {node.nvml.init_s:.1f} s to start; expected less than {limit_s:.0f} s")
