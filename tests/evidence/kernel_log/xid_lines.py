"""Xid lines, the events parsed from them, and their evaluation."""

from __future__ import annotations

from functools import partial

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log import xid_findings
from clusterproof.plugins.evidence.kernel_log.facts import Events
from clusterproof.plugins.evidence.kernel_log.xid_findings import XidFinding

GPU = "0000:c5:00"
OTHER_GPU = "0000:0b:00"
evaluate = partial(xid_findings.evaluate, catalog=PACKAGED)  # without a site's policy
evaluate_switches = partial(xid_findings.evaluate_switches, catalog=PACKAGED)


def parse(*lines: str) -> Events:
    return kernel_log.parse((None, line) for line in lines)


def log(*entries: tuple[float | None, str]) -> tuple[XidFinding, ...]:
    """The findings on lines logged at these seconds."""
    return evaluate(kernel_log.parse(entries))


def only(findings: tuple[XidFinding, ...]) -> XidFinding:
    """The only finding."""
    (finding,) = findings
    return finding


def line_of(code: int, text: str = "pid=77, name=python3, Ch 00000008", gpu: str = GPU) -> str:
    return f"NVRM: Xid (PCI:{gpu}): {code}, {text}"
