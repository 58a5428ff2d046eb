"""Firmware of the machine, its GPUs and its disks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, concern_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import NEVER_READ, readings, require
from clusterproof.plugins.evidence.group import Values, describe, differences, majority_of
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]

FIRMWARE = "firmware"
MAX_MODEL = 60
MIN_PARTS = 3  # of a model: of two nobody says which is the odd one


@mark.hyperpod_version_checker
@evidence(
    "grep . /sys/class/dmi/id/b*_{name,version} /sys/devices/platform/ipmi_bmc.0/firmware_revision "
    "/sys/class/nvme/*/firmware_rev; nvidia-smi --query-gpu=index,inforom.img --format=csv"
)
def test_firmware_uniform(node: Node) -> None:
    """Firmware compared within the node and with the group.

    Compares the BIOS and the BMC's firmware among machines with the same board, InfoROM images among GPUs of one model,
    and firmware among NVMe disks of one model. A different version may behave differently, or means that an update was
    missed. Other checks compare VBIOS and network devices.

    Remedy (investigate): Install the firmware version that the other nodes have. In a cloud, replace the node if it is
    slow.
    """
    for read in (_board, _inforom, _disks):
        with part:
            list(read(node))
    for model, parts in _parts(node).items():
        of_group = majority_of(node, FIRMWARE, _versions, model, None)
        with part:
            _evaluate_parts(model, parts, of_group.value if of_group else "")
    own = _versions(node)
    if not own:
        incomplete("no firmware version was reported; expected the BIOS's, the GPUs' or the disks'")
    deviations = differences(node, FIRMWARE, _versions, absent=None)
    concern_if(deviations, describe(deviations))


def _evaluate_parts(model: str, parts: Sequence[tuple[str, str]], of_group: str) -> None:
    """A concern for parts with another version than most of the model here; those with that of the group are right."""
    majority = _majority(parts)
    if majority:
        others = ", ".join(f"{version} on {label}" for version, label in parts if version not in (majority, of_group))
        count = sum(version == majority for version, _ in parts)
        concern_if(others, f"{model} {others}; expected {majority}, as on {count} others of the node")
    elif len(parts) >= MIN_PARTS and not of_group:
        labels = defaultdict(list)
        for version, label in parts:
            labels[version].append(label)
        seen = " and ".join(f"{version} on {listed(names)}" for version, names in sorted(labels.items()))
        concern(f"{model} {seen}; expected one version")


def _versions(node: Node) -> Values:
    """The version of most parts of each model, otherwise all: `{"firmware of Samsung PM1733": "3B2Q"}`."""
    return {
        model: _majority(parts) or " and ".join(sorted({version for version, _ in parts}))
        for model, parts in _parts(node).items()
    }


def _parts(node: Node) -> dict[str, list[tuple[str, str]]]:
    """By model, the version of each part that has one, and the name of the part."""
    parts = defaultdict(list)
    for read in (_board, _inforom, _disks):
        with suppress(Incomplete, NotApplicable):
            for model, version, label in read(node):
                parts[model].append((version, label))
    return parts


def _majority(parts: Sequence[tuple[str, str]]) -> str:
    """The version of most parts of a model; empty if there are too few parts to tell."""
    version, count = Counter(version for version, _ in parts).most_common(1)[0]
    return version if len(parts) >= MIN_PARTS and count * 2 > len(parts) else ""


def _board(node: Node) -> Iterator[tuple[str, str, str]]:
    platform = node.platform
    versions, unread = readings(platform, "bios", "bmc")
    for name, version in versions.items():
        if version:
            model = f"{platform.vendor} {platform.board or platform.product}"
            yield f"{name.upper()} of {model:.{MAX_MODEL}}", version, ""
    require(unread)


def _inforom(node: Node) -> Iterator[tuple[str, str, str]]:
    unread: list[Incomplete | NotApplicable] = []
    for gpu in node.gpus:
        reading, why = readings(gpu, "inforom")
        version = reading.get("inforom", "")  # drivers, GPUs and one that is lost may have none
        unread += why if NEVER_READ in gpu.record else []
        if version:
            named, why = readings(gpu, "name")
            unread += why
            if named:
                yield f"InfoROM of {named['name']:.{MAX_MODEL}}", version, gpu.label
    require(unread)


def _disks(node: Node) -> Iterator[tuple[str, str, str]]:
    unread: list[Incomplete | NotApplicable] = []
    for disk in node.nvme_controllers:
        reading, why = readings(disk, "firmware", "is_volume", "model", "label")
        if not reading.get("firmware", True) or reading.get("is_volume"):
            continue  # what a storage service has there is not the node's
        unread += why
        if not why:
            yield f"firmware of {reading['model']:.{MAX_MODEL}}", reading["firmware"], reading["label"]
    require(unread)
