"""What a check found: each thing with its own verdict, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Verdict


@record
class Finding:
    """One thing that a check says: `message` reads `observed; expected …`, and holds for each of the devices.

    `action` is what a failure asks for, in a word or two; `cause` as of `Incomplete`.
    """

    verdict: Verdict
    message: str = ""
    devices: tuple[str, ...] = ()
    cause: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """`GPU 3, GPU 5: 2 errors; expected 0`."""
        return f"{', '.join(self.devices)}: {self.message}" if self.devices and self.message else self.message


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, worst first, safe to show; what is said alike of several devices is one finding of all of them."""
    devices: dict[Finding, list[str]] = {}
    for finding in findings:
        alike = Finding(finding.verdict, finding.message, (), finding.cause, finding.action)
        devices.setdefault(alike, []).extend(finding.devices)
    merged = [
        Finding(alike.verdict, printable(alike.message), _names(names), printable(alike.cause), alike.action)
        for alike, names in devices.items()
    ]
    return tuple(sorted(merged, key=lambda finding: finding.verdict.rank))


def _names(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(printable, devices)))


def in_lines(findings: Sequence[Finding]) -> str:
    """A line for each of them that says something; one of another verdict than the first begins with its own."""
    lines = (
        line if finding.verdict is findings[0].verdict else f"{finding.verdict.value}: {line}"
        for finding in findings
        if (line := finding.line)
    )
    return printable("\n".join(dict.fromkeys(lines)))


def devices_of(findings: Sequence[Finding], verdict: Verdict) -> tuple[str, ...]:
    """The devices of which findings of this verdict speak."""
    return tuple(dict.fromkeys(name for one in findings if one.verdict is verdict for name in one.devices))


def split_message(message: str) -> tuple[str, str]:
    """`observed; expected …` as its two halves; the second is empty where the message has none."""
    observed, _, expected = message.partition("; expected ")
    return observed, expected
