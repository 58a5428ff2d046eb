"""Converts the times of kernel log lines to UTC; each way to save a log leaves out something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

from clusterproof.plugins.case import Span
from clusterproof.plugins.case.clocks import LATEST_S, Clock

MINUTE_S = 60.0

_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) (?=kernel: )")
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
_TALOS = re.compile(  # talosctl dmesg: what the kernel said, as no program can write there as `kern`
    r"(?:[\w.:-]{1,255}: )?(kern|user|daemon|syslog|auth\w{0,4}|local\d):\s{1,8}\w{1,8}: "
    r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})\d{0,3}Z\]: "
)
_MINUTE = re.compile(r"\[([A-Z][a-z]{2}) {0,2}(\d{1,2}) (\d\d:\d\d)\] ")  # dmesg -H, where a minute begins
_SINCE = re.compile(r"\[ {0,12}\+ {0,12}(\d{1,6}\.\d{6})\] ")  # and how long behind the line above it any other is


def of_kernel(text: str) -> str:
    """The kernel's lines of what `talosctl dmesg` wrote, as dmesg writes them; any other log as it is."""
    if not any(map(_TALOS.match, text[:20_000].splitlines()[:50])):
        return text
    return "\n".join(
        f"{match[2]},{match[3]}+00:00 {line[match.end() :]}"
        for line in text.splitlines()
        if (match := _TALOS.match(line)) and match[1] == "kern"
    )


def dated(text: str, clock: Clock) -> str:
    """The lines with a whole date by UTC: syslog leaves out the year, dmesg -T the zone, and dmesg -H the second."""
    return "\n".join(_of_minutes((_with_date(line, clock) for line in text.splitlines()), clock))


def has_minutes(text: str) -> bool:
    """Whether its lines tell only the minute in which they were logged, as those of dmesg -H."""
    return any(map(_MINUTE.match, text.splitlines()))


def of_minute(when: Span) -> Span:
    """All that a time may be that is known by its minute: not before what was counted, and within it."""
    if when.begins is None:
        return when
    return Span(when.begins, when.begins // MINUTE_S * MINUTE_S + MINUTE_S)


def _with_date(line: str, clock: Clock) -> str:
    match = _SYSLOG.match(line) or _CTIME.match(line)
    begins = clock.of(line).begins if match else None
    if not match or begins is None:
        return line
    moment = datetime.fromtimestamp(begins, timezone.utc)
    rest = line[match.start(2) :] if match.re is _SYSLOG else line[match.end() :]
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'' if match.re is _SYSLOG else ',000000'}+00:00 {rest}"


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
