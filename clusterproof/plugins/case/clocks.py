"""Parses times at the beginning of lines of frameworks, schedulers and kernels; and corrects them to one clock.

Differences between nodes' clocks are known from asking the nodes, or from the steps of their ranks.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from heapq import nlargest
from statistics import median

from clusterproof.plugins.case import NO_TIME, Collected, Event, Fact, LogBegin, Offset, Span
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.record import record, replace

LOOKED_AT = 80  # characters of a line that contain its time
BEGINS_IN = 40  # position by which it starts: a time after other words belongs to the message
LONGEST_BEFORE = 400  # characters of the message before the time in slurmstepd's line
BEFORE_WORDS = 16  # characters of ranks and brackets before a time
DAY_S = 86_400.0
HALF_A_YEAR_S = 182.5 * DAY_S
LATEST_S = 2.5e11  # since 1970; times outside this range are invalid
_FULL = re.compile(
    r"(?<![\d-])(\d{4})([-/])(\d\d)\2(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_NAMED = re.compile(
    r"(?:^|[\[ ])(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?: (\d{4}))?(?![\d:])"
)
_GLOG = re.compile(r"(?:^|[\[\]: ])[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) .{1,300}? CANCELLED AT "
)  # of slurmstepd: when it was told to end the job
_WRAPPED = re.compile(
    r"(?:\[pod/[a-z0-9.-]{1,253}/[a-z0-9-]{1,63}\] |[\w.-]{1,253} {1,20}\| )?"  # kubectl logs --prefix, docker compose
    r"(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d)) (?:std(?:out|err) [FP] )?)?"  # --timestamps, CRI
)
_JSON_FILE = '{"log":"'  # how lines of Docker's json-file begin
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@record
class Clock:
    """What times in lines omit: the year, and the offset from UTC of times without a zone.

    If a moment of the job is known, the year is the one in which a time is nearest to it: a job may run over New Year.
    """

    year: int
    offset_s: float = 0.0
    near: float | None = None

    @classmethod
    def of_moment(cls, near: float, offset_s: float = 0.0) -> Clock:
        """Of a job at this moment, in seconds since 1970."""
        near = min(near, LATEST_S)
        return cls(datetime.fromtimestamp(near, timezone.utc).year, offset_s, near)

    @classmethod
    def until(cls, latest: float, offset_s: float = 0.0) -> Clock:
        """Of a job at an unknown time before this moment."""
        return cls.of_moment(max(0.0, latest + DAY_S - HALF_A_YEAR_S), offset_s)

    def of(self, line: str) -> Span:
        """When a line was written; a time in whole seconds spans that second."""
        head = line[:LOOKED_AT]
        if (match := _FULL.search(head)) and match.start() <= BEGINS_IN:
            year, _, month, day, hour, minute, second, part, zone = match.groups()
            return self._span((year, month, day, hour, minute, second), part, zone)
        if (match := _GLOG.search(head)) and match.start() <= BEGINS_IN:
            month, day, hour, minute, second, part = match.groups()
            return self._without_year((month, day, hour, minute, second), part)
        if (match := _NAMED.search(head)) and match[1] in _MONTHS:
            name, day, hour, minute, second, year = match.groups()
            parts = _MONTHS.index(name), day, hour, minute, second
            return self._span((year, *parts), None, None) if year else self._without_year(parts, None)
        if (cancelled := _CANCELLED.search(line[:LONGEST_BEFORE])) and (match := _FULL.match(line, cancelled.end())):
            year, _, month, day, hour, minute, second, part, zone = match.groups()
            return self._span((year, month, day, hour, minute, second), part, zone)
        return NO_TIME

    def _without_year(self, parts: tuple[int | str, ...], part: str | None) -> Span:
        spans = [self._span((self.year, *parts), part, None)]
        if self.near is not None and not self._is_near(spans[0]):
            spans += [self._span((self.year + apart, *parts), part, None) for apart in (-1, 1)]
        return min(spans, key=self._apart_s)

    def _is_near(self, when: Span) -> bool:
        return self._apart_s(when) < HALF_A_YEAR_S

    def _apart_s(self, when: Span) -> float:
        return math.inf if when.begins is None else abs(when.begins - (self.near or 0.0))

    def _span(self, parts: tuple[int | str, ...], part: str | None, zone: str | None) -> Span:
        try:
            moment = datetime(*map(int, parts), tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type,misc]
        except (ValueError, OverflowError):
            return NO_TIME
        begins = moment + float(f"0.{part or 0}") - (self.offset_s if zone is None else _offset_s(zone))
        return Span(begins, begins if part else begins + 1.0) if 0 <= begins < LATEST_S else NO_TIME


def is_of_slurm(line: str) -> bool:
    """Whether slurmstepd wrote a line and its time, which may be by the clock of another zone than the program's."""
    return "CANCELLED AT " in line and bool(_CANCELLED.search(line[:LONGEST_BEFORE]))


