"""When a kernel log and its lines were written: its formats leave out the year, the zone, or the second."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from clusterproof.plugins.case import LogBegin, Span
from clusterproof.plugins.case.clocks import LATEST_S, Clock
from clusterproof.plugins.evidence.kernel_log.line import unwrap
from clusterproof.plugins.evidence.kernel_log.parse import is_logged
from clusterproof.plugins.evidence.kernel_log.prefixes import shown
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S

MINUTE_S = 60.0

SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) (?=kernel: )")
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
_TALOS = re.compile(  # talosctl dmesg: the kernel's lines, as no program can write there as `kern`
    r"(?:[\w.:-]{1,255}: )?(kern|user|daemon|syslog|auth\w{0,4}|local\d):\s{1,8}\w{1,8}: "
    r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})\d{0,3}Z\]: "
)
_MINUTE = re.compile(r"\[([A-Z][a-z]{2}) {0,2}(\d{1,2}) (\d\d:\d\d)\] ")  # dmesg -H: a line that begins a minute
_SINCE = re.compile(r"\[ {0,12}\+ {0,12}(\d{1,6}\.\d{6})\] ")  # and the time of another line after the one above it

_YEAR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]")
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\S{8,24}) \S{1,255} kernel: \[ {0,12}(\d{1,12}\.\d{1,9})\] ")
_LINUX = re.compile(r"Linux version \d")  # the first line of a boot


def of_kernel(text: str) -> str:
    """The kernel's lines of `talosctl dmesg` in the format of dmesg; any other log unchanged."""
    if not any(map(_TALOS.match, text[:20_000].splitlines()[:50])):
        return text
    return "\n".join(
        f"{match[2]},{match[3]}+00:00 {line[match.end() :]}"
        for line in text.splitlines()
        if (match := _TALOS.match(line)) and match[1] == "kern"
    )


def original(text: str) -> str:
    """The original lines, without prefixes of grep, talosctl or busybox's syslog."""
    return of_kernel(shown(text))


def dated(text: str, clock: Clock) -> str:
    """The lines with complete dates in UTC: syslog leaves out the year, dmesg -T the zone, and dmesg -H the second."""
    return "\n".join(_of_minutes((_with_date(line, clock) for line in text.splitlines()), clock))


def has_minutes(text: str) -> bool:
    """Whether its lines show only the minute in which they were logged, as those of dmesg -H."""
    return any(map(_MINUTE.match, text.splitlines()))


def of_minute(when: Span) -> Span:
    """The span of a time that is known by its minute: not before the seconds already counted, and within the minute."""
    if when.begins is None:
        return when
    return Span(when.begins, when.begins // MINUTE_S * MINUTE_S + MINUTE_S)


def _with_date(line: str, clock: Clock) -> str:
    match = SYSLOG.match(line) or _CTIME.match(line)
    begins = clock.of(line).begins if match else None
    if not match or begins is None:
        return line
    moment = datetime.fromtimestamp(begins, timezone.utc)
    rest = line[match.start(2) :] if match.re is SYSLOG else line[match.end() :]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'' if match.re is SYSLOG else ',000000'}+00:00 {rest}"


def _of_minutes(lines: Iterator[str], clock: Clock) -> Iterator[str]:
    at: float | None = None
    for line in lines:
        if match := _MINUTE.match(line):
            at = clock.of(f"{match[1]} {match[2]:>2} {match[3]}:00").begins
        elif (match := _SINCE.match(line)) and at is not None:
            at = later if (later := at + float(match[1])) < LATEST_S else None
        if not match or at is None:
            yield line
            continue
        moment = datetime.fromtimestamp(at, timezone.utc)
        yield f"{moment:%Y-%m-%dT%H:%M:%S},{moment.microsecond:06d}+00:00 {line[match.end() :]}"


def begin_of(text: str, clock: Clock) -> LogBegin:
    """When a log begins, whatever the order of its lines; -inf if they have no dates."""
    lines = [line for line in dated(original(text), clock).splitlines() if line.strip()]
    ends = filter(None, (first_dated(lines), first_dated(reversed(lines))))
    return min(ends, key=lambda of: of.seconds, default=LogBegin(-math.inf, is_boot=False))


def dated_stamp(line: str) -> tuple[float, float] | None:
    """The seconds since boot in a line of syslog, and its own date: rsyslog and klogd write both."""
    match = _STAMPED.match(line)
    begins = Clock(0).of(match[1]).begins if match else None
    return (float(match[2]), begins) if match and begins is not None else None


def first_dated(lines: Iterable[str]) -> LogBegin | None:
    """The date of the first line of the kernel; None if it has none."""
    for line in lines:
        time, message = unwrap(line)
        time = stamp[1] if (stamp := dated_stamp(line)) else time
        if time is not None and time >= CALENDAR_S:
            return LogBegin(time, is_boot=bool(_LINUX.match(message)))
        if is_logged(line):
            return None
    return None


def last_moment(text: str, offset_s: float) -> float | None:
    """The last time of a line that has its year; times inside messages do not count."""
    lines = (line for line in reversed(original(text).splitlines()) if _YEAR.match(line))
    return next((at for line in lines if (at := Clock(0, offset_s).of(line).begins) is not None), None)
