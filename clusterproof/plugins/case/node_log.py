"""What the kernel log of a node says of faults, as the table of its forms reads it, each with its time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timezone

from clusterproof.plugins.case.records import Fact, Span, label
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, RESOURCES, evidence_of
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log.events_gpu import FallenOffBus, InitFailed, SXidEvent, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError, Logged, OomKill, PcieError, Segfault
from clusterproof.plugins.evidence.kernel_log.parse import is_kernel_log
from clusterproof.plugins.evidence.kernel_log.parse import read as read_log
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.kernel_log.xid_findings import Finding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.parsing import CaptureError

BOOT = re.compile(r"-- (?:Re)?boot\b|.{0,120}?\bLinux version \d", re.IGNORECASE)
_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) (?=kernel(?:\[\d{1,10}\])?: )")
_HOST = re.compile(r"\S{1,40} (\S{1,255}) kernel(?:\[\d{1,10}\])?: ")
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
WORST, ONLY_SEEN = ("fail",), ("fail", "concern")


def host_of(text: str) -> str:
    """The host that lines of syslog name, else empty."""
    for line in text[:20_000].splitlines()[:50]:
        if found := _SYSLOG.match(line):
            return label(found[2])
        if found := _HOST.match(line):
            return label(found[1])
    return ""


def is_log(text: str) -> bool:
    """Whether it is a kernel log."""
    return is_kernel_log(text)


def read(text: str, node: str, source: str, clock: Clock) -> Iterator[Fact]:
    """The facts of all boots that a log shows; in the order of its lines within each."""
    for boot in _boots(_dated(text, clock)):
        try:
            data = read_log(boot)["kernel_log"]
        except CaptureError:
            continue
        lines = data["lines"] if isinstance(data, dict) else []
        yield from _facts(facts.parse(facts.lines(lines)), node, source)


def _dated(text: str, clock: Clock) -> str:
    """The lines with a whole date by UTC: syslog leaves out the year, and dmesg -T the zone."""
    return "\n".join(_with_date(line, clock) for line in text.splitlines())


def _with_date(line: str, clock: Clock) -> str:
    found = _SYSLOG.match(line) or _CTIME.match(line)
    begins = clock.of(line).begins if found else None
    if not found or begins is None:
        return line
    moment = datetime.fromtimestamp(begins, timezone.utc)
    rest = line[found.start(2) :] if found.re is _SYSLOG else line[found.end() :]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'' if found.re is _SYSLOG else ',000000'}+00:00 {rest}"


def _boots(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if BOOT.match(line) and lines:
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    yield "\n".join(lines)


def _facts(events: facts.Events, node: str, source: str) -> Iterator[Fact]:
    of_gpus = [event for event in events if isinstance(event, XidEvent | FallenOffBus | InitFailed | SXidEvent)]
    for line in of_gpus:  # each by itself: what was long before the job's end is not what ended it
        found = (*evaluate([line], PACKAGED), *evaluate_switches([line], PACKAGED))
        yield from (_of_finding(one, node, source) for one in found if one.severity in ONLY_SEEN)
    for event in events:
        fact = _of_host(event, node, source)
        if fact:
            yield fact


def _of_finding(one: Finding, node: str, source: str) -> Fact:
    check = "gpu.no_xid" if one.family == "Xid" else "gpu.no_sxid"
    is_alike = one.text.lower().strip(" .") == one.name.lower()
    words = f"{one.family} {one.code}, {one.name}{'' if is_alike or not one.text else f': {one.text}'}"
    words = printable(words.replace("\n", " ")[:160])
    return Fact(node, HARDWARE, one.severity in WORST, words, source, check, _when(one.first), one.pci, one.action)


def _of_host(event: object, node: str, source: str) -> Fact | None:
    if isinstance(event, Logged):
        form = log_forms()[event.form]
        cause = evidence_of(form.check) if form.verdict in ONLY_SEEN and not form.is_of_user else ""
        if not cause:
            return None
        is_strong = form.verdict in WORST
        words = f"{form.label}: {event.words}" if form.label else event.words
        when = _when(event.time)
        return Fact(node, cause, is_strong, printable(words[:160]), source, form.check, when, event.device, form.action)
    if isinstance(event, OomKill):
        whose = f"at the limit of {event.group}" if event.group else "as the node had no more memory"
        words = printable(f"killed {event.process} (pid {event.pid}) {whose}"[:160])
        return Fact(node, RESOURCES, True, words, source, "host.no_oom_kill", _when(event.time))
    if isinstance(event, HardwareError) and not event.is_corrected and not event.is_of_previous_boot:
        words = printable(event.words[:160])
        return Fact(node, HARDWARE, True, words, source, "host.mce_edac", _when(event.time), "", "replace")
    if isinstance(event, PcieError) and event.severity == "fatal":
        words = f"PCIe error, fatal, of {event.device}"
        when = _when(event.time)
        return Fact(node, HARDWARE, True, words, source, "host.pcie_aer", when, event.device, "reset or reboot")
    if isinstance(event, Segfault):
        words = printable(f"{event.process} (pid {event.pid}) crashed in {event.library or 'its own code'}"[:160])
        return Fact(node, CODE, False, words, source, "host.segfaults", _when(event.time))
    return None


def _when(seconds: float | None) -> Span:
    """A time of the log: seconds since boot say nothing of the hour."""
    if seconds is None or math.isnan(seconds) or seconds < CALENDAR_S:
        return Span()
    return Span(seconds, seconds + 1.0)
