"""Reads steps and operations that training code logs as tables with a header line (CSV).

A table may contain only losses, such as `metrics.csv` of Lightning's CSVLogger, in which rows of training and
validation alternate: a row contains what was logged at its step, and its other cells are empty.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.training_run import (
    UNKNOWN,
    CutFile,
    NoDuration,
    Operation,
    Position,
    RunError,
    Step,
    Unranked,
    kind_of,
)
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, integer, name, seconds
from clusterproof.plugins.training_run.formats import elapsed
from clusterproof.plugins.training_run.formats.printed import LossGap, number_or_none, value_of
from clusterproof.plugins.training_run.formats.printer import rank_of_file
from clusterproof.plugins.training_run.losses import Loss
from clusterproof.plugins.training_run.placement import Placement, number_of

PHASES = ("phase", "split", "mode", "subset")  # which part of the program a row is from
OTHERS = re.compile(r"(?:val|eval|test|predict)", re.IGNORECASE)  # prefixes of parts other than training
NAMES: Mapping[str, tuple[str, ...]] = {  # meaning of columns, and their possible names
    "rank": ("rank", "global_rank"),
    "step": ("step", "iteration", "iter"),
    "operation": ("optype", "operation", "op", "op_name", "name"),
    "duration": ("duration", "dur", "seconds", "step_time", "iter_time", "iteration_time", *elapsed.NAMES),
    "stage": ("stage", "pipeline_stage", "pp_rank"),
    "node": ("host", "hostname", "node", "nodename", "node_name"),
    "gpu": ("gpu", "local_rank", "gpu_index", "device_index"),
    "replica": ("dp_rank", "data_parallel_rank", "replica"),
    "loss": (
        *("train_loss_step", "train/loss_step", "loss_step", "train_loss", "train/loss", "training_loss"),
        *("loss", "lm_loss", "reduced_train_loss"),
    ),
    "norm": ("grad_norm", "grad_2.0_norm_total", "train/grad_norm"),
}
UNITS = {"_s": 1.0, "_sec": 1.0, "_seconds": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}  # in s, by suffix
_NO_TIME = re.compile(  # other columns whose names mean a part of a step, or end in a unit
    r"(?:^|[\W_])(?:(?:tokens?|samples?|batches|norm|loss|lr|rate|percent|memory|count|size|bytes|len(?:gths?)?|acc"
    r"|idx|index|id|num|number|epochs?|[tg]?flops|mfu|ratio)$|per[\W_])|^(?:(?:micro|mini|global)[\W_]?)?batch$"
)
EXPECTED_COLUMNS = "expected columns step and duration or loss, with rank and operation where each operation has a row"


@record
class Columns:
    """The meaning and unit of a table's columns.

    `parts` are the timed parts of a step; `phases` say which part of the program a row is from.
    """

    at: Mapping[str, tuple[int, float]]
    parts: Mapping[str, tuple[int, float]]
    count: int
    duration: str  # its column's name without the unit; empty if the table has only losses
    phases: tuple[int, ...]

    @property
    def is_unclear(self) -> bool:
        """Whether the duration may be the time since the beginning."""
        return self.duration in elapsed.NAMES and "operation" not in self.at


def is_table(head: bytes) -> bool:
    """Whether a file that begins so is such a table."""
    return columns(_cells(head.partition(b"\n")[0].decode("utf-8", "replace").removeprefix("\ufeff"))) is not None


def read_table(path: RunFile) -> Iterator[Operation | Step | Loss | Placement | Unranked | CutFile | NoDuration]:
    """Its operations, or its steps with their losses, and on which nodes the ranks run. Raises RunError."""
    lines, table = Lines(path), None
    rows = csv.reader(iter(lines), strict=True)
    try:
        head = columns(next(rows, []))
        if head is None:
            raise RunError(f"{lines.where}: {EXPECTED_COLUMNS}")
        rank = rank_of_file(path.path)
        if rank is None and "rank" not in head.at and head.parts:
            yield Unranked()
        table = _Table(head, rank or 0)
        for row in rows:
            if len(row) != head.count:
                if lines.is_cut or not row:
                    yield from [CutFile()] if row else []
                    continue
                raise RunError(f"{lines.where}: {len(row)} values; expected {head.count}, as the first line names them")
            yield from table.take(row, lines.where, is_cut=lines.is_cut)
    except csv.Error as wrong:
        if not lines.is_cut:
            raise RunError(f"{lines.where}: {wrong}; expected values between commas") from None
        yield CutFile()
    yield from table.clock.rest() if table else ()
    yield from [CutFile()] if lines.has_gap else []


class _Table:
    """The rows of a table so far."""

    def __init__(self, head: Columns, rank: int) -> None:
        self.head, self.rank = head, rank
        self.positions: dict[tuple[str, ...], Position] = {}
        self.placed: set[tuple[str, ...]] = set()
        self.clock = elapsed.Elapsed(head.is_unclear)
        self.missing_losses: dict[int, LossGap] = {}  # by rank

    def take(
        self, row: list[str], where: str, *, is_cut: bool
    ) -> Iterator[Operation | Step | Loss | Placement | NoDuration]:
        """Parse a row; one without a step, or a duration, is about something else. Raises RunError."""
        at = self.head.at
        if any(OTHERS.match(row[phase].strip()) for phase in self.head.phases) or not row[at["step"][0]].strip():
            return
        position, step = self._position(row, where), integer(row[at["step"][0]], "step", where)
        index, unit = at.get("duration") or at["loss"]
        if "operation" not in at:
            loss, norm = (value_of(row[at[what][0]]) if what in at else None for what in ("loss", "norm"))
            is_expected = "loss" in at and row[index].strip() != "" and not is_cut  # others are of a validation
            yield from losses_of(Loss(position.rank, step, loss, norm), self.missing_losses, is_expected=is_expected)
        if not self.head.duration:
            pass
        elif is_no_duration(row[index]):
            yield NoDuration()
        elif row[index].strip():
            lasted = lasted_s(row[index], self.head.duration, unit, where, is_unclear=self.head.is_unclear)
            if "operation" in at:
                yield Operation(position, step, name(row[at["operation"][0]], "operation", where), lasted)
            else:
                cells = ((part, row[index], unit) for part, (index, unit) in self.head.parts.items())
                parts, without = parts_of(cells, where)
                yield from without
                yield from self.clock.take(Step(position, step, lasted, parts))
        if "node" in at:
            key = tuple(row[at[what][0]] for what in ("rank", "node", "gpu") if what in at)
            if key not in self.placed:
                self.placed.add(key)
                gpu = number_of(row[at["gpu"][0]]) if "gpu" in at else None
                yield Placement(position.rank, name(row[at["node"][0]], "host", where), gpu)

    def _position(self, row: list[str], where: str) -> Position:
        at = self.head.at
        key = tuple(row[at[what][0]] for what in ("rank", "stage", "replica") if what in at)
        position = self.positions.get(key)
        if position is None:
            rank = integer(row[at["rank"][0]], "rank", where) if "rank" in at else self.rank
            stage = integer(row[at["stage"][0]], "stage", where) if "stage" in at else 0
            replica = integer(row[at["replica"][0]], "dp_rank", where) if "replica" in at else None
            position = self.positions[key] = Position(rank, stage, replica)
        return position


def losses_of(line: Loss, missing_losses: dict[int, LossGap], *, is_expected: bool) -> Iterator[Loss]:
    """The loss of a step, or that an expected one is missing."""
    has_loss = line.loss is not None
    is_unclear = (has_loss or is_expected) and missing_losses.setdefault(line.rank, LossGap()).is_unclear(
        has_loss=has_loss
    )
    if has_loss or line.norm is not None or is_unclear:
        yield replace(line, is_unclear=is_unclear)


def parts_of(cells: Iterable[tuple[str, object, float]], where: str) -> tuple[dict[str, float], list[NoDuration]]:
    """The seconds of the parts of a step by name, from values and their units, and one for each without a duration.

    Raises RunError.
    """
    known = [(part, value, unit) for part, value, unit in cells if value is not None and str(value).strip()]
    parts = {part: seconds(value, part, where) * unit for part, value, unit in known if not is_no_duration(value)}
    return parts, [NoDuration()] * (len(known) - len(parts))


def is_no_duration(value: object) -> bool:
    """Whether a value is a number but no valid duration: negative, nan, inf."""
    lasted = number_or_none(value)
    return lasted is not None and not 0 <= lasted < inf


def lasted_s(value: object, column: str, unit: float, where: str, *, is_unclear: bool) -> float:
    """The seconds of a step, or if ambiguous since a beginning. Raises RunError, also for a date without time."""
    if is_unclear and number_or_none(value) is None and (moment := elapsed.since_1970_s(value)) is not None:
        return moment
    lasted = seconds(value, column, where) * unit
    if lasted > (elapsed.LAST_EPOCH_S if is_unclear else elapsed.EPOCH_S):
        raise RunError(f"{where}: {column} is {value!r:.60}, which is a date; expected the seconds that a step took")
    return lasted


def columns(names: list[str]) -> Columns | None:
    """The meaning of the columns with these names, the best of each kind; None if it is no such table."""
    shorts = [_without_unit(full.strip().lower()) for full in names]
    by_name = {short: (index, unit) for index, (short, unit) in reversed(list(enumerate(shorts)))}
    chosen = {meaning: known for meaning in NAMES if (known := _chosen(meaning, by_name))}
    at = {meaning: by_name[short] for meaning, short in chosen.items()}
    phases = tuple(by_name[short][0] for short in PHASES if short in by_name)
    used = {*phases, *(index for index, _ in at.values())}
    parts = {
        full.strip(): (index, shorts[index][1])
        for index, full in enumerate(names)
        if index not in used and kind_of(full) != UNKNOWN and not _NO_TIME.search(full)
    }
    needed = {"step", "duration", "rank"} if "operation" in at else {"step"}
    if not (needed <= at.keys() and at.keys() & {"duration", "loss"}):
        return None
    has_parts = "duration" in at and "operation" not in at
    return Columns(at, parts if has_parts else {}, len(names), chosen.get("duration", ""), phases)


def _chosen(meaning: str, by_name: Mapping[str, tuple[int, float]]) -> str:
    """The best of the existing names; times of iterations are not used for steps if both are counted."""
    is_of_both = "step" in by_name and any(name in by_name for name in ("iter", "iteration"))
    known = (short for short in NAMES[meaning] if short in by_name)
    return next((short for short in known if not (is_of_both and short in ("iter_time", "iteration_time"))), "")


def _without_unit(column: str) -> tuple[str, float]:
    end = next((end for end in UNITS if column.endswith(end)), "")
    return column.removesuffix(end), UNITS.get(end, 1.0)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], strict=True), [])
    except csv.Error:
        return []


FORMATS = (Format("a table of operations, steps or losses (CSV)", is_table, read_table),)
