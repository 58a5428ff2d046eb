"""GPU settings that should be the same everywhere: modes and limits."""

from __future__ import annotations

from collections import Counter

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, fail_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import reading_of, readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.group import Values, majority_of
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

COMPUTE_MODES = {1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}  # nvmlComputeMode_t; 0 is default


def deviates_if(seen: object, node: Node, message: str) -> None:
    """A different setting fails the gate for images, and is a concern on a running node."""
    fail_if(seen and node.occasion == "ami", message)
    concern_if(seen and node.occasion != "ami", message)


@evidence("nvidia-smi --query-gpu=index,persistence_mode --format=csv")
def test_persistence_mode(gpu: Gpu, node: Node) -> None:
    """Persistence mode.

    Without persistence mode the driver shuts down every GPU when the last program ends, and initialises it again for
    the next one: seconds per GPU.

    Remedy (fix configuration): systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1.
    """
    deviates_if(not gpu.persistence_mode, node, "persistence mode is off; expected on")


@evidence("nvidia-smi --query-gpu=index,compute_mode --format=csv")
def test_compute_mode(gpu: Gpu, node: Node) -> None:
    """Compute mode.

    In an exclusive mode a second process on a GPU fails, unless MPS lets them share it; in the prohibited mode each
    does.

    Remedy (fix configuration): nvidia-smi -c DEFAULT, unless the site wants this mode.
    """
    mode = gpu.compute_mode
    named = COMPUTE_MODES.get(mode, f"number {mode}")
    deviates_if(mode, node, f"compute mode is {named}; expected default")


@evidence("nvidia-smi --query-gpu=index,ecc.mode.current,ecc.mode.pending --format=csv")
def test_ecc_mode(gpu: Gpu, node: Node) -> None:
    """ECC mode.

    Without ECC a flipped bit goes unnoticed and ends up in the model. A change of mode takes effect at the next reset
    of the GPU.

    Remedy (fix configuration): nvidia-smi -e 1, then reset the GPU or reboot the node.
    """
    reading, _ = readings(gpu, "name", "ecc_enabled", "ecc_pending")
    goes_off = reading.get("ecc_enabled", True) and reading.get("ecc_pending") is False
    until = "only" if "ecc_enabled" in reading else "at most"
    deviates_if(goes_off, node, f"ECC is enabled until the next reset {until}; expected no change pending")
    enabled = {**reading, "ecc_enabled": True}
    enabled.pop("ecc_pending", None)
    if enabled not in [readings(other, "name", "ecc_enabled")[0] for other in node.gpus] and not node.of_type("ecc"):
        not_applicable(f"{node.instance_type} has no ECC")
    until = " until the next reset" if reading.get("ecc_pending") else ""
    deviates_if(not gpu.ecc_enabled, node, f"ECC is disabled{until}; expected enabled")


@evidence("nvidia-smi --query-gpu=index,clocks.applications.graphics,clocks.default_applications.graphics --format=csv")
def test_application_clocks(gpu: Gpu, node: Node) -> None:
    """Application clocks.

    Somebody has lowered the clock for their job; it stays lowered after the job ends. A higher clock than the default
    is ignored: images of cloud providers raise it to the maximum at boot.

    Remedy (fix configuration): nvidia-smi -rac, unless the site wants this clock.
    """
    clock_mhz, default_mhz = gpu.app_clock_mhz, gpu.app_clock_default_mhz
    deviates_if(
        clock_mhz < default_mhz, node, f"application clock is {clock_mhz} MHz; expected {default_mhz} MHz, the default"
    )


@evidence("nvidia-smi --query-gpu=index,mig.mode.current,mig.mode.pending --format=csv")
def test_mig_uniform(node: Node) -> None:
    """MIG mode within a node.

    On Ampere a change of mode takes effect at the next reset of the GPU. Since Hopper it does so at once, and lasts
    until the driver is unloaded. A GPU that cannot be partitioned is ignored.

    Remedy (fix configuration): Set the same MIG mode on all GPUs (nvidia-smi -mig 0, or -mig 1), and reset those of
    Ampere. Since Hopper, set it at every boot.
    """
    modes: dict[str, bool] = {}
    for gpu in gpus_with_mig(node):
        with part:
            modes[str(gpu.index)] = gpu.mig_mode
            pending = reading_of(gpu, "mig_pending")
            changes = "on" if pending else "off"
            deviates_if(
                pending not in (None, modes[str(gpu.index)]),
                node,
                f"MIG turns {changes} at the next reset of GPU {gpu.index}; expected no change pending",
            )
    on = [index for index, is_on in modes.items() if is_on]
    message = f"MIG is on for GPU {', '.join(on)} of {len(modes)}; expected the same mode on all"
    deviates_if(0 < len(on) < len(modes), node, message)


