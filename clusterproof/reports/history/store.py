"""Where a cluster's history is; runs written into it, and read out of it."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.opened import is_there
from clusterproof.plugins.core.result import Measured, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FILE, NOBODY, Entry, Gpu, HistoryError, NodeIdentity, Pair, Past, PastRun
from clusterproof.reports.history.changes import is_green, known, verdict_carried
from clusterproof.reports.history.schema import reading, writing
from clusterproof.reports.run_folder import RUNS, require_own, safe_name

LATEST_S = 250_000_000_000.0  # in the year 9892; Python's calendar ends with 9999
MAX_WORDS = 400  # characters of a message; the run's own reports have all


def default_path(cluster: str, runs: Path = Path(RUNS)) -> Path:
    """Where a cluster's history stands beside its reports."""
    return runs / safe_name(cluster) / FILE


def require_own_history(path: Path) -> None:
    """Write it, and believe it unasked, only beside the reports, in folders of one's own. Raises HistoryError."""
    try:
        for folder in (path.parent.parent, path.parent):
            if os.path.lexists(folder):
                require_own(folder)
    except OSError as problem:
        raise HistoryError(f"{problem.filename}: {problem.strerror}") from None


def own_path(cluster: str) -> Path:
    """Where a cluster's history stands, in folders that nobody else can write. Raises HistoryError."""
    path = default_path(cluster)
    require_own_history(path)
    return path


