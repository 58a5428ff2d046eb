"""Faults in a node's kernel log, according to the table of message forms, each with its time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.case import Fact, Span, label, one_line
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.log_dates import (
    SYSLOG,
    dated,
    dated_stamp,
    first_dated,
    has_minutes,
    of_kernel,
    of_minute,
    original,
)
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, RESOURCES, UNKNOWN, evidence_of
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.catalog.nvidia import xid
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log.events_gpu import FallenOffBus, InitFailed, SXidEvent, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError, Logged, OomKill, PcieError, Segfault
from clusterproof.plugins.evidence.kernel_log.parse import DRIVERS, is_kernel_log, is_logged, is_unclear
from clusterproof.plugins.evidence.kernel_log.parse import read as read_log
from clusterproof.plugins.evidence.kernel_log.prefixes import hold_to_one_node, is_of_all
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.kernel_log.xid_findings import XidFinding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.parsing import CaptureError

BOOT = re.compile(r"-- (?:Re)?boot\b|.{0,120}?\bLinux version \d", re.IGNORECASE)
_HOST = re.compile(r"\S{1,40} (\S{1,255}) kernel: ")
_SAID_BY = re.compile(  # prefixes of syslog and the journal; dmesg has them only within messages
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
    r"|\[ {0,12}\d{1,12}\.\d{1,9}\]) (\S{1,255}) ([^\s:]{1,255}):(?= |$)"
)
_OF_BOOT = re.compile(r"(?:systemd|(?:systemd|dracut)-[a-z-]{1,40})\[\d{1,10}\]")  # before the journal starts
_JOURNALS = re.compile(r"systemd-(?:journald|shutdown)\[\d{1,10}\]")  # which only root can imitate
_JOB = re.compile(  # in a path that slurmstepd has made: users make groups too, below their own
    r"(?:^|[\s=])/(?:slurm[^/\s]{0,80}/uid_\d{1,10}|(?:system\.slice/)?[^/\s]{0,80}slurmstepd\.scope)/job_(\d{1,10})\b"
)
XID = "gpu.no_xid"
OOPS = "host.kernel_oops"
BOOTED = "it was booted while the job ran"
CLEANUP = 45  # follows from another Xid, whatever that was caused by
WORST, ONLY_SEEN = ("fail",), ("fail", "concern")


def unclear_lines(text: str) -> int:
    """The number of lines with an unknown prefix before the kernel's name, which are ignored."""
    return sum(map(is_unclear, original(text).splitlines()))


def host_of(text: str) -> str:
    """The host named in syslog lines, else empty."""
    for line in original(text[:20_000]).splitlines()[:50]:
        if match := SYSLOG.match(line):
            return label(match[2])
        if match := _HOST.match(line):
            return label(match[1])
    return ""


def is_log(text: str) -> bool:
    """Whether this is a kernel log."""
    return is_kernel_log(of_kernel(text))


def is_of_others_too(text: str) -> bool:
    """Whether programs write to it too: any user can imitate the kernel's lines in such a log.

    The kernel log also contains systemd's and the journal's messages at boot and shutdown, which only root can write.
    """
    if is_of_all(text):
        return True
    lines = original(text).splitlines()
    senders = [match.groups() for line in lines if (match := _SAID_BY.match(line))]
    hosts = {host for host, program in senders if program.partition("[")[0] == "kernel"}
    of_hosts = [program for host, program in senders if host in hosts]
    if len(of_hosts) * 2 < len([line for line in lines if line.strip()]):
        return False  # dmesg's format, where a message may look like that
    is_whole = any(map(BOOT.match, lines))
    return any(
        program != "kernel" and not _JOURNALS.fullmatch(program) and not (is_whole and _OF_BOOT.fullmatch(program))
        for program in of_hosts
    )


def read(text: str, node: str, source: str, clock: Clock) -> Iterator[Fact]:
    """The facts of all boots in a log, each in the order of its lines.

    Raises CaptureError if it may be of several nodes; and, after the other facts, if a boot could not be read.
    """
    hold_to_one_node(text)
    text = original(text)
    is_of_minutes, unread = has_minutes(text), None
    for boot in _boots(dated(text, clock)):
        if (begins := first_dated(boot.splitlines())) and begins.is_boot:
            yield booted(node, begins.seconds, source)
        try:
            value = read_log(boot)["kernel_log"]
        except CaptureError as wrong:
            unread = unread or (wrong if _has_lines(boot) else None)
            continue
        lines = facts.lines(value["lines"] if isinstance(value, dict) else [])
        dates = dict(filter(None, map(dated_stamp, reversed(boot.splitlines()))))  # a stamp's first line is its own
        lines = [(dates.get(time, time) if time is not None else None, *rest) for time, *rest in lines]
        for fact in facts_of(facts.parse(lines), node, source):
            yield replace(fact, when=of_minute(fact.when)) if is_of_minutes else fact
    if unread:
        raise unread


def booted(node: str, seconds: float, source: str, latest: float | None = None) -> Fact:
    """A boot of a node, which is a fault only while a job ran on it; `latest`, if it may have been later."""
    return Fact(node, UNKNOWN, True, BOOTED, source, OOPS, Span(seconds, latest or seconds + 1.0))


