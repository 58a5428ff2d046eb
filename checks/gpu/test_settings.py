"""GPU settings: modes and limits that should be the same everywhere."""

from __future__ import annotations

from collections import Counter

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.rounded import apart
from clusterproof.plugins.core.verdict import concern, not_applicable
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

COMPUTE_MODES = {1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}  # nvmlComputeMode_t; 0 is default


def deviates(node: Node, message: str) -> None:
    """A setting that differs fails the gate for images, and is a concern on a running node."""
    assert node.occasion != "ami", message
    concern(message)


@evidence("nvidia-smi --query-gpu=index,persistence_mode --format=csv")
def test_persistence_mode(gpu: Gpu, node: Node) -> None:
    """Persistence mode.

    Without it the driver forgets every GPU when the last program ends, and initialises it again for the next: seconds
    for each.

    Remedy (fix configuration): Enable nvidia-persistenced.
    """
    if not gpu.persistence_mode:
        deviates(node, "persistence mode is off; expected on")


@evidence("nvidia-smi --query-gpu=index,compute_mode --format=csv")
def test_compute_mode(gpu: Gpu, node: Node) -> None:
    """Compute mode.

    In an exclusive or prohibited mode, programs that share a GPU, MPS and some profilers fail.

    Remedy (fix configuration): nvidia-smi -c DEFAULT, unless the site wants this mode.
    """
    mode = gpu.compute_mode
    if mode:
        named = COMPUTE_MODES.get(mode, f"number {mode}")
        deviates(node, f"compute mode is {named}; expected default")


@evidence("nvidia-smi --query-gpu=index,ecc.mode.current --format=csv")
def test_ecc_mode(gpu: Gpu, node: Node) -> None:
    """ECC mode.

    Without ECC a flipped bit ends up in the model unnoticed. A change of mode takes effect at the next reset of the
    GPU.

    Remedy (fix configuration): nvidia-smi -e 1, then reset the GPU or reboot the node.
    """
    data, _ = readings(gpu, "ecc_enabled", "ecc_pending")
    if data == {"ecc_enabled": True, "ecc_pending": False}:
        deviates(node, "ECC is enabled until the next reset only; expected no change pending")
    if not node.of_type("ecc"):
        not_applicable(f"{node.instance_type} has no ECC")
    if not gpu.ecc_enabled:
        until = " until the next reset" if data.get("ecc_pending") else ""
        deviates(node, f"ECC is disabled{until}; expected enabled")


@evidence("nvidia-smi --query-gpu=index,clocks.applications.graphics,clocks.default_applications.graphics --format=csv")
def test_application_clocks(gpu: Gpu, node: Node) -> None:
    """Application clocks.

    Somebody has set the clock for their work; it stays set after that work has ended.

    Remedy (fix configuration): nvidia-smi -rac, unless the site wants this clock.
    """
    clock_mhz, default_mhz = gpu.app_clock_mhz, gpu.app_clock_default_mhz
    if clock_mhz != default_mhz:
        deviates(node, f"application clock is {clock_mhz} MHz; expected {default_mhz} MHz, the default")


@evidence("nvidia-smi --query-gpu=index,mig.mode.current --format=csv")
def test_mig_uniform(node: Node) -> None:
    """MIG mode within a node.

    Remedy (fix configuration): Set the same MIG mode on all GPUs (nvidia-smi -mig 0 or 1) and reset them.
    """
    partitioned = [str(gpu.index) for gpu in node.gpus if gpu.is_partitioned]
    if partitioned and len(partitioned) < len(node.gpus):
        deviates(node, f"MIG is on for GPU {', '.join(partitioned)} of {len(node.gpus)}; expected all alike")


@evidence("nvidia-smi --query-gpu=index,vbios_version --format=csv")
def test_vbios_uniform(node: Node) -> None:
    """VBIOS versions within a node.

    Mixed versions are the result of a replaced GPU, and can differ in clocks and power.

    Remedy (investigate): Compare with other nodes of the type; ask for a replacement if the odd one is slow.
    """
    versions = Counter(gpu.vbios for gpu in node.gpus)
    if len(versions) > 1:
        seen = ", ".join(f"{version} on {count}" for version, count in versions.most_common())
        deviates(node, f"VBIOS {seen} GPUs; expected one version")


@evidence("nvidia-smi --query-gpu=index,power.limit,power.default_limit --format=csv")
def test_power_limit(gpu: Gpu) -> None:
    """GPU power limit.

    A lower limit caps the clocks under load.

    Remedy (fix configuration): Set it back (nvidia-smi -pl), unless the site wants this limit.
    """
    limit_w, default_w = gpu.power_limit_w, gpu.power_limit_default_w
    if limit_w < default_w:
        limit, default = apart(limit_w, default_w)
        concern(f"power limit is {limit} W; expected {default} W")
