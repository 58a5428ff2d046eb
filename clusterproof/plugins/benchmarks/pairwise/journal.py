"""The file of a campaign: the plan, and every measurement as soon as it is made. JSON Lines.

The first line is the plan; then come measurements, and how many first rounds there was time for; the last line marks
the end. An interrupted run resumes from it, a recording replays it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from io import BufferedWriter, TextIOWrapper
from pathlib import Path
from typing import IO, Any

from clusterproof.plugins.benchmarks.meters.baseline import described
from clusterproof.plugins.benchmarks.pairwise.groups import MIN_NODES, GroupPlan
from clusterproof.plugins.benchmarks.pairwise.mesh import MeshLimits
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.opened import appendable, read_whole
from clusterproof.plugins.evidence.exchanges import exchange_of
from clusterproof.plugins.evidence.pairs import GroupMeasurement, Measurement, NodeGroup, Reading, is_believable, pair

SCHEMA = "clusterproof pairs 1"
MAX_BYTES = 2**30
MAX_LINES = 5_000_000
EXPECTED = "a pairwise.jsonl that a run wrote"
_NUMBERS = ("busbw_gb_per_s", "algbw_gb_per_s", "time_us", "size_bytes", "seconds", "ranks")
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("network", "problem", "culprit", "command", "failure"), str),
    **dict.fromkeys(_NUMBERS, (int, float)),
    "is_correct": bool,
}


class JournalError(ClusterproofError, ValueError):
    """An invalid journal, or one of another campaign; the message is one line."""


def file_name(number: int) -> str:
    """The file of a run's first campaign, its second, …"""
    return "pairwise.jsonl" if not number else f"pairwise-{number + 1}.jsonl"


@dataclass(frozen=True, slots=True)
class Journal:
    """The contents of a journal. `about` describes the meter: its name, size and what it is compared with."""

    plan: PairPlan
    about: Mapping[str, Any] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)  # nodes that were not measured, and why
    measurements: tuple[Measurement, ...] = ()
    ended: str | None = None  # None: interrupted; else what was left out, or nothing
    group_plan: GroupPlan | None = None  # after the pairs, if groups were requested
    groups: tuple[GroupMeasurement, ...] = ()