def unwrapped(line: str) -> tuple[str, str]:
    """The time that the container runtime wrote before a line, empty if none; and the line itself."""
    if line.startswith(_JSON_FILE):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return "", line
        log, time = document["log"], document.get("time")
        return time if isinstance(time, str) else "", log.rstrip("\n") if isinstance(log, str) else line
    match = _WRAPPED.match(line)
    return (match[1] or "", line[match.end() :]) if match and match.end() else ("", line)


def without(line: str) -> str:
    """A line without its time, and without prefixes of frameworks before that."""
    head = line[:LOOKED_AT]
    match = next((match for form in (_FULL, _GLOG, _NAMED) if (match := form.search(head))), None)
    is_first = match and match.start() <= BEFORE_WORDS
    rest = line[match.end() :].lstrip(" ,:]-.0123456789") if match and is_first else line
    return rest.strip() or line.strip()


def _offset_s(zone: str) -> float:
    if zone == "Z":
        return 0.0
    digits = zone.replace(":", "")
    seconds = int(digits[1:3]) * 3600 + int(digits[3:5]) * 60
    return float(-seconds if digits[0] == "-" else seconds)


def utc_text(seconds: float | None) -> str:
    """`2026-03-01 08:00:00`, in UTC; empty if unknown."""
    if seconds is None:
        return ""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=min(max(seconds, 0.0), LATEST_S))
    return f"{moment:%Y-%m-%d %H:%M:%S}"


MIN_STEPS = 3  # common to nodes, needed to compare their clocks
MIN_NODES = 3  # needed to identify one that is wrong
Times = Mapping[int, float]  # by step


def by_command(began: float, seconds: float, requested: float, answered: float) -> Offset:
    """From a command that ran between a question and its answer; offsets within that interval are ignored."""
    least, most = began + seconds - answered, began - requested
    middle, half = (least + most) / 2, abs(most - least) / 2
    is_apart = abs(middle) > half
    return Offset(middle if is_apart else 0.0, half if is_apart else half + abs(middle), "as it was asked")


def by_steps(steps: Iterable[tuple[str, Times]]) -> dict[str, Offset]:
    """From the steps of nodes' ranks: all end a step at once, because each waits for all others.

    With two nodes it cannot be told which is right: then neither is corrected, and they differ by that much.
    """
    times_by_node: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for node, times in steps:
        for step, time in times.items() if node else ():
            times_by_node[node][step].append(time)
    of_step: dict[int, list[float]] = defaultdict(list)
    for each in times_by_node.values():
        for step, own in each.items():
            of_step[step].append(median(own))
    offsets = {}
    for node, each in times_by_node.items():
        shared = [step for step in each if len(of_step[step]) > 1]
        off = sorted(median(each[step]) - median(of_step[step]) for step in shared)
        if len(shared) < MIN_STEPS:
            continue
        middle, apart_s = median(off), (off[-1] - off[0]) / 2
        is_sure = len(times_by_node) >= MIN_NODES and abs(middle) > max(apart_s, limits().clocks_apart_s)
        how = "by the steps of its ranks"
        offsets[node] = Offset(middle, apart_s, how) if is_sure else Offset(0.0, apart_s + abs(middle), how)
    return offsets


def apart_s(case: Collected) -> float:
    """How far apart two clocks may be after correction."""
    return max(limits().clocks_apart_s, sum(nlargest(2, (offset.apart_s for offset in case.clocks.values()))))


def corrected_event(event: Event, clocks: Mapping[str, Offset]) -> Event:
    """The event with its time corrected."""
    off = clocks.get(event.node)
    return replace(event, when=corrected(event.when, off)) if off and off.seconds else event


def corrected_fact(fact: Fact, clocks: Mapping[str, Offset]) -> Fact:
    """The fact with its time corrected."""
    off = clocks.get(fact.node)
    return replace(fact, when=corrected(fact.when, off)) if off and off.seconds and not fact.is_of_run else fact


def corrected_begin(log: LogBegin, off: Offset | None) -> LogBegin:
    """The beginning of a node's log with its time corrected."""
    return replace(log, seconds=log.seconds - off.seconds) if off else log


def corrected(when: Span, off: Offset | None) -> Span:
    """A time, corrected for a clock's offset."""
    seconds = off.seconds if off else 0.0
    return Span(*(None if time is None else time - seconds for time in (when.begins, when.ends)))
