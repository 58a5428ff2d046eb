"""Errors of GPUs and NVSwitches that the driver has logged since boot: Xid, SXid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.wording import (
    fail_by_log,
    gpus_by_address,
    report,
    require_whole_log,
    when,
)
from clusterproof.plugins.evidence.kernel_log.xid_findings import XidFinding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.epilog,
    mark.hyperpod_node_debugger("G"),
]


@evidence("journalctl -k -b | grep -E 'NVRM|nvidia|amdgpu'")
def test_no_xid(node: Node) -> None:
    """Xid errors.

    The catalogue classifies each Xid of this boot: application errors are ignored unless they repeat, and hardware
    errors fail until a GPU reset or a reboot clears them. Errors logged without an Xid, such as firmware errors, are
    classified the same way. A GPU that has not answered since stays lost, even if the driver was reloaded. With
    --since, only errors inside the window count.

    Remedy (reset or reboot): Do what the finding says: reset the GPU, reboot or replace the node. If an Xid returns on
    the same GPU, replace the node.
    """
    events = node.kernel_events
    gpus = gpus_by_address(node)
    due = [address for address, gpu in gpus.items() if gpu.remap_is_due]
    findings = evaluate(events, node.catalog, remap_due=due, uuids={address: gpu.uuid for address, gpu in gpus.items()})
    say_findings(findings, node, "no hardware Xid")
    report(node, "gpu.no_xid", "no GPU error")
    require_meaning(node)


@evidence("journalctl -k -b | grep nvidia-nvswitch")
def test_no_sxid(node: Node) -> None:
    """NVSwitch SXid errors.

    A fatal SXid takes down every GPU behind the switch. Other SXids are concerns.

    Remedy (reset or reboot): Fatal: reset all GPUs and NVSwitches together, or reboot the node; if it returns, replace
    the node.
    """
    say_findings(evaluate_switches(node.kernel_events, node.catalog), node, "no fatal SXid")
    report(node, "gpu.no_sxid", "every NVSwitch to work")
    require_meaning(node)


def say_findings(findings: Sequence[XidFinding], node: Node, expected: str) -> None:
    """Report the findings that fail the node, and those that are a concern."""
    failing = [finding for finding in findings if finding.severity == "fail"]
    fail_by_log(node, failing, f"{in_words(failing, node)}; expected {expected}")
    worrying = [finding for finding in findings if finding.severity == "concern"]
    concern_if(worrying, f"{in_words(worrying, node)}; expected none")


def require_meaning(node: Node) -> None:
    """Raise if finding nothing proves nothing: there is no GPU, or records of the log are lost."""
    with suppress(Incomplete):  # GPUs that do not answer are GPUs
        node.gpus  # noqa: B018 - raises NotApplicable on a node without any
    require_whole_log(node)


def in_words(findings: Iterable[XidFinding], node: Node) -> str:
    """The findings in one line: `Xid 79 (GPU has fallen off the bus) at 0000:c5:00.0, last at …: reboot the node`."""
    gpus = gpus_by_address(node)
    named = {address: gpu.label for address, gpu in gpus.items()}
    return "; ".join(_description(finding, named.get(finding.pci, finding.uuid), node) for finding in findings)


def _description(finding: XidFinding, gpu: str, node: Node) -> str:
    message = f"{finding.family} {finding.code} ({finding.name}) at {finding.pci or 'an unnamed device'}"
    if gpu:
        message += f" ({gpu})"
    if finding.part:
        message += f", {finding.part}"
    if finding.count > 1:
        message += f", {finding.count} times"
    if finding.last is not None:
        message += f", last {when(finding.last, node)}"
    if finding.process:
        message += f", in process {finding.process}"
    return f"{message}: {finding.action}"