class JournalWriter:
    """An open journal: every line is synced to disk before the next measurement."""

    def __init__(self, path: Path, journal: Journal) -> None:
        """Create a file, or continue an existing one. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self._file: IO[str] = TextIOWrapper(BufferedWriter(appendable(path)), encoding="utf-8")
        if is_new:
            self._write(_header(journal))
        elif not _is_complete(path):
            self._file.write("\n")  # ends a truncated line, which readers skip

    def measured(self, measurement: Measurement) -> None:
        """Store a measurement of a pair."""
        self._write(
            {
                "pair": list(measurement.pair),
                "round": measurement.round,
                "at_once": measurement.at_once,
                "reading": _record(measurement.reading),
            }
        )

    def groups_planned(self, plan: GroupPlan) -> None:
        """Store the plan for groups; it replaces any earlier one."""
        groups = [list(group) for group in plan.groups]
        self._write({"groups": groups, "most_nodes": plan.most_nodes, "left_out": plan.left_out})

    def measured_group(self, measurement: GroupMeasurement) -> None:
        """Store a measurement of a group."""
        group, reading = list(measurement.group), _record(measurement.reading)
        self._write({"group": group, "at_once": measurement.at_once, "reading": reading})

    def limited(self, first_rounds: int) -> None:
        """Store that there is only time for so many of the first rounds."""
        self._write({"first_rounds": first_rounds})

    def finish(self, reason: str) -> None:
        """Store that the campaign is finished, and what was left out."""
        self._write({"ended": reason})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _record(reading: Reading) -> dict[str, Any]:
    record = {key: value for key, value in asdict(reading).items() if value not in (None, "", 0, (), 0.0)}
    record |= {"is_correct": False} if reading.is_correct is False else {}
    return {**record, "failure": reading.failure or ""} if reading.problem else record


def _is_complete(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if not file.tell():
            return True
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _header(journal: Journal) -> dict[str, Any]:
    plan = journal.plan
    return {
        "schema": SCHEMA,
        "nodes": list(plan.nodes),
        "places": dict(plan.places),
        "min_effect": plan.min_effect,
        "is_full": plan.is_full,
        "asked": [list(nodes) for nodes in plan.asked],
        "seed": plan.seed,
        "absent": dict(journal.absent),
        **({"mesh": asdict(plan.mesh)} if plan.mesh else {}),
        "about": dict(journal.about),
    }


def write(path: Path, journal: Journal) -> None:
    """Write a complete journal, as in a recording. Raises OSError."""
    path.unlink(missing_ok=True)
    writer = JournalWriter(path, journal)
    try:
        if journal.plan.first_rounds is not None:
            writer.limited(journal.plan.first_rounds)
        for measurement in journal.measurements:
            writer.measured(measurement)
        if journal.group_plan:
            writer.groups_planned(journal.group_plan)
        for of_group in journal.groups:
            writer.measured_group(of_group)
        if journal.ended is not None:
            writer.finish(journal.ended)
    finally:
        writer.close()


def read(path: Path) -> Journal:
    """Parse a journal strictly, except for lines cut by an interruption. Raises JournalError."""
    lines = _lines(path)
    try:
        journal = _of_header(json.loads(lines[0]))
    except Exception as problem:  # a file from others may contain anything
        raise JournalError(f"{path}: its first line is not a plan ({problem!s:.80}); expected {EXPECTED}") from None
    measurements: list[Measurement] = []
    groups: list[GroupMeasurement] = []
    for number, line in enumerate(lines[1:MAX_LINES], 2):
        if not line:
            continue
        try:
            journal = _taken(json.loads(line), journal, measurements, groups)
        except Exception as problem:
            is_cut = isinstance(problem, json.JSONDecodeError) and line.startswith("{")
            if not is_cut:
                raise JournalError(f"{path}:{number}: {problem!s:.80}; expected a measurement") from None
    known = set(journal.group_plan.groups if journal.group_plan else ())
    planned = tuple(measurement for measurement in groups if measurement.group in known)
    return replace(journal, measurements=tuple(measurements), groups=planned)


def _taken(document: Any, journal: Journal, measurements: list[Measurement], groups: list[GroupMeasurement]) -> Journal:
    """The journal with one line applied; measurements are appended to the lists.

    A measurement after an end marker continues the run: then it is not finished.
    """
    if "first_rounds" in document:
        return replace(journal, plan=replace(journal.plan, first_rounds=int(document["first_rounds"])))
    if "ended" in document:
        return replace(journal, ended=str(document["ended"]))
    if "groups" in document:
        return replace(journal, group_plan=_group_plan(document, journal.plan), ended=None)
    if "group" in document:
        groups.append(_group_measurement(document, journal.plan))
    else:
        measurements.append(_measurement(document, journal.plan))
    return replace(journal, ended=None) if journal.ended is not None else journal


def _lines(path: Path) -> list[str]:
    try:
        return read_whole(path, MAX_BYTES, path.parent).decode().split("\n")
    except OSError as problem:
        raise JournalError(f"{path}: {problem.strerror or problem}; expected {EXPECTED}") from None
    except UnicodeDecodeError as problem:
        raise JournalError(f"{path}: byte {problem.start} is not UTF-8; expected {EXPECTED}") from None


def _of_header(record: Mapping[str, Any]) -> Journal:
    if record["schema"] != SCHEMA:
        raise ValueError(f"schema {record['schema']!r:.40} is not {SCHEMA!r}")
    absent = {str(node): str(why) for node, why in record["absent"].items()}
    plan = PairPlan(
        nodes=tuple(_texts(record["nodes"])),
        places={str(node): str(place) for node, place in record["places"].items()},
        min_effect=float(record["min_effect"]),
        is_full=bool(record["is_full"]),
        asked=tuple(pair(*_two(nodes)) for nodes in record["asked"]),
        seed=int(record["seed"]),
        absent=frozenset(absent),
        mesh=MeshLimits.of(**record["mesh"]) if "mesh" in record else None,
    )
    return Journal(plan, described(record["about"]), absent)


def _measurement(record: Mapping[str, Any], plan: PairPlan) -> Measurement:
    both = pair(*_two(record["pair"]))
    if not set(both) <= set(plan.nodes):
        raise ValueError(f"{both} is not a pair of its nodes")
    number = record["round"]
    if not (isinstance(number, int) and number >= 0):
        raise ValueError(f"{number!r:.40} is not a round")
    return Measurement(both, number, _at_once(record), _reading(record["reading"]))


def _group_measurement(record: Mapping[str, Any], plan: PairPlan) -> GroupMeasurement:
    return GroupMeasurement(_group(record["group"], plan), _at_once(record), _reading(record["reading"]))


def _group_plan(record: Mapping[str, Any], plan: PairPlan) -> GroupPlan:
    planned = tuple(_group(nodes, plan) for nodes in record["groups"])
    return GroupPlan(planned, plan.places, int(record["most_nodes"]), str(record["left_out"]))


def _group(values: object, plan: PairPlan) -> NodeGroup:
    nodes = tuple(_texts(values)) if isinstance(values, list) else ()
    if not isinstance(values, list) or len(set(nodes)) < len(nodes) or not set(nodes) <= set(plan.nodes):
        raise ValueError("its nodes are not in the plan, or not once")
    if len(nodes) < MIN_NODES:
        raise ValueError(f"a group of {len(nodes)}")
    return NodeGroup(nodes)


def _at_once(record: Mapping[str, Any]) -> int:
    at_once = record["at_once"]
    if not (isinstance(at_once, int) and at_once >= 1) or at_once is True:
        raise ValueError(f"{at_once!r:.40} at once is impossible")
    return at_once


def _reading(record: Mapping[str, Any]) -> Reading:
    unknown = set(record) - {column.name for column in fields(Reading)}
    if unknown:
        raise ValueError(f"a reading has no {sorted(unknown)[0]!r:.40}")
    for name, value in record.items():
        is_rightly_bool = isinstance(value, bool) == (name == "is_correct")
        if (
            name not in ("hosts", "exchanges")
            and value is not None
            and not (is_rightly_bool and isinstance(value, _KINDS[name]))
        ):
            raise ValueError(f"{value!r:.40} is not a value of {name}")
    busbw = record.get("busbw_gb_per_s")
    if busbw is not None and not is_believable(busbw):
        raise ValueError(f"{busbw!r:.40} is not a bandwidth")
    exchanges = tuple(exchange_of(exchange) for exchange in record.get("exchanges", ()))
    hosts = tuple(_texts(record.get("hosts", ())))
    return Reading(**{**record, "hosts": hosts, "exchanges": exchanges, "failure": Reading.failure_in(record)})


def _texts(values: Sequence[Any]) -> list[str]:
    if not all(isinstance(entry, str) for entry in values):
        raise ValueError("expected texts")
    return list(values)


def _two(values: Sequence[Any]) -> tuple[str, str]:
    node, other = _texts(values)
    return node, other
