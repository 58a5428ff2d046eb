"""Locates a cluster's history, and writes runs to it."""

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

from clusterproof.plugins.core.result import Measured, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FILE, NOBODY, HistoryError, NodeIdentity, Pair, PastRun, Standing
from clusterproof.reports.history.changes import is_green, standing_after
from clusterproof.reports.history.past import identity_of, standing, storable
from clusterproof.reports.history.schema import writing
from clusterproof.reports.run_folder import RUNS, require_own, safe_name

MAX_WORDS = 400  # characters of a message; the run's own reports are complete


def default_path(cluster: str, runs: Path = Path(RUNS)) -> Path:
    """The path of a cluster's history next to its reports."""
    return runs / safe_name(cluster) / FILE


def require_own_history(path: Path) -> None:
    """Only use a default history next to the reports, in the caller's own folders. Raises HistoryError."""
    try:
        for folder in (path.parent.parent, path.parent):
            if os.path.lexists(folder):
                require_own(folder)
    except OSError as problem:
        raise HistoryError(f"{problem.filename}: {problem.strerror}") from None


def own_path(cluster: str) -> Path:
    """The path of a cluster's history, in folders that nobody else can write. Raises HistoryError."""
    path = default_path(cluster)
    require_own_history(path)
    return path


def write_run(
    path: Path,
    run: PastRun,
    results: Sequence[Result],
    identities: Mapping[str, NodeIdentity] | None = None,
    measured: Iterable[Measured] = (),
    reported: Sequence[Result] = (),
) -> PastRun:
    """Add a run atomically, with its counts completed from its results. Raises HistoryError.

    `reported` is all that the run reported, if more than is kept: what was not green of that, the run was not.
    """
    merged = _merged(results)
    nodes = {result.node for result in merged if result.is_of_node and result.verdict is not Verdict.NOT_APPLICABLE}
    unevaluated = sum(not result.is_evaluated for result in results)
    green = is_green(result.verdict for result in (*merged, *reported))
    run = replace(run, is_green=green, nodes=len(nodes), unevaluated=unevaluated)
    with writing(path) as database:
        values = (storable(run.cluster), *astuple(run)[1:-1])
        added = database.execute(
            "INSERT INTO runs (cluster, began, ended, occasion, exit_code, version, is_green, nodes, unevaluated)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        number = int(added.lastrowid or 0)
        names = _Names(database, storable(run.cluster))
        before = standing(database, storable(run.cluster))
        database.executemany(
            "INSERT INTO verdicts (node, check_id, run, verdict, stands, devices, message, standing_devices)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (_row(result, number, names, before) for result in merged),
        )
        for node, identity in sorted((identities or {}).items()):
            _identify(database, names.node(node), number, identity)
        finite = (value for value in measured if math.isfinite(value.value))
        database.executemany(
            "INSERT OR REPLACE INTO measurements (node, name, run, value, unit) VALUES (?, ?, ?, ?, ?)",
            (
                (names.node(value.node), storable(value.name), number, value.value, storable(value.unit))
                for value in finite
            ),
        )
    return replace(run, number=number)


def _row(result: Result, run: int, names: _Names, before: Mapping[Pair, Standing]) -> tuple[Any, ...]:
    pair = (storable(result.check), storable(result.node))
    standing = standing_after(before.get(pair), result)
    is_fine = result.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    devices = {verdict.value: named for verdict, named in standing.devices.items()}
    return (
        names.node(result.node),
        names.check(result.check),
        run,
        result.verdict.value,
        None if standing.verdict is result.verdict else standing.verdict.value,
        None if is_fine or not result.devices else json.dumps(result.devices),
        None if is_fine else storable(result.message)[:MAX_WORDS],
        json.dumps(devices) if devices else None,
    )


def _merged(results: Iterable[Result]) -> list[Result]:
    """One result for each check and node, as bad as the worst: a site's own test may report several."""
    by_pair: dict[Pair, list[Result]] = defaultdict(list)
    for result in results:
        by_pair[storable(result.check), storable(result.node)].append(result)
    return [several[0] if len(several) == 1 else _joined(several) for several in by_pair.values()]


def _joined(results: Sequence[Result]) -> Result:
    worst = min(results, key=lambda result: result.verdict.rank)
    findings = grouped(finding for result in results for finding in result.findings)
    return with_findings(worst, findings) if findings and findings[0].verdict is worst.verdict else worst


def _identify(database: sqlite3.Connection, node: int, run: int, identity: NodeIdentity) -> None:
    """Store a node's hardware if it has changed."""
    row = database.execute(
        "SELECT instance_id, serial, gpus FROM identity WHERE node = ? ORDER BY run DESC LIMIT 1", (node,)
    ).fetchone()
    before = identity_of(row) if row else NOBODY
    now = identity.completed(before)
    if now != before:
        gpus = json.dumps([astuple(gpu) for gpu in now.gpus])
        database.execute(
            "INSERT INTO identity (node, run, instance_id, serial, gpus) VALUES (?, ?, ?, ?, ?)",
            (node, run, storable(now.instance_id), storable(now.serial), gpus),
        )


class _Names:
    """The numbers of checks and nodes in the file, where each name is stored once."""

    def __init__(self, database: sqlite3.Connection, cluster: str) -> None:
        self._database = database
        self._cluster = cluster
        self._checks = dict(database.execute("SELECT name, id FROM checks"))
        self._nodes = dict(database.execute("SELECT name, id FROM nodes WHERE cluster = ?", (cluster,)))

    def check(self, name: str) -> int:
        """The number of a check."""
        return self._number(self._checks, storable(name), "INSERT INTO checks (name) VALUES (?)")

    def node(self, name: str) -> int:
        """The number of a node."""
        return self._number(
            self._nodes, storable(name), "INSERT INTO nodes (name, cluster) VALUES (?, ?)", self._cluster
        )

    def _number(self, numbers: dict[str, int], name: str, statement: str, *more: str) -> int:
        if name not in numbers:
            numbers[name] = int(self._database.execute(statement, (name, *more)).lastrowid or 0)
        return numbers[name]