def write_run(
    path: Path,
    run: PastRun,
    results: Sequence[Result],
    identities: Mapping[str, NodeIdentity] | None = None,
    measured: Iterable[Measured] = (),
) -> PastRun:
    """Add a run, whole or not at all; what it says of itself is completed from its results. Raises HistoryError."""
    worst = _worst(results)
    nodes = {result.node for result in worst if result.is_of_node}
    unevaluated = sum(not result.is_evaluated for result in results)
    run = replace(run, is_green=is_green(result.verdict for result in worst), nodes=len(nodes), unevaluated=unevaluated)
    with writing(path) as database:
        values = (_text(run.cluster), *astuple(run)[1:-1])
        added = database.execute(
            "INSERT INTO runs (cluster, began, ended, occasion, exit_code, version, is_green, nodes, unevaluated)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        number = int(added.lastrowid or 0)
        names = _Names(database, _text(run.cluster))
        before = _standing(database, _text(run.cluster))
        database.executemany(
            "INSERT INTO verdicts (node, check_id, run, verdict, stands, devices, message)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (_row(result, number, names, before) for result in worst),
        )
        for node, identity in sorted((identities or {}).items()):
            _identify(database, names.node(node), number, identity)
        database.executemany(
            "INSERT OR REPLACE INTO measurements (node, name, run, value, unit) VALUES (?, ?, ?, ?, ?)",
            (
                (
                    names.node(measurement.node),
                    _text(measurement.name),
                    number,
                    measurement.value,
                    _text(measurement.unit),
                )
                for measurement in measured
                if math.isfinite(measurement.value)
            ),
        )
    return replace(run, number=number)


def read_before(path: Path, cluster: str) -> tuple[PastRun | None, dict[Pair, Verdict]]:
    """The last run over a cluster, and what stands of all runs where that is not fine. Raises HistoryError."""
    if not is_there(path):
        return None, {}
    with reading(path) as database:
        runs = _runs(database, _text(cluster), 1)
        return (runs[-1] if runs else None), _standing(database, _text(cluster))


def nodes_of(path: Path, cluster: str) -> frozenset[str]:
    """The nodes of a cluster that any run has. Raises HistoryError."""
    with reading(path) as database:
        rows = database.execute("SELECT name FROM nodes WHERE cluster = ?", (_text(cluster),))
        return frozenset(_word(name) for (name,) in rows)


def clusters(path: Path) -> list[str]:
    """The clusters of a history, that of the newest run first. Raises HistoryError."""
    with reading(path) as database:
        return [row[0] for row in database.execute("SELECT cluster FROM runs GROUP BY cluster ORDER BY max(id) DESC")]


def read_past(path: Path, cluster: str, max_runs: int) -> Past:
    """What the last runs over a cluster found. Raises HistoryError."""
    with reading(path) as database:
        return _past(database, _text(cluster), max_runs)


def _past(database: sqlite3.Connection, cluster: str, max_runs: int) -> Past:
    runs = tuple(_runs(database, cluster, max_runs))
    first = runs[0].number if runs else 0
    tracks: dict[Pair, list[Entry]] = defaultdict(list)
    rows = database.execute(
        "SELECT c.name, n.name, v.run, v.verdict, v.stands, v.devices, v.message FROM"
        " (SELECT DISTINCT node, check_id FROM verdicts"
        " WHERE run >= ?1 AND verdict IN ('fail', 'concern', 'incomplete')) AS found"
        " JOIN nodes AS n ON n.id = found.node AND n.cluster = ?2"
        " JOIN verdicts AS v ON v.node = found.node AND v.check_id = found.check_id AND v.run >= ?1"
        " JOIN checks AS c ON c.id = v.check_id ORDER BY c.name, n.name, v.run",
        (first, cluster),
    )
    for check, node, run, verdict, stands, devices, message in rows:
        last = Verdict(verdict)
        entry = Entry(
            run,
            last,
            Verdict(stands) if stands else last,
            tuple(map(_word, json.loads(devices))) if devices else (),
            _word(message or ""),
        )
        tracks[_word(check), _word(node)].append(entry)
    identities: dict[str, list[tuple[int, NodeIdentity]]] = defaultdict(list)
    for node, run, *columns in database.execute(
        "SELECT n.name, i.run, i.instance_id, i.serial, i.gpus FROM identity AS i"
        " JOIN nodes AS n ON n.id = i.node WHERE n.cluster = ? ORDER BY n.name, i.run",
        (cluster,),
    ):
        identities[node].append((run, _identity(columns)))
    measured: dict[Pair, list[tuple[int, Measured]]] = defaultdict(list)
    for name, node, run, value, unit in database.execute(
        "SELECT m.name, n.name, m.run, m.value, m.unit FROM measurements AS m"
        " JOIN nodes AS n ON n.id = m.node WHERE n.cluster = ? AND m.run >= ? ORDER BY m.name, n.name, m.run",
        (cluster, first),
    ):
        measured[_word(name), _word(node)].append((run, Measured(name, node, _number(value), _word(unit))))
    return Past(
        runs,
        {pair: tuple(track) for pair, track in tracks.items()},
        {node: tuple(last) for node, last in identities.items()},
        {pair: tuple(values) for pair, values in measured.items()},
    )


def _runs(database: sqlite3.Connection, cluster: str, most: int) -> list[PastRun]:
    rows = database.execute(
        "SELECT cluster, began, ended, occasion, exit_code, version, is_green, nodes, unevaluated, id FROM runs"
        " WHERE cluster = ? ORDER BY id DESC LIMIT ?",
        (cluster, most),
    )
    runs = [
        PastRun(
            cluster=cluster,
            began=_moment(began),
            ended=_moment(ended),
            occasion=_word(occasion),
            exit_code=int(exit_code),
            version=_word(version),
            is_green=bool(is_green),
            nodes=int(nodes),
            unevaluated=int(unevaluated),
            number=number,
        )
        for cluster, began, ended, occasion, exit_code, version, is_green, nodes, unevaluated, number in rows
    ]
    return runs[::-1]


def _standing(database: sqlite3.Connection, cluster: str) -> dict[Pair, Verdict]:
    """What stood after the last run that looked, where that is not fine."""
    rows = database.execute(
        "SELECT c.name, n.name, (SELECT coalesce(v.stands, v.verdict) FROM verdicts AS v"
        " WHERE v.node = found.node AND v.check_id = found.check_id ORDER BY v.run DESC LIMIT 1) AS stands"
        " FROM (SELECT DISTINCT node, check_id FROM verdicts"
        " WHERE verdict IN ('fail', 'concern', 'incomplete')) AS found"
        " JOIN nodes AS n ON n.id = found.node JOIN checks AS c ON c.id = found.check_id"
        " WHERE n.cluster = ? AND stands IN ('fail', 'concern', 'incomplete')",
        (cluster,),
    )
    return {(check, node): Verdict(stands) for check, node, stands in rows}


def _row(result: Result, run: int, names: _Names, before: Mapping[Pair, Verdict]) -> tuple[Any, ...]:
    pair = (_text(result.check), _text(result.node))
    stands = verdict_carried(before.get(pair), known(result), is_evaluated=result.is_evaluated)
    is_fine = result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    return (
        names.node(result.node),
        names.check(result.check),
        run,
        result.verdict.value,
        None if stands is result.verdict else stands.value,
        None if is_fine or not result.devices else json.dumps(result.devices),
        None if is_fine else _text(result.message)[:MAX_WORDS],
    )


def _worst(results: Iterable[Result]) -> list[Result]:
    """The worst result of each check and node: a site's own test may report one several times."""
    worst: dict[Pair, Result] = {}
    for result in results:
        pair = (_text(result.check), _text(result.node))
        if pair not in worst or result.verdict.rank < worst[pair].verdict.rank:
            worst[pair] = result
    return list(worst.values())


def _identify(database: sqlite3.Connection, node: int, run: int, identity: NodeIdentity) -> None:
    """Note of what hardware a node is made, where that is not what was known."""
    row = database.execute(
        "SELECT instance_id, serial, gpus FROM identity WHERE node = ? ORDER BY run DESC LIMIT 1", (node,)
    ).fetchone()
    before = _identity(row) if row else NOBODY
    now = identity.completed(before)
    if now != before:
        gpus = json.dumps([astuple(gpu) for gpu in now.gpus])
        database.execute(
            "INSERT INTO identity (node, run, instance_id, serial, gpus) VALUES (?, ?, ?, ?, ?)",
            (node, run, _text(now.instance_id), _text(now.serial), gpus),
        )


def _identity(row: Sequence[str]) -> NodeIdentity:
    instance_id, serial, gpus = row
    identified = tuple(Gpu(int(index), *map(_word, texts)) for index, *texts in json.loads(gpus))
    return NodeIdentity(_word(instance_id), _word(serial), identified)


def _word(value: object) -> str:
    """A text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _number(value: object) -> float:
    """A number that is finite. Raises TypeError."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def _moment(value: object) -> float:
    """Seconds since 1970 of a time that there is. Raises TypeError, ValueError."""
    moment = _number(value)
    if not 0 <= moment < LATEST_S:
        raise ValueError(f"{value!r:.40} is not a time")
    return moment


def _text(text: str) -> str:
    """A text that UTF-8 can hold: of half a surrogate pair, its name."""
    return text.encode("utf-8", "backslashreplace").decode()


class _Names:
    """The numbers of checks and nodes in the file, each name written once."""

    def __init__(self, database: sqlite3.Connection, cluster: str) -> None:
        self._database = database
        self._cluster = cluster
        self._checks = dict(database.execute("SELECT name, id FROM checks"))
        self._nodes = dict(database.execute("SELECT name, id FROM nodes WHERE cluster = ?", (cluster,)))

    def check(self, name: str) -> int:
        """A check's number."""
        return self._number(self._checks, _text(name), "INSERT INTO checks (name) VALUES (?)")

    def node(self, name: str) -> int:
        """A node's number."""
        return self._number(self._nodes, _text(name), "INSERT INTO nodes (name, cluster) VALUES (?, ?)", self._cluster)

    def _number(self, numbers: dict[str, int], name: str, statement: str, *more: str) -> int:
        if name not in numbers:
            numbers[name] = int(self._database.execute(statement, (name, *more)).lastrowid or 0)
        return numbers[name]
