"""Reads a cluster's history from its file."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clusterproof.plugins.core.opened import path_exists
from clusterproof.plugins.core.result import Measured
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FOUND, Entry, Gpu, NodeIdentity, Pair, Past, PastRun, Standing
from clusterproof.reports.history.schema import reading

LATEST_S = 250_000_000_000.0  # in the year 9892; Python's calendar ends with 9999
K = TypeVar("K")
V = TypeVar("V")


def read_before(path: Path, cluster: str) -> tuple[PastRun | None, dict[Pair, Standing]]:
    """The last run over a cluster, and all lasting findings. Raises HistoryError."""
    if not path_exists(path):
        return None, {}
    with reading(path) as database:
        runs = _runs(database, storable(cluster), 1)
        return (runs[-1] if runs else None), standing(database, storable(cluster))


def nodes_of(path: Path, cluster: str) -> frozenset[str]:
    """The nodes of a cluster in any run. Raises HistoryError."""
    with reading(path) as database:
        rows = database.execute("SELECT name FROM nodes WHERE cluster = ?", (storable(cluster),))
        return frozenset(_word(name) for (name,) in rows)


def clusters(path: Path) -> list[str]:
    """The clusters in a history, by newest run. Raises HistoryError."""
    with reading(path) as database:
        rows = database.execute("SELECT cluster FROM runs GROUP BY cluster ORDER BY max(id) DESC")
        return [_word(cluster) for (cluster,) in rows]


def read_past(path: Path, cluster: str, max_runs: int) -> Past:
    """The findings of the last runs over a cluster. Raises HistoryError."""
    with reading(path) as database:
        return _past(database, storable(cluster), max_runs)


def _past(database: sqlite3.Connection, cluster: str, max_runs: int) -> Past:
    runs = tuple(_runs(database, cluster, max_runs))
    first = runs[0].number if runs else 0
    (count,) = database.execute("SELECT count(*) FROM runs WHERE cluster = ?", (cluster,)).fetchone()
    return Past(
        runs,
        _tuples(_verdicts(database, cluster, first)),
        _tuples(_identities(database, cluster)),
        _tuples(_measurements(database, cluster, first)),
        count - len(runs),
    )


def _tuples(rows: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    """All values of each key, in order."""
    values: dict[K, list[V]] = defaultdict(list)
    for key, value in rows:
        values[key].append(value)
    return {key: tuple(of_key) for key, of_key in values.items()}


def _verdicts(database: sqlite3.Connection, cluster: str, first: int) -> Iterator[tuple[Pair, Entry]]:
    """The verdicts of each run from `first` on, and the last one before, for checks and nodes with any finding."""
    rows = database.execute(
        "SELECT c.name, n.name, v.run, v.verdict, v.stands, v.devices, v.message, v.standing_devices FROM"
        " (SELECT node, check_id FROM verdicts WHERE run >= ?1 AND verdict IN ('fail', 'concern', 'incomplete')"
        " UNION SELECT b.node, b.check_id FROM nodes AS n CROSS JOIN checks AS c CROSS JOIN verdicts AS b"
        " ON b.node = n.id AND b.check_id = c.id AND b.run ="
        " (SELECT max(run) FROM verdicts AS w WHERE w.node = n.id AND w.check_id = c.id AND w.run < ?1)"
        " WHERE n.cluster = ?2 AND b.verdict IN ('fail', 'concern', 'incomplete')"
        " AND coalesce(b.stands, b.verdict) IN ('fail', 'concern', 'incomplete') AND EXISTS"
        " (SELECT 1 FROM verdicts AS l WHERE l.node = b.node AND l.check_id = b.check_id AND l.run >= ?1)) AS found"
        " JOIN nodes AS n ON n.id = found.node AND n.cluster = ?2"
        " JOIN verdicts AS v ON v.node = found.node AND v.check_id = found.check_id AND v.run >= coalesce("
        "(SELECT max(run) FROM verdicts AS w"
        " WHERE w.node = found.node AND w.check_id = found.check_id AND w.run < ?1), ?1)"
        " JOIN checks AS c ON c.id = v.check_id ORDER BY c.name, n.name, v.run",
        (first, cluster),
    )
    yield from map(_entry, rows)


def _entry(row: Sequence[Any]) -> tuple[Pair, Entry]:
    check, node, run, word, stands, devices, message, standing_devices = row
    verdict = Verdict(word)
    named = _words(json.loads(devices)) if devices else ()
    if standing_devices:
        standing = {_finding(word): _words(of) for word, of in json.loads(standing_devices).items()}
    else:
        standing = {verdict: named} if named and verdict in FOUND else {}  # as in schema 3
    entry = Entry(_whole(run), verdict, Verdict(stands) if stands else verdict, named, _word(message or ""), standing)
    return (_word(check), _word(node)), entry


def _identities(database: sqlite3.Connection, cluster: str) -> Iterator[tuple[str, tuple[int, NodeIdentity]]]:
    """The nodes' hardware, with the first run of each."""
    rows = database.execute(
        "SELECT n.name, i.run, i.instance_id, i.serial, i.gpus FROM identity AS i"
        " JOIN nodes AS n ON n.id = i.node WHERE n.cluster = ? ORDER BY n.name, i.run",
        (cluster,),
    )
    for node, run, *columns in rows:
        yield _word(node), (_whole(run), identity_of(columns))


