"""What the kernel log of a node says of faults, as the table of its forms reads it, each with its time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from clusterproof.plugins.case import Fact, Span, label, one_line
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, RESOURCES, evidence_of
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.catalog.nvidia import xid
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log.events_gpu import FallenOffBus, InitFailed, SXidEvent, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError, Logged, OomKill, PcieError, Segfault
from clusterproof.plugins.evidence.kernel_log.parse import is_kernel_log
from clusterproof.plugins.evidence.kernel_log.parse import read as read_log
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S
from clusterproof.plugins.evidence.kernel_log.xid_findings import Finding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.parsing import CaptureError

BOOT = re.compile(r"-- (?:Re)?boot\b|.{0,120}?\bLinux version \d", re.IGNORECASE)
_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) (?=kernel: )")
_HOST = re.compile(r"\S{1,40} (\S{1,255}) kernel: ")
_SAID_BY = re.compile(  # as syslog and the journal have it, and dmesg where its message looks like that
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
    r"|\[ {0,12}\d{1,12}\.\d{1,9}\]) (\S{1,255}) ([^\s:]{1,255}):(?= |$)"
)
_YEAR = re.compile(r"(\d{4})-\d\d-\d\dT\d\d:|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\d{4})\]")
_OF_BOOT = re.compile(r"(?:systemd|(?:systemd|dracut)-[a-z-]{1,40})\[\d{1,10}\]")  # before the journal is there
_JOURNALS = re.compile(r"systemd-(?:journald|shutdown)\[\d{1,10}\]")  # which only root lets write there
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
XID = "gpu.no_xid"
TO_SAVE = "kernel logs:"  # so begins how they are saved by hand
CLEANUP = 45  # it follows from another Xid, whatever that was of
WORST, ONLY_SEEN = ("fail",), ("fail", "concern")


def host_of(text: str) -> str:
    """The host that lines of syslog name, else empty."""
    for line in text[:20_000].splitlines()[:50]:
        if found := _SYSLOG.match(line):
            return label(found[2])
        if found := _HOST.match(line):
            return label(found[1])
    return ""


def year_of(text: str) -> int | None:
    """The year that the time of a line has, of those that have one; what lines say is no time."""
    found = next((found for line in text.splitlines() if (found := _YEAR.match(line))), None)
    return int(found[1] or found[2]) if found else None


def is_log(text: str) -> bool:
    """Whether it is a kernel log."""
    return is_kernel_log(text)


def is_of_others_too(text: str) -> bool:
    """Whether programs have lines in it: any user can write the like of the kernel's into such a log.

    The kernel's own has what systemd and the journal say at a boot and at its end, as only root can write there.
    """
    lines = text.splitlines()
    said = [found.groups() for line in lines if (found := _SAID_BY.match(line))]
    hosts = {host for host, program in said if program.partition("[")[0] == "kernel"}
    of_hosts = [program for host, program in said if host in hosts]
    if len(of_hosts) * 2 < len([line for line in lines if line.strip()]):
        return False  # dmesg's own, in which a message looks like that
    is_whole = any(map(BOOT.match, lines))
    return any(
        program != "kernel" and not _JOURNALS.fullmatch(program) and not (is_whole and _OF_BOOT.fullmatch(program))
        for program in of_hosts
    )


def read(text: str, node: str, source: str, clock: Clock) -> Iterator[Fact]:
    """The facts of all boots that a log shows; in the order of its lines within each."""
    for boot in _boots(_dated(text, clock)):
        try:
            data = read_log(boot)["kernel_log"]
        except CaptureError:
            continue
        lines = data["lines"] if isinstance(data, dict) else []
        yield from facts_of(facts.parse(facts.lines(lines)), node, source)


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


def facts_of(events: facts.Events, node: str, source: str) -> Iterator[Fact]:
    """What is evidence of the events of one boot."""
    of_gpus = [event for event in events if isinstance(event, XidEvent | FallenOffBus | InitFailed | SXidEvent)]
    for line in of_gpus:  # each by itself: what was long before the job's end is not what ended it
        found = (*evaluate([line], PACKAGED), *evaluate_switches([line], PACKAGED))
        yield from (_of_finding(one, node, source) for one in found if _tells(one))
    for event in events:
        fact = _of_host(event, node, source)
        if fact:
            yield fact


def _tells(one: Finding) -> bool:
    """Whether it is to be seen: so is a memory error that is no fault of the GPU any more, and has ended a process."""
    is_of_memory = one.family == "Xid" and xid(one.code).kind == "memory" and not one.cleared_by
    return one.severity in ONLY_SEEN or is_of_memory or _is_of_program(one)


def _is_of_program(one: Finding) -> bool:
    """Whether it says nothing against the GPU, and something of the program that used it."""
    is_application = one.family == "Xid" and xid(one.code).kind == "application" and one.code != CLEANUP
    return one.severity not in ONLY_SEEN and is_application and one.pid is not None and not one.cleared_by


def _of_finding(one: Finding, node: str, source: str) -> Fact:
    check = XID if one.family == "Xid" else "gpu.no_sxid"
    is_alike = one.text.lower().strip(" .") == one.name.lower()
    words = f"{one.family} {one.code}, {one.name}{'' if is_alike or not one.text else f': {one.text}'}"
    words = one_line(words.replace("\n", " "))
    cause = CODE if _is_of_program(one) else HARDWARE
    is_strong, when = one.severity in WORST, _when(one.first)
    return Fact(node, cause, is_strong, words, source, check, when, one.pci, one.action, pid=one.pid)


def _of_host(event: object, node: str, source: str) -> Fact | None:
    if isinstance(event, Logged):
        form = log_forms()[event.form]
        cause = evidence_of(form.check) if form.verdict in ONLY_SEEN and not form.is_of_user else ""
        if not cause:
            return None
        is_strong = form.verdict in WORST
        words = f"{form.label}: {event.words}" if form.label else event.words
        when = _when(event.time)
        return Fact(node, cause, is_strong, one_line(words), source, form.check, when, event.device, form.action)
    if isinstance(event, OomKill):
        whose = f"at the limit of {event.group}" if event.group else "as the node had no more memory"
        words = one_line(f"killed {event.process} (pid {event.pid}) {whose}")
        return Fact(node, RESOURCES, True, words, source, "host.no_oom_kill", _when(event.time), pid=event.pid)
    if isinstance(event, HardwareError) and not event.is_corrected and not event.is_of_previous_boot:
        words = one_line(event.words)
        return Fact(node, HARDWARE, True, words, source, "host.mce_edac", _when(event.time), "", "replace")
    if isinstance(event, PcieError) and event.severity == "fatal":
        words = f"PCIe error, fatal, of {event.device}"
        when = _when(event.time)
        return Fact(node, HARDWARE, True, words, source, "host.pcie_aer", when, event.device, "reset or reboot")
    if isinstance(event, Segfault):
        words = one_line(f"{event.process} (pid {event.pid}) crashed in {event.library or 'its own code'}")
        return Fact(node, CODE, False, words, source, "host.segfaults", _when(event.time), pid=event.pid)
    return None


def how_to_get_it(nodes: Sequence[str], ran: Span) -> str:
    """How the kernel logs of nodes are saved, of the time in which a job ran."""
    since = f" --since '{datetime.fromtimestamp(ran.begins, timezone.utc):%Y-%m-%d %H:%M:%S} UTC'" if ran.begins else ""
    return (
        f"{TO_SAVE} on each of {fold(nodes)}, journalctl -k -o short-iso-precise{since} "
        ">FOLDER/$(hostname -s)-dmesg.txt; then --logs FOLDER"
    )


def _when(seconds: float | None) -> Span:
    """A time of the log: seconds since boot say nothing of the hour."""
    if seconds is None or math.isnan(seconds) or seconds < CALENDAR_S:
        return Span()
    return Span(seconds, seconds + 1.0)
