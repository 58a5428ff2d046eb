"""Steps as JSON lines: `{"rank": 3, "step": 120, "dur": 1.31, "stages": {"forward": 0.4, …}}`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.training_run.lines import Lines, json_lines
from clusterproof.plugins.training_run.records import Cut, Place, RunError, Step
from clusterproof.plugins.training_run.seats import Seat, number_of
from clusterproof.plugins.training_run.unpacked import RunFile
from clusterproof.plugins.training_run.values import name, seconds, whole

EXPECTED = 'expected {"rank": 0, "step": 1, "dur": 1.3}, with "stages" where they are known'
DURATIONS = ("dur", "duration", "seconds")
MAX_PARTS = 100


def are_steps(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        data = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "step" in data and any(key in data for key in DURATIONS)


def read_steps(path: RunFile) -> Iterator[Step | Seat | Cut]:
    """The steps, a line each, and on which nodes their ranks run. Raises RunError."""
    lines = Lines(path)
    seated: set[Seat] = set()
    for data in json_lines(lines, EXPECTED):
        step = _step(data, lines.where)
        yield step
        if "host" in data:
            gpu = number_of(data.get("gpu", data.get("local_rank")))
            seat = Seat(step.place.rank, name(data["host"], "host", lines.where), gpu)
            if seat not in seated:
                seated.add(seat)
                yield seat
    if lines.is_cut:
        yield Cut()


def _step(data: Any, where: str) -> Step:
    key = next((key for key in DURATIONS if isinstance(data, dict) and key in data), "")
    if not key or "step" not in data:
        raise RunError(f"{where}: {str(data)!r:.60} is not a step; {EXPECTED}")
    parts = data.get("stages", {})
    if not isinstance(parts, Mapping) or len(parts) > MAX_PARTS:
        raise RunError(f"{where}: stages is {str(parts)!r:.60}; expected seconds by name, {MAX_PARTS} at most")
    replica = data.get("dp_rank")
    return Step(
        Place(
            whole(data.get("rank", 0), "rank", where),
            whole(data.get("stage", 0), "stage", where),
            None if replica is None else whole(replica, "dp_rank", where),
        ),
        whole(data["step"], "step", where),
        seconds(data[key], key, where),
        {name(part, "stages", where): seconds(lasted, part, where) for part, lasted in parts.items()},
    )