def _measurements(
    database: sqlite3.Connection, cluster: str, first: int
) -> Iterator[tuple[Pair, tuple[int, Measured]]]:
    rows = database.execute(
        "SELECT m.name, n.name, m.run, m.value, m.unit FROM measurements AS m"
        " JOIN nodes AS n ON n.id = m.node WHERE n.cluster = ? AND m.run >= ? ORDER BY m.name, n.name, m.run",
        (cluster, first),
    )
    for name, node, run, value, unit in rows:
        yield (_word(name), _word(node)), (_whole(run), Measured(name, node, _number(value), _word(unit)))


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
            exit_code=_whole(exit_code),
            version=_word(version),
            is_green=bool(is_green),
            nodes=_whole(nodes),
            unevaluated=_whole(unevaluated),
            number=number,
        )
        for cluster, began, ended, occasion, exit_code, version, is_green, nodes, unevaluated, number in rows
    ]
    return runs[::-1]


def standing(database: sqlite3.Connection, cluster: str) -> dict[Pair, Standing]:
    """The state after the last run that evaluated it, if it is not fine."""
    rows = database.execute(
        "SELECT c.name, n.name, v.run, v.verdict, v.stands, v.devices, '', v.standing_devices FROM"
        " (SELECT DISTINCT node, check_id FROM verdicts WHERE verdict IN ('fail', 'concern', 'incomplete')) AS found"
        " CROSS JOIN nodes AS n ON n.id = found.node AND n.cluster = ? CROSS JOIN checks AS c ON c.id = found.check_id"
        " CROSS JOIN verdicts AS v ON v.node = found.node AND v.check_id = found.check_id AND v.run ="
        " (SELECT max(run) FROM verdicts AS w WHERE w.node = found.node AND w.check_id = found.check_id)"
        " WHERE coalesce(v.stands, v.verdict) IN ('fail', 'concern', 'incomplete')",
        (cluster,),
    )
    return {pair: Standing(entry.stands, entry.standing_devices) for pair, entry in map(_entry, rows)}


def identity_of(row: Sequence[str]) -> NodeIdentity:
    """The hardware in a row. Raises TypeError, ValueError."""
    instance_id, serial, gpus = row
    identified = tuple(Gpu(int(index), *map(_word, texts)) for index, *texts in json.loads(gpus))
    return NodeIdentity(_word(instance_id), _word(serial), identified)


def storable(text: str) -> str:
    """A text that UTF-8 can encode: an unpaired surrogate becomes its name."""
    return text.encode("utf-8", "backslashreplace").decode()


def _word(value: object) -> str:
    """Require a text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _words(value: object) -> tuple[str, ...]:
    """Require a list of texts. Raises TypeError."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is not a list")
    return tuple(map(_word, value))


def _finding(word: str) -> Verdict:
    """Require the verdict of a finding. Raises ValueError."""
    verdict = Verdict(word)
    if verdict not in FOUND:
        raise ValueError(f"{word} is not found of devices")
    return verdict


def _number(value: object) -> float:
    """Require a finite number. Raises TypeError."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def _whole(value: object) -> int:
    """Require a whole number. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.40} is not a whole number")
    return value


def _moment(value: object) -> float:
    """Seconds since 1970 of a valid time. Raises TypeError, ValueError."""
    moment = _number(value)
    if not 0 <= moment < LATEST_S:
        raise ValueError(f"{value!r:.40} is not a time")
    return moment
