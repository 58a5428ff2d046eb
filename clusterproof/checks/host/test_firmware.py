"""Firmware of the machine, its GPUs and its disks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]

MAX_MODEL = 60


@mark.hyperpod_version_checker
@evidence("cat /sys/class/dmi/id/b*_{name,version} /sys/class/nvme/*/firmware_rev; nvidia-smi --query-gpu=inforom.img")
def test_firmware_uniform(node: Node) -> None:
    """Firmware compared with the group.

    The BIOS is compared among machines with the same board, InfoROM images among GPUs and firmware among NVMe disks
    of one model: a node with another version may behave differently, or was missed by an update. VBIOS and network
    devices are compared by checks of their own.

    Remedy (investigate): Update the firmware to that of the other nodes; in a cloud, replace a node that is slow.
    """
    for read in (_bios, _inforom, _disks):
        with part:
            list(read(node))
    own = _versions(node)
    if not own:
        incomplete("no version of any firmware was reported; expected that of the BIOS, GPUs or disks")
    found = differences(node, "firmware", _versions, absent=None)
    concern_if(found, in_words(found))


def _versions(node: Node) -> Values:
    """The versions of each model of a part, in words: `{"firmware of Samsung PM1733": "3B2Q"}`."""
    versions = defaultdict(set)
    for read in (_bios, _inforom, _disks):
        with suppress(Incomplete, NotApplicable):
            for model, version in read(node):
                versions[model].add(version)
    return {model: " and ".join(sorted(found)) for model, found in versions.items()}


def _bios(node: Node) -> Iterator[tuple[str, str]]:
    platform = node.platform
    if platform.bios:
        model = f"{platform.vendor} {platform.board or platform.product}"
        yield f"BIOS of {model:.{MAX_MODEL}}", platform.bios


def _inforom(node: Node) -> Iterator[tuple[str, str]]:
    for gpu in node.gpus:
        version = None
        with suppress(Incomplete, NotApplicable):  # of drivers and GPUs without it, and of one that is lost
            version = gpu.inforom
        if version:
            yield f"InfoROM of {gpu.name:.{MAX_MODEL}}", version


def _disks(node: Node) -> Iterator[tuple[str, str]]:
    for disk in node.nvme_controllers:
        if disk.firmware and not disk.is_volume:  # what a storage service has there is not the node's
            yield f"firmware of {disk.model:.{MAX_MODEL}}", disk.firmware
