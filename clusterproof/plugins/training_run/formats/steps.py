"""Steps and operations that training code logs itself: tables with a line of names (CSV), or steps as JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import UNKNOWN, Cut, Operation, Place, RunError, Step, kind_of
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, json_lines, name, seconds, whole
from clusterproof.plugins.training_run.placement import Placement, number_of

NAMES: Mapping[str, tuple[str, ...]] = {  # what a column means, and what it may be called
    "rank": ("rank", "global_rank"),
    "step": ("step", "iteration", "iter"),
    "operation": ("optype", "operation", "op", "op_name", "name"),
    "duration": ("duration", "dur", "seconds", "step_time", "time"),
    "stage": ("stage", "pipeline_stage", "pp_rank"),
    "node": ("host", "hostname", "node", "nodename", "node_name"),
    "gpu": ("gpu", "local_rank", "gpu_index", "device_index"),
    "replica": ("dp_rank", "data_parallel_rank", "replica"),
}
UNITS = {"_s": 1.0, "_sec": 1.0, "_seconds": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}  # in s, by the name's end
EXPECTED_COLUMNS = "expected columns step and duration, with rank and operation where each operation has a row"


@record
class Columns:
    """Which column of a table means what, and in which unit; `parts` are the timed parts of a step."""

    at: Mapping[str, tuple[int, float]]
    parts: Mapping[str, tuple[int, float]]
    count: int


def is_table(head: bytes) -> bool:
    """Whether a file that begins so is such a table."""
    return columns(_cells(head.partition(b"\n")[0].decode("utf-8", "replace").removeprefix("\ufeff"))) is not None


def read_table(path: RunFile) -> Iterator[Operation | Step | Placement | Cut]:
    """Its operations, or its steps, and on which nodes the ranks run. Raises RunError."""
    lines = Lines(path)
    rows = csv.reader(iter(lines), strict=True)
    try:
        head = columns(next(rows, []))
        if head is None:
            raise RunError(f"{lines.where}: {EXPECTED_COLUMNS}")
        places: dict[tuple[str, ...], Place] = {}
        placed: set[tuple[str, ...]] = set()
        for row in rows:
            if len(row) != head.count:
                if lines.is_cut or not row:
                    yield from [Cut()] if row else []
                    continue
                raise RunError(f"{lines.where}: {len(row)} values; expected {head.count}, as the first line names them")
            yield _read(row, head, places, lines)
            if "node" in head.at:
                who = tuple(row[head.at[what][0]] for what in ("rank", "node", "gpu") if what in head.at)
                if who not in placed:
                    placed.add(who)
                    yield _placement(row, head.at, lines.where)
    except csv.Error as wrong:
        if not lines.is_cut:
            raise RunError(f"{lines.where}: {wrong}; expected values between commas") from None
        yield Cut()


def columns(names: list[str]) -> Columns | None:
    """What the columns of these names mean; None where it is no such table."""
    at: dict[str, tuple[int, float]] = {}
    parts: dict[str, tuple[int, float]] = {}
    for index, full in enumerate(names):
        short, unit = _without_unit(full.strip().lower())
        meaning = next((meaning for meaning, known in NAMES.items() if short in known), "")
        if meaning and meaning not in at:
            at[meaning] = (index, unit)
        elif kind_of(full) != UNKNOWN:
            parts[full.strip()] = (index, unit)
    is_known = {"step", "duration"} <= at.keys() and ("operation" not in at or "rank" in at)
    return Columns(at, {} if "operation" in at else parts, len(names)) if is_known else None


def _without_unit(column: str) -> tuple[str, float]:
    end = next((end for end in UNITS if column.endswith(end)), "")
    return column.removesuffix(end), UNITS.get(end, 1.0)


def _read(row: list[str], head: Columns, places: dict[tuple[str, ...], Place], lines: Lines) -> Operation | Step:
    at = head.at
    where = lines.where
    key = tuple(row[at[what][0]] for what in ("rank", "stage", "replica") if what in at)
    place = places.get(key)
    if place is None:
        place = places[key] = _place(row, at, where)
    step = whole(row[at["step"][0]], "step", where)
    index, unit = at["duration"]
    lasted = seconds(row[index], "duration", where) * unit
    if "operation" in at:
        return Operation(place, step, name(row[at["operation"][0]], "operation", where), lasted)
    parts = {
        part: seconds(row[index], part, where) * unit
        for part, (index, unit) in head.parts.items()
        if row[index].strip()
    }
    return Step(place, step, lasted, parts)


def _place(row: list[str], at: Mapping[str, tuple[int, float]], where: str) -> Place:
    rank, stage = (whole(row[at[what][0]], what, where) if what in at else 0 for what in ("rank", "stage"))
    return Place(rank, stage, whole(row[at["replica"][0]], "dp_rank", where) if "replica" in at else None)


def _placement(row: list[str], at: Mapping[str, tuple[int, float]], where: str) -> Placement:
    gpu = number_of(row[at["gpu"][0]]) if "gpu" in at else None
    return Placement(_place(row, at, where).rank, name(row[at["node"][0]], "host", where), gpu)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), [])
    except csv.Error:
        return []


EXPECTED_STEP = 'expected {"rank": 0, "step": 1, "dur": 1.3}, with "stages" where they are known'
DURATIONS = ("dur", "duration", "seconds")
MAX_PARTS = 100


def are_steps(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "step" in first and any(key in first for key in DURATIONS)


def read_steps(path: RunFile) -> Iterator[Step | Placement | Cut]:
    """The steps, a line each, and on which nodes their ranks run. Raises RunError."""
    lines = Lines(path)
    placed: set[Placement] = set()
    for entry in json_lines(lines, EXPECTED_STEP):
        step = _step(entry, lines.where)
        yield step
        if "host" in entry:
            gpu = number_of(entry.get("gpu", entry.get("local_rank")))
            placement = Placement(step.place.rank, name(entry["host"], "host", lines.where), gpu)
            if placement not in placed:
                placed.add(placement)
                yield placement
    if lines.is_cut:
        yield Cut()


def _step(entry: Any, where: str) -> Step:
    key = next((key for key in DURATIONS if isinstance(entry, dict) and key in entry), "")
    if not key or "step" not in entry:
        raise RunError(f"{where}: {str(entry)!r:.60} is not a step; {EXPECTED_STEP}")
    parts = entry.get("stages", {})
    if not isinstance(parts, Mapping) or len(parts) > MAX_PARTS:
        raise RunError(f"{where}: stages is {str(parts)!r:.60}; expected seconds by name, {MAX_PARTS} at most")
    replica = entry.get("dp_rank")
    return Step(
        Place(
            whole(entry.get("rank", 0), "rank", where),
            whole(entry.get("stage", 0), "stage", where),
            None if replica is None else whole(replica, "dp_rank", where),
        ),
        whole(entry["step"], "step", where),
        seconds(entry[key], key, where),
        {name(part, "stages", where): seconds(lasted, part, where) for part, lasted in parts.items()},
    )


FORMATS = (
    Format("a table of operations or steps (CSV)", is_table, read_table),
    Format("steps (JSON lines)", are_steps, read_steps),
)