def _has_lines(boot: str) -> bool:
    """Whether it contains log lines: text before the first boot may be a heading."""
    return any(is_logged(line) or DRIVERS.match(line) for line in boot.splitlines())


def _boots(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if BOOT.match(line) and lines:
            yield "\n".join(lines)
            lines = []
        lines.append(line)
    yield "\n".join(lines)


def facts_of(events: facts.Events, node: str, source: str) -> Iterator[Fact]:
    """The evidence in the events of one boot."""
    of_gpus = [event for event in events if isinstance(event, XidEvent | FallenOffBus | InitFailed | SXidEvent)]
    for line in of_gpus:  # one by one: an event long before the job's end did not end it
        findings = (*evaluate([line], PACKAGED), *evaluate_switches([line], PACKAGED))
        yield from (_of_finding(finding, node, source) for finding in findings if _is_shown(finding))
    for event in events:
        fact = _of_host(event, node, source)
        if fact:
            yield fact


def _is_shown(finding: XidFinding) -> bool:
    """Whether to show it: also a contained memory error that is no fault any more, but ended a process."""
    is_of_memory = finding.family == "Xid" and xid(finding.code).kind == "memory" and not finding.cleared_by
    return finding.severity in ONLY_SEEN or is_of_memory or _is_of_program(finding)


def _is_of_program(finding: XidFinding) -> bool:
    """Whether it says nothing against the GPU, but something about the program that used it."""
    is_application = finding.family == "Xid" and xid(finding.code).kind == "application" and finding.code != CLEANUP
    return finding.severity not in ONLY_SEEN and is_application and finding.pid is not None and not finding.cleared_by


def _of_finding(finding: XidFinding, node: str, source: str) -> Fact:
    check = XID if finding.family == "Xid" else "gpu.no_sxid"
    repeats = finding.text.lower().strip(" .") in finding.name.lower()
    message = (
        f"{finding.family} {finding.code}, {finding.name}{'' if repeats or not finding.text else f': {finding.text}'}"
    )
    message = one_line(message.replace("\n", " "))
    cause = CODE if _is_of_program(finding) else HARDWARE
    is_strong, when = finding.severity in WORST, _when(finding.first)
    return Fact(node, cause, is_strong, message, source, check, when, finding.pci, finding.action, pid=finding.pid)


def _of_host(event: object, node: str, source: str) -> Fact | None:
    if isinstance(event, Logged):
        form = log_forms()[event.form]
        cause = evidence_of(form.check) if form.verdict in ONLY_SEEN and not form.is_of_user else ""
        if not cause:
            return None
        is_strong = form.verdict in WORST
        message = f"{form.label}: {event.words}" if form.label else event.words
        when, jobs, message = _when(event.time), _jobs(event.words), one_line(message)
        return Fact(node, cause, is_strong, message, source, form.check, when, event.device, form.action, jobs=jobs)
    if isinstance(event, OomKill):
        of_group = "a limit of memory" if event.group == "?" else f"the limit of {event.group}"
        limit = f"at {of_group}" if event.group else "as the node had no more memory"
        message = one_line(f"killed {event.process} (pid {event.pid}) {limit}")
        when, jobs = _when(event.time), _jobs(event.group)
        return Fact(node, RESOURCES, True, message, source, "host.no_oom_kill", when, pid=event.pid, jobs=jobs)
    if isinstance(event, HardwareError) and not event.is_corrected and not event.is_of_previous_boot:
        message = one_line(event.words)
        return Fact(node, HARDWARE, True, message, source, "host.mce_edac", _when(event.time), "", "replace")
    if isinstance(event, PcieError) and event.severity == "fatal":
        message = f"PCIe error, fatal, of {event.device}"
        when = _when(event.time)
        return Fact(node, HARDWARE, True, message, source, "host.pcie_aer", when, event.device, "reset or reboot")
    if isinstance(event, Segfault):
        message = one_line(f"{event.process} (pid {event.pid}) crashed in {event.library or 'its own code'}")
        return Fact(node, CODE, False, message, source, "host.segfaults", _when(event.time), pid=event.pid)
    return None


def _jobs(message: str) -> tuple[str, ...]:
    """The Slurm jobs whose control groups the kernel names."""
    return tuple(_JOB.findall(message))


def how_to_get_it(nodes: Sequence[str], ran: Span) -> str:
    """How to save the kernel logs of nodes for the time in which a job ran."""
    since = f" --since '{datetime.fromtimestamp(ran.begins, timezone.utc):%Y-%m-%d %H:%M:%S} UTC'" if ran.begins else ""
    return (
        f"kernel logs: on each of {fold(nodes)}, journalctl -k -o short-iso-precise{since} "
        ">FOLDER/$(hostname -s)-dmesg.txt; then --logs FOLDER"
    )


def _when(seconds: float | None) -> Span:
    """A time in the log; seconds since boot give no date."""
    if seconds is None or math.isnan(seconds) or seconds < CALENDAR_S:
        return Span()
    return Span(seconds, seconds + 1.0)
