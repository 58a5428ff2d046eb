"""What the driver told the kernel log since boot: Xid of GPUs, SXid of NVSwitches."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone

import pytest

from clusterproof.plugins.catalog.judge import Finding, judge, judge_switches
from clusterproof.plugins.facts.field import readings
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import Incomplete, NotApplicable, concern, incomplete

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.epilog,
    pytest.mark.hyperpod_node_debugger("G"),
]


@evidence("journalctl -k -b | grep -E 'NVRM: (Xid|GPU)'")
def test_no_xid(node: Node) -> None:
    """The driver reported Xid errors.

    Each Xid of this boot is judged by the catalogue: errors of applications are passed over unless they repeat, errors
    of the hardware fail until a reset of the GPU or a reboot clears them.

    Remedy: Do what the finding names: reset the GPU, reboot or replace the node. An Xid that returns on the same GPU
    means replace.
    """
    events = node.kernel_events
    due, uuids = gpus_by_address(node)
    findings = judge(events, remap_due=due, uuids=uuids)
    failing = [finding for finding in findings if finding.severity == "fail"]
    assert not failing, f"{in_words(failing, node)}; expected no Xid of the hardware in this boot"
    require_meaning(node)
    worrying = [finding for finding in findings if finding.severity == "concern"]
    if worrying:
        concern(f"{in_words(worrying, node)}; expected none")


@evidence("journalctl -k -b | grep SXid")
def test_no_sxid(node: Node) -> None:
    """NVSwitches reported SXid errors.

    A fatal SXid takes down every GPU behind the switch; others are noted.

    Remedy: Fatal: reset all GPUs and NVSwitches together, or reboot the node; if it returns, replace the node.
    """
    findings = judge_switches(node.kernel_events)
    failing = [finding for finding in findings if finding.severity == "fail"]
    assert not failing, f"{in_words(failing, node)}; expected no fatal SXid in this boot"
    require_meaning(node)
    worrying = [finding for finding in findings if finding.severity == "concern"]
    if worrying:
        concern(f"{in_words(worrying, node)}; expected none")


def require_meaning(node: Node) -> None:
    """Say that finding nothing proves nothing where there is no GPU, or where the log no longer begins at boot."""
    with suppress(Incomplete):  # GPUs that do not answer are GPUs
        node.gpus  # noqa: B018 - raises NotApplicable on a node without any
    if node.kernel_log_is_cut:
        incomplete(
            "the kernel log no longer begins at boot, and no journal has the rest; expected the log of this boot"
        )


def gpus_by_address(node: Node) -> tuple[list[str], dict[str, str]]:
    """The PCI addresses of GPUs whose row remapping is due, and the UUIDs by address; of those GPUs that can tell."""
    due: list[str] = []
    uuids: dict[str, str] = {}
    try:
        gpus = node.gpus
    except (Incomplete, NotApplicable):
        return due, uuids
    for gpu in gpus:
        told, _ = readings(gpu, "pci", "uuid", "remap_pending", "remap_failed")
        if "pci" not in told:
            continue
        uuids[told["pci"]] = told.get("uuid", "")
        if told.get("remap_pending") or told.get("remap_failed"):
            due.append(told["pci"])
    return due, uuids


def in_words(findings: Iterable[Finding], node: Node) -> str:
    """The findings in one line: `Xid 79 (GPU has fallen off the bus) at 0000:c5:00.0, last at …: reboot the node`."""
    return "; ".join(_words(finding, node) for finding in findings)


def _words(finding: Finding, node: Node) -> str:
    words = f"{finding.family} {finding.code} ({finding.name}) at {finding.pci or 'an unnamed device'}"
    if finding.uuid:
        words += f" ({finding.uuid})"
    if finding.count > 1:
        words += f", {finding.count} times"
    if finding.last is not None:
        words += f", last {_when(finding.last, node)}"
    if finding.process:
        words += f", of {finding.process}"
    return f"{words}: {finding.action}"


def _when(seconds: float, node: Node) -> str:
    """A moment of the kernel log by the node's own clock, else by its distance from boot."""
    try:
        moment = datetime.fromtimestamp(node.boot.booted + seconds, timezone.utc)
    except (Incomplete, OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after boot"
    return f"at {moment:%Y-%m-%d %H:%M:%S} UTC"
