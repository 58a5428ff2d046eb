"""What connects GPUs, and what errors it has counted: NVLink and PCIe."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, incomplete, not_applicable
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.gpu.facts_nvlink import NvlinkErrors
from clusterproof.plugins.evidence.kernel_log.facts import pci_address
from clusterproof.plugins.evidence.kernel_log.xid_findings import evaluate
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice
from clusterproof.plugins.suite.routing import evidence

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
    if recovered:
        fatal = ", ".join(f"Xid {code}" for code in fatal_xids(gpu, node))
        assert not fatal, f"{in_words(recovered)}, and {fatal}; expected no link of a GPU with a fatal Xid to recover"
    unread = [errors for errors in gpu.nvlink_errors if errors.count is None]
    if unread:
        incomplete(f"NVLink {unread[0].link or 'counters'}: {unread[0].kind} could not be read; expected a count")
    if found:
        concern(f"{in_words(found)}; expected none since boot")


def fatal_xids(gpu: Gpu, node: Node) -> list[int]:
    """The Xids of this boot that fail the GPU."""
    at = pci_address(gpu.pci)
    found = evaluate(node.kernel_events, node.catalog)
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
    link, unread = readings(pci_device, "answers")
    assert link.get("answers", True), "does not answer on PCIe: its link reads x63, all ones; expected at most x32"
    data, uncounted = readings(pci_device.errors, "fatal", "nonfatal", "correctable")
    unread += uncounted
    counts = {kind: count for kind, count in data.items() if count is not None}
    assert not counts.get("fatal"), f"{counts['fatal']} fatal PCIe errors; expected 0"
    replays = replays_of(pci_device, node, unread)
    if counts.get("nonfatal"):
        concern(f"{counts['nonfatal']} uncorrected PCIe errors; expected 0")
    limits = {
        "correctable errors": node.threshold("pcie.correctable_concern"),
        "replays": node.threshold("pcie.replays_concern"),
    }
    for what, count in {"correctable errors": counts.get("correctable", 0), "replays": replays or 0}.items():
        if count > limits[what]:
            concern(f"{count} PCIe {what} since boot; expected at most {limits[what]:.0f}")
    require(unread)
    if not counts and replays is None:
        not_applicable("the kernel does not count this device's PCIe errors, nor does a driver")


def replays_of(pci_device: PciDevice, node: Node, unread: list[Incomplete | NotApplicable]) -> int | None:
    """How often a GPU replayed; None for what is no GPU or counts none. What could not be read is added to unread."""
    if not pci_device.is_nvidia_gpu:
        return None
    try:
        gpus = node.gpus
    except (Incomplete, NotApplicable) as why:
        unread.append(why)
        return None
    for gpu in gpus:
        if not gpu.lost and pci_address(readings(gpu, "pci")[0].get("pci", "")) == pci_device.address:
            data, unknown = readings(gpu, "pcie_replays")
            unread += [one for one in unknown if isinstance(one, Incomplete)]
            return data.get("pcie_replays")
    lost = [gpu.label for gpu in gpus if gpu.lost]  # one that does not answer reports no address either
    cause = f"{lost[0] if len(lost) == 1 else 'a GPU'} does not answer"
    unread.append(Incomplete("no GPU answers at this address", cause))
    return None
