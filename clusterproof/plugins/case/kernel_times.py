"""Converts kernel log lines to full dates in UTC: each way to save them omits something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

from clusterproof.plugins.case import Span
from clusterproof.plugins.case.clocks import LATEST_S, Clock

MINUTE_S = 60.0

_SYSLOG = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S{1,255}) (?=kernel: )")
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
_TALOS = re.compile(  # talosctl dmesg: kernel messages, because programs cannot log as `kern`
    r"(?:[\w.:-]{1,255}: )?(kern|user|daemon|syslog|auth\w{0,4}|local\d):\s{1,8}\w{1,8}: "
    r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})\d{0,3}Z\]: "
)
_MINUTE = re.compile(r"\[([A-Z][a-z]{2}) {0,2}(\d{1,2}) (\d\d:\d\d)\] ")  # dmesg -H, at the start of a minute
_SINCE = re.compile(r"\[ {0,12}\+ {0,12}(\d{1,6}\.\d{6})\] ")  # and the offset of later lines from that


def of_kernel(text: str) -> str:
    """Lines of `talosctl dmesg` in dmesg's format; any other log unchanged."""
    if not any(map(_TALOS.match, text[:20_000].splitlines()[:50])):
        return text
    return "\n".join(
        f"{match[2]},{match[3]}+00:00 {line[match.end() :]}"
        for line in text.splitlines()
        if (match := _TALOS.match(line)) and match[1] == "kern"
    )


def dated(text: str, clock: Clock) -> str:
    """Lines with full dates in UTC: syslog omits the year, dmesg -T the zone, and dmesg -H the second."""
    return "\n".join(_of_minutes((_with_date(line, clock) for line in text.splitlines()), clock))


def has_minutes(text: str) -> bool:
    """Whether its lines only have the minute in which they were logged, as in dmesg -H."""
    return any(map(_MINUTE.match, text.splitlines()))


def of_minute(when: Span) -> Span:
    """The possible range of a time that is only known by its minute."""
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
