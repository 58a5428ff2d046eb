"""Reads steps that training code logs as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from clusterproof.plugins.training_run import CutFile, NoDuration, Position, RunError, Step, Unranked
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, integer, json_lines, name
from clusterproof.plugins.training_run.formats import elapsed
from clusterproof.plugins.training_run.formats.printed import LossGap, number_or_none
from clusterproof.plugins.training_run.formats.printer import rank_of_file
from clusterproof.plugins.training_run.formats.steps import (
    NAMES,
    OTHERS,
    PHASES,
    UNITS,
    is_no_duration,
    lasted_s,
    losses_of,
    parts_of,
)
from clusterproof.plugins.training_run.losses import Loss
from clusterproof.plugins.training_run.placement import Placement, number_of

EXPECTED_STEP = 'expected {"rank": 0, "step": 1, "dur": 1.3}, with "stages" and "loss" where they are known'
MAX_PARTS = 100


def are_steps(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    if not (isinstance(first, dict) and "step" in first):
        return False
    if duration := _duration(first):
        lasted = number_or_none(first[duration[0]])
        if lasted is None and duration[0] in elapsed.NAMES:
            lasted = elapsed.since_1970_s(first[duration[0]])
        return lasted is not None and isfinite(lasted)
    return _value_in(first, NAMES["loss"]) is not None


def read_steps(path: RunFile) -> Iterator[Step | Loss | Placement | Unranked | CutFile | NoDuration]:
    """The steps and losses, a line each, and on which nodes their ranks run. Raises RunError."""
    lines, rank = Lines(path), rank_of_file(path.path)
    is_told = rank is not None  # or the missing rank has been reported
    placed: set[Placement] = set()
    clock: elapsed.Elapsed | None = None
    missing_losses: dict[int, LossGap] = {}
    for entry in json_lines(lines, EXPECTED_STEP):
        if isinstance(entry, dict) and _is_other(entry):
            continue
        if not isinstance(entry, dict) or "step" not in entry:
            raise RunError(f"{lines.where}: {str(entry)!r:.60} is not a step; {EXPECTED_STEP}")
        if not is_told and "rank" not in entry and entry.get("stages"):
            is_told = True
            yield Unranked()
        position, number = _position_of(entry, rank or 0, lines.where), integer(entry["step"], "step", lines.where)
        duration = _duration(entry)
        loss, norm = (_value_in(entry, NAMES[what]) for what in ("loss", "norm"))
        is_expected = any(key in entry for key in NAMES["loss"])
        yield from losses_of(Loss(position.rank, number, loss, norm), missing_losses, is_expected=is_expected)
        if duration and is_no_duration(entry[duration[0]]):
            yield NoDuration()
        elif duration:  # others are of a validation
            is_unclear = duration[0] in elapsed.NAMES
            clock = clock or elapsed.Elapsed(is_unclear)
            lasted = lasted_s(entry[duration[0]], *duration, lines.where, is_unclear=is_unclear)
            parts, without = _parts(entry, lines.where)
            yield from without
            yield from clock.take(Step(position, number, lasted, parts))
        if "host" in entry:
            gpu = number_of(entry.get("gpu", entry.get("local_rank")))
            placement = Placement(position.rank, name(entry["host"], "host", lines.where), gpu)
            if placement not in placed:
                placed.add(placement)
                yield placement
    yield from clock.rest() if clock else ()
    if lines.is_cut:
        yield CutFile()


def _is_other(entry: Mapping[str, Any]) -> bool:
    """Whether a line is from a validation, or has no data of a step."""
    if any(OTHERS.match(str(entry[phase])) for phase in PHASES if phase in entry):
        return True
    return not (entry.keys() & {"step", "rank", *NAMES["loss"]} or _duration(entry))


def _duration(entry: Mapping[str, Any]) -> tuple[str, float] | None:
    """The key of the duration, and its unit in seconds; None if there is none."""
    keys = ((short, end) for short in NAMES["duration"] for end in ("", *UNITS))
    return next(((f"{short}{end}", UNITS.get(end, 1.0)) for short, end in keys if f"{short}{end}" in entry), None)


def _position_of(entry: Mapping[str, Any], rank: int, where: str) -> Position:
    replica = entry.get("dp_rank")
    return Position(
        integer(entry.get("rank", rank), "rank", where),
        integer(entry.get("stage", 0), "stage", where),
        None if replica is None else integer(replica, "dp_rank", where),
    )


def _parts(entry: Mapping[str, Any], where: str) -> tuple[dict[str, float], list[NoDuration]]:
    parts = entry.get("stages", {})
    if not isinstance(parts, Mapping) or len(parts) > MAX_PARTS:
        raise RunError(f"{where}: stages is {str(parts)!r:.60}; expected seconds by name, {MAX_PARTS} at most")
    return parts_of(((name(part, "stages", where), lasted, 1.0) for part, lasted in parts.items()), where)


def _value_in(entry: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    return next((number_or_none(entry[key]) for key in keys if entry.get(key) is not None), None)


FORMATS = (Format("steps (JSON lines)", are_steps, read_steps),)
