"""Merges what a watched node sends into its earlier evidence: log lines, GPU facts, collector values.

Pure functions: they return new evidence, or the same object if nothing changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.agent.sending import PROCESSES, class_of
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.kernel_log.collect_lines import further
from clusterproof.plugins.watch.updates import REPORTED, LogLine, LogUpdate, Tick, Update

LOG, NVML = "kernel_log", "nvml"
WATCHED = (LOG, NVML, *REPORTED)
MAX_LINES = 2_000  # of one node's kernel log
MAX_LINES_OF_PROCESSES = 500  # and of those written by processes, if there are more in all

Facts = Mapping[int, Mapping[str, Any]]  # by GPU index
LogCursor = tuple[str, int, float]  # boot id, the last line's sequence number, and its seconds since boot


@dataclass
class PendingUpdates:
    """What a node sends during a visit, whose evidence is older than this."""

    facts: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    reported: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def add(self, update: Update) -> None:
        """Add an update; only the last value of a fact is kept."""
        if isinstance(update, Tick):
            for index, facts in update.facts.items():
                self.facts.setdefault(index, {}).update(facts)
            self.reported.update(update.reported)
        elif isinstance(update, LogUpdate):
            self.lines.extend(update.lines)

    def applied_to(self, evidence: NodeEvidence) -> NodeEvidence:
        """The evidence with these updates, without duplicate lines."""
        cursor = log_cursor_of(evidence)
        lines = [line for line in self.lines if not cursor or line.sequence > cursor[1]]
        return with_reported(with_facts(with_lines(evidence, lines), self.facts), self.reported)


def with_lines(evidence: NodeEvidence, lines: Iterable[LogLine]) -> NodeEvidence:
    """The evidence with more kernel log lines."""
    log, lines = _value(evidence, LOG), list(lines)
    before = (log or {}).get("lines") or []
    if log is None or not isinstance(before, list) or not lines:
        return evidence
    more = [[line.seconds, line.text, *further(line.left_out, line.level)] for line in lines]
    cursor = log_cursor_of(evidence)
    read_to = [cursor[0] if cursor else "", lines[-1].sequence, lines[-1].seconds]
    return _with(evidence, LOG, {**log, "lines": _latest([*before, *more]), "cursor": read_to})


def log_cursor_of(evidence: NodeEvidence) -> LogCursor | None:
    """How far a node's kernel log was read; None if it does not say so."""
    cursor = (_value(evidence, LOG) or {}).get("cursor")
    if isinstance(cursor, list) and len(cursor) == 3:
        boot_id, sequence, seconds = cursor
        if isinstance(boot_id, str) and isinstance(sequence, int) and isinstance(seconds, (int, float)):
            return boot_id, sequence, float(seconds)
    return None


def _latest(lines: list[Any]) -> list[Any]:
    """The last lines, limited for those of processes and for the rest separately."""
    if len(lines) <= MAX_LINES:
        return lines
    left = {True: MAX_LINES_OF_PROCESSES, False: MAX_LINES}
    latest: list[Any] = []
    for line in reversed(lines):
        is_of_process = class_of(_text(line)) == PROCESSES
        if left[is_of_process] > 0:
            left[is_of_process] -= 1
            latest.append(line)
    return latest[::-1]


def _text(line: Any) -> str:
    """The text of a line that a node reported; empty if it is none."""
    return line[1] if isinstance(line, list) and len(line) > 1 and isinstance(line[1], str) else ""


def with_facts(evidence: NodeEvidence, facts: Facts) -> NodeEvidence:
    """The evidence with these facts of its GPUs."""
    known = _value(evidence, NVML)
    if known is None or not isinstance(known.get("gpus"), list):
        return evidence
    gpus = [{**gpu, **facts.get(_index(gpu), {})} if isinstance(gpu, dict) else gpu for gpu in known["gpus"]]
    for gpu in gpus:
        if isinstance(gpu, dict) and gpu.get("slowdown", ()) is None:
            del gpu["slowdown"]
    return evidence if gpus == known["gpus"] else _with(evidence, NVML, {**known, "gpus": gpus})


def _index(gpu: Mapping[str, Any]) -> int:
    """The index that a node reports of a GPU; -1 if it is none."""
    index = gpu.get("index")
    return index if type(index) is int else -1


def with_reported(evidence: NodeEvidence, reported: Mapping[str, Mapping[str, Any]]) -> NodeEvidence:
    """The evidence with what these collectors report now, whatever a visit returned for them."""
    for name, value in reported.items():
        if _value(evidence, name) != value:
            evidence = _with(evidence, name, value)
    return evidence


def with_known(evidence: NodeEvidence, before: NodeEvidence) -> NodeEvidence:
    """The evidence, with watched values that it lacks filled in from the earlier evidence of the same boot."""
    if len({boot_of(evidence), boot_of(before)} - {""}) > 1:
        return evidence
    missing = [
        name for name in (*WATCHED, "boot") if _value(evidence, name) is None and _value(before, name) is not None
    ]
    known = {name: before.collectors[name] for name in missing}
    return replace(evidence, collectors={**evidence.collectors, **known}) if known else evidence


def boot_of(evidence: NodeEvidence) -> str:
    """The boot id in the evidence; empty if none."""
    boot_id = (_value(evidence, "boot") or {}).get("boot_id")
    return boot_id if isinstance(boot_id, str) else ""


def _value(evidence: NodeEvidence, collector: str) -> dict[str, Any] | None:
    known = evidence.collectors.get(collector)
    return known.value if known and known.status is Status.READ and isinstance(known.value, dict) else None


def _with(evidence: NodeEvidence, collector: str, value: Any) -> NodeEvidence:
    return replace(evidence, collectors={**evidence.collectors, collector: Collected(Status.READ, value)})
