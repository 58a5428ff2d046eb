"""Files that no history can be kept in, each with what is said of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from clusterproof.reports.history import schema
from tests.reports.history.kept import FAIL, add, result


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