def gpus_with_mig(node: Node) -> list[Gpu]:
    """The GPUs that can be partitioned, or may be. Raises NotApplicable if there are none."""
    gpus = [gpu for gpu in node.gpus if not any(isinstance(why, NotApplicable) for why in readings(gpu, "mig_mode")[1])]
    if not gpus:
        not_applicable("no GPU here can be partitioned")
    return gpus


@evidence("nvidia-smi --query-gpu=index,vbios_version --format=csv")
def test_vbios_uniform(node: Node) -> None:
    """VBIOS versions within a node.

    Mixed versions of one model result from a replaced GPU, and can differ in clocks and power. The expected version is
    that of most nodes of the group or, if they have no majority, of most GPUs of the node.

    Remedy (investigate): Compare with other nodes of the same type; have the odd GPU replaced if it is slow.
    """
    for model, versions in vbios_by_model(node).items():
        expected, count = Counter(versions.values()).most_common(1)[0]
        as_most, elsewhere = f"as on {count} GPUs", majority_of(node, "VBIOS", vbios_of, model, None)
        if elsewhere and elsewhere.value in versions.values():
            expected, as_most = elsewhere.value, elsewhere.how_many
        elif 2 * count <= len(versions):
            by_version = {
                version: [gpu for gpu in versions if versions[gpu] == version] for version in versions.values()
            }
            seen = " and ".join(f"{version} on {', '.join(gpus)}" for version, gpus in by_version.items())
            deviates_if(by_version, node, f"VBIOS {seen}; expected one version")
            continue
        others = ", ".join(f"{version} on {label}" for label, version in versions.items() if version != expected)
        deviates_if(others, node, f"VBIOS {others}; expected {expected}, {as_most}")


def vbios_by_model(node: Node) -> dict[str, dict[str, str]]:
    """The VBIOS version of each GPU, by model; one of unknown model counts as one of most GPUs' model."""
    names = [reading_of(gpu, "name") for gpu in node.gpus]
    most_common_model = max(filter(None, names), key=names.count, default="")
    versions: dict[str, dict[str, str]] = {}
    for gpu, name in zip(node.gpus, names, strict=True):
        with part:
            versions.setdefault(name or most_common_model, {})[gpu.label] = gpu.vbios
    return versions


def vbios_of(node: Node) -> Values:
    """The versions of each model."""
    return {model: " and ".join(sorted({*versions.values()})) for model, versions in vbios_by_model(node).items()}


@evidence("nvidia-smi --query-gpu=index,power.limit,enforced.power.limit,power.default_limit --format=csv")
def test_power_limit(gpu: Gpu, node: Node) -> None:
    """GPU power limit.

    A lower limit caps the clocks under load. If the default is unknown, the limit is compared with most GPUs of the
    same model here.

    Remedy (fix configuration): Restore the limit (nvidia-smi -pl WATTS), unless the site wants it lower.
    """
    limit_w, name = gpu.power_limit_w, reading_of(gpu, "name")
    if name and not readings(gpu, "power_limit_default_w")[0]:
        reported = [readings(other, "name", "power_limit_w")[0] for other in node.gpus]
        counts = Counter(reading.get("power_limit_w", 0) for reading in reported if reading.get("name") == name)
        most_common_w, count = counts.most_common(1)[0]
        is_less = limit_w < most_common_w and 2 * count > counts.total()
        with part:
            concern_if(is_less, f"power limit is {limit_w:g} W; expected {most_common_w:g} W, as on {count} GPUs here")
    default_w = gpu.power_limit_default_w
    limit, default = format_pair(limit_w, default_w)
    concern_if(limit_w < default_w, f"power limit is {limit} W; expected {default} W")
