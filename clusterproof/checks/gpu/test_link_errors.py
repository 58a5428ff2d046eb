"""What connects GPUs, and what errors it has counted: NVLink and PCIe."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.gpu.facts import Gpu, NvlinkErrors
from clusterproof.plugins.evidence.kernel_log.facts import pci_address
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address
from clusterproof.plugins.evidence.kernel_log.xid_findings import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]

RECOVERIES = ("recovery", "recovery_failed")
MAX_NAMED = 8  # links with errors, at most, that a message names


@evidence("nvidia-smi nvlink -e")
def test_nvlink_errors(gpu: Gpu, node: Node) -> None:
    """NVLink error counters.

    A replay repeats a packet and a recovery retrains the link: neither loses data, both cost time, and a link that
    counts them is deteriorating. If the GPU also has a fatal Xid in this boot, recoveries are no longer harmless.

    Remedy (reset or reboot): With a fatal Xid: reset the GPU, and replace the node if it returns. Otherwise watch the
    counters under load.
    """
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink")
    if gpu.is_partitioned:
        not_applicable("the driver does not report NVLink errors while MIG is on")
    most = node.threshold("nvlink.errors_concern")
    found = [errors for errors in gpu.nvlink_errors if errors.count is not None and errors.count > most]
    recovered = [errors for errors in found if errors.kind in RECOVERIES]
    fatal = ""
    if recovered:
        with part:
            fatal = ", ".join(f"Xid {code}" for code in fatal_xids(gpu, node))
            expected = "expected no link of a GPU with a fatal Xid to recover"
            fail_if(fatal, f"{in_words(recovered)}, and {fatal}; {expected}")
    others = [errors for errors in found if not (fatal and errors in recovered)]
    concern_if(others, f"{in_words(others)}; expected none since boot")
    unread = [errors for errors in gpu.nvlink_errors if errors.count is None]
    if unread:
        incomplete(f"NVLink {unread[0].link or 'counters'}: {unread[0].kind} could not be read; expected a count")


def fatal_xids(gpu: Gpu, node: Node) -> list[int]:
    """The Xids of this boot that fail the GPU."""
    at = pci_address(gpu.pci)
    uuids = {address: one.uuid for address, one in gpus_by_address(node).items()}
    found = evaluate(node.kernel_events, node.catalog, uuids=uuids)
    return sorted({finding.code for finding in found if finding.severity == "fail" and finding.pci in ("", at)})


def in_words(found: Iterable[NvlinkErrors]) -> str:
    """Counters in one line: `NVLink 5: 12 replay, NVLink 7: 1 recovery`."""
    named = [f"NVLink {errors.link}: {errors.count} {errors.kind.replace('_', ' ')}" for errors in found]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return ", ".join(named[:MAX_NAMED]) + more


@evidence("grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_*; nvidia-smi -q | grep -i replays")
def test_pcie_errors(pci_device: PciDevice, node: Node) -> None:
    """PCIe error counters.

    The kernel counts errors of each link by severity (AER); the GPU counts how often it resent a packet. A fatal error
    takes the link down; correctable ones by the hundreds slow it down. A device that has dropped off the bus reads as
    all ones, its link as x63; so does a suspended one, which is harmless. A virtual machine often sees no AER counters:
    there a GPU is evaluated by its replays alone.

    Remedy (reset or reboot): Fatal: reboot the node, and replace it if errors return. Otherwise watch the counters
    under load.
    """
    with part:
        answers = pci_device.answers
        fail_if(not answers, "does not answer on PCIe: its link reads x63, all ones; expected at most x32")
    counts: dict[str, int | None] = {}
    for kind in ("fatal", "nonfatal", "correctable"):
        with part:
            counts[kind] = getattr(pci_device.errors, kind)
    with part:
        counts["replays"] = replays_of(pci_device, node)
    fail_if(counts.get("fatal"), f"{counts.get('fatal')} fatal PCIe errors; expected 0")
    concern_if(counts.get("nonfatal"), f"{counts.get('nonfatal')} uncorrected PCIe errors; expected 0")
    for kind, what in (("correctable", "correctable errors"), ("replays", "replays")):
        count, most = counts.get(kind) or 0, node.threshold(f"pcie.{kind}_concern")
        concern_if(count > most, f"{count} PCIe {what} since boot; expected at most {most:.0f}")
    if set(counts.values()) <= {None}:
        not_applicable("the kernel does not count this device's PCIe errors, nor does a driver")


def replays_of(pci_device: PciDevice, node: Node) -> int | None:
    """How often a GPU replayed; None for what is no GPU or counts none. Raises Incomplete."""
    if not pci_device.is_nvidia_gpu:
        return None
    for gpu in node.gpus:
        if pci_address(readings(gpu, "pci")[0].get("pci", "")) == pci_device.address:
            data, unread = readings(gpu, "pcie_replays")
            require(why for why in unread if isinstance(why, Incomplete))
            return data.get("pcie_replays")
    lost = [
        gpu.label for gpu in node.gpus if readings(gpu, "lost")[0].get("lost")
    ]  # one that does not answer reports no address either
    cause = f"{lost[0] if len(lost) == 1 else 'a GPU'} does not answer"
    raise Incomplete("no GPU answers at this address", cause)
