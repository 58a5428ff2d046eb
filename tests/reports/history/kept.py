"""Runs that a test adds to a history, and files that cannot hold a history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import INTERRUPTED, Measured, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import Gpu, NodeIdentity, Past, PastRun, schema
from clusterproof.reports.history.past import read_past
from clusterproof.reports.history.store import write_run

ECC = "gpu.no_uncorrected_ecc"
PASS, FAIL, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
DAY_S = 86_400.0


def result(node: str, verdict: Verdict, check: str = ECC, gpus: Iterable[int] = ()) -> Result:
    return Result(check, node, verdict, "Uncorrected ECC errors", devices=tuple(f"GPU {index}" for index in gpus))


def unevaluated(node: str) -> Result:
    return Result(ECC, node, Verdict.INCOMPLETE, "Uncorrected ECC errors", cause=INTERRUPTED)


def machine(instance: str, *uuids: str) -> NodeIdentity:
    return NodeIdentity(
        instance, f"board of {instance}", tuple(Gpu(index, uuid, "1650") for index, uuid in enumerate(uuids))
    )


def add(
    path: Path,
    *results: Result,
    identities: dict[str, NodeIdentity] | None = None,
    measured: Iterable[Measured] = (),
    cluster: str = "small",
) -> PastRun:
    runs = len(read_past(path, cluster, 1000).runs) if path.exists() else 0
    run = PastRun(cluster, 1_772_000_000 + runs * DAY_S, 1_772_000_060 + runs * DAY_S)
    return write_run(path, run, results, identities, measured)


def past(path: Path) -> Past:
    return read_past(path, "small", 100)


# The file


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(statement).fetchall()


def newer(path: Path) -> None:
    add(path, result("gpu001", FAIL))
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {schema.SCHEMA + 1}")


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (id)")
        database.commit()


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to look like one\n" * 100)


def torn(path: Path) -> None:
    add(path, *(result(f"gpu{number:03d}", FAIL) for number in range(500)))
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))


def folder(path: Path) -> None:
    path.mkdir()


NAMES = ("breaks", "words")
DAMAGED = (
    (newer, "from a newer clusterproof"),
    (foreign, "of another program"),
    (garbage, "not a database; move it away"),
    (torn, "malformed; move it away"),
)
BROKEN = pytest.mark.parametrize(NAMES, [*DAMAGED, (folder, "Is a directory")])
