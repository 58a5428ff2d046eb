"""Tables with a line of names: per-rank operations, a row for each, or steps, a row for each rank and step."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.lines import Lines
from clusterproof.plugins.training_run.part_kinds import UNKNOWN, kind_of
from clusterproof.plugins.training_run.records import Cut, Operation, Place, RunError, Step
from clusterproof.plugins.training_run.seats import Seat, number_of
from clusterproof.plugins.training_run.unpacked import RunFile
from clusterproof.plugins.training_run.values import name, seconds, whole

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
EXPECTED = "expected columns step and duration, with rank and operation where each operation has a row"


@record
class Columns:
    """Which column of a table means what, and in which unit; `parts` are the timed parts of a step."""

    at: Mapping[str, tuple[int, float]]
    parts: Mapping[str, tuple[int, float]]
    count: int


def is_table(head: bytes) -> bool:
    """Whether a file that begins so is such a table."""
    return columns(_cells(head.partition(b"\n")[0].decode("utf-8", "replace").removeprefix("\ufeff"))) is not None


def read_table(path: RunFile) -> Iterator[Operation | Step | Seat | Cut]:
    """Its operations, or its steps, and on which nodes the ranks run. Raises RunError."""
    lines = Lines(path)
    rows = csv.reader(iter(lines), strict=True)
    try:
        head = columns(next(rows, []))
        if head is None:
            raise RunError(f"{lines.where}: {EXPECTED}")
        places: dict[tuple[str, ...], Place] = {}
        seated: set[tuple[str, ...]] = set()
        for row in rows:
            if len(row) != head.count:
                if lines.is_cut or not row:
                    yield from [Cut()] if row else []
                    continue
                raise RunError(f"{lines.where}: {len(row)} values; expected {head.count}, as the first line names them")
            yield _read(row, head, places, lines)
            if "node" in head.at:
                who = tuple(row[head.at[what][0]] for what in ("rank", "node", "gpu") if what in head.at)
                if who not in seated:
                    seated.add(who)
                    yield _seat(row, head.at, lines.where)
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


def _seat(row: list[str], at: Mapping[str, tuple[int, float]], where: str) -> Seat:
    gpu = number_of(row[at["gpu"][0]]) if "gpu" in at else None
    return Seat(_place(row, at, where).rank, name(row[at["node"][0]], "host", where), gpu)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), [])
    except csv.Error:
        return []
