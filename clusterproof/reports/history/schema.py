"""The history file: its schema, migrations, and how it is opened."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from clusterproof.plugins.core.opened import opened
from clusterproof.reports.history import HistoryError

APPLICATION = 0x436C7066  # "Clpf": whose file it is
TIMEOUT_S = 30.0  # for concurrent writers; each takes a fraction of a second
MAX_TEXT_BYTES = 1 << 20  # of one value
STEPS_AT_ONCE = 100_000  # of SQLite's virtual machine, between two checks of the total
STEPS_OF_ANY = 500  # as many times that are always allowed
STEPS_OF_WRITING = 20_000  # … of a run over 10,000 nodes
STEPS_BY_BYTE = 50  # a row has about 50 bytes, and takes about 100
LOCAL = frozenset(["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"])
_MOUNTS = Path("/proc/self/mountinfo")

# Step n migrates schema n - 1 to schema n. A released step is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
            occasion TEXT NOT NULL, exit_code INTEGER NOT NULL, version TEXT NOT NULL, is_green INTEGER NOT NULL,
            nodes INTEGER NOT NULL)""",
        "CREATE INDEX runs_of_cluster ON runs (cluster, id)",
        "CREATE TABLE nodes (id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, name TEXT NOT NULL)",
        "CREATE UNIQUE INDEX node_of_cluster ON nodes (cluster, name)",
        "CREATE TABLE checks (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
        """CREATE TABLE verdicts (
            node INTEGER NOT NULL REFERENCES nodes, check_id INTEGER NOT NULL REFERENCES checks,
            run INTEGER NOT NULL REFERENCES runs, verdict TEXT NOT NULL, stands TEXT, devices TEXT, message TEXT,
            PRIMARY KEY (node, check_id, run)) WITHOUT ROWID""",
        "CREATE INDEX not_fine ON verdicts (run) WHERE verdict IN ('fail', 'concern', 'incomplete')",
        """CREATE TABLE identity (
            node INTEGER NOT NULL REFERENCES nodes, run INTEGER NOT NULL REFERENCES runs, instance_id TEXT NOT NULL,
            serial TEXT NOT NULL, gpus TEXT NOT NULL, PRIMARY KEY (node, run)) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE measurements (
            node INTEGER NOT NULL REFERENCES nodes, name TEXT NOT NULL, run INTEGER NOT NULL REFERENCES runs,
            value REAL NOT NULL, unit TEXT NOT NULL, PRIMARY KEY (node, name, run)) WITHOUT ROWID""",
    ),
    ("ALTER TABLE runs ADD COLUMN unevaluated INTEGER NOT NULL DEFAULT 0",),
    ("ALTER TABLE verdicts ADD COLUMN standing_devices TEXT",),
)
SCHEMA = len(STEPS)


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction on the file, which is created or migrated if needed: all of it is kept, or nothing.

    Raises HistoryError.
    """
    with _in_words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            if os.lstat(path).st_uid not in (0, os.geteuid()) and path.is_symlink():
                raise HistoryError(f"{path} is another user's link; expected a file, or a link of your own")
            opened(path).close()
        with closing(sqlite3.connect(path, timeout=TIMEOUT_S, isolation_level=None)) as database:
            _guard(database, path, STEPS_OF_WRITING)
            _own_schema(database, path)
            with suppress(sqlite3.OperationalError):  # another run does the same, or the file system cannot
                database.execute(f"PRAGMA journal_mode = {'WAL' if is_local(path) else 'DELETE'}")
            with _transaction(database):
                _renew(database, path)
                yield database


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A consistent view of the file in today's schema; nothing is written. Raises HistoryError."""
    with _in_words(path):
        if not path.exists():
            raise HistoryError(f"{path} is not there; expected a file that --history wrote")
        opened(path).close()
        with closing(_opened_for_reading(path)) as database:
            _guard(database, path)
            if _own_schema(database, path) == SCHEMA:
                database.execute("BEGIN")
                yield database
                return
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
                database.backup(copy)
                with _transaction(copy):
                    _renew(copy, path)
                yield copy


def is_local(path: Path) -> bool:
    """Whether a file is on a local disk: only there may several processes share a write-ahead log."""
    folder = str(path.parent.resolve())
    best, kind = "", ""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        mount, _, rest = line.partition(" - ")
        point = mount.split(" ")[4].replace("\\040", " ")
        if len(point) >= len(best) and f"{folder}/".startswith(point.rstrip("/") + "/"):
            best, kind = point, rest.split(" ")[0]
    return kind in LOCAL


def _opened_for_reading(path: Path) -> sqlite3.Connection:
    where = path.resolve().as_uri()
    database = sqlite3.connect(f"{where}?mode=ro", uri=True, timeout=TIMEOUT_S, isolation_level=None)
    try:
        database.execute("PRAGMA user_version")
    except sqlite3.Error as problem:
        database.close()
        # In a read-only folder a write-ahead log's index cannot be created; without a log none is needed.
        if not isinstance(problem, sqlite3.OperationalError) or path.with_name(f"{path.name}-wal").exists():
            raise
        database = sqlite3.connect(f"{where}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return database


def _own_schema(database: sqlite3.Connection, path: Path) -> int:
    """The schema of the file; 0 if it is empty."""
    (version, owner), made = _contents(database)
    if owner != APPLICATION and (version or made):
        raise HistoryError(f"{path} is a database of another program; expected a file that --history wrote")
    if version > SCHEMA:
        raise HistoryError(
            f"{path} has schema {version}, from a newer clusterproof; this one knows {SCHEMA}: install the newer one"
        )
    if version and made != _made_by_steps(version):
        raise HistoryError(f"{path} has tables that clusterproof did not make; move it away, and a new one is begun")
    return int(version)


def _guard(database: sqlite3.Connection, path: Path, free: int = STEPS_OF_ANY) -> None:
    """Prevent an untrusted file from running anything, or taking more time than its size justifies."""
    database.execute("PRAGMA trusted_schema = OFF")
    if sys.version_info >= (3, 11):
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    size = path.stat().st_size if path.exists() else 0
    left = iter(range(free + size * STEPS_BY_BYTE // STEPS_AT_ONCE))
    database.set_progress_handler(lambda: next(left, None) is None, STEPS_AT_ONCE)


def _contents(database: sqlite3.Connection) -> tuple[tuple[int, int], frozenset[tuple[str, ...]]]:
    """The version and owner of a file, and its contents as SQL statements."""
    rows = database.execute(_WHOSE).fetchall()
    return rows[0][:2], frozenset(row[2:] for row in rows if row[3] and not row[3].startswith("sqlite_"))


@lru_cache
def _made_by_steps(version: int) -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for step in STEPS[:version]:
            for statement in step:
                database.execute(statement)
        return _contents(database)[1]


_WHOSE = """SELECT user_version, application_id, type, name, tbl_name, sql
    FROM pragma_user_version, pragma_application_id LEFT JOIN sqlite_master"""  # in one: another run may begin the file


def _renew(database: sqlite3.Connection, path: Path) -> None:
    """Migrate an older schema, or an empty file; inside a transaction, because another run may be doing it."""
    version = _own_schema(database, path)
    for number, step in enumerate(STEPS[version:], start=version + 1):
        for statement in step:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {number}")
    if version == 0:
        database.execute(f"PRAGMA application_id = {APPLICATION}")


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # even after Ctrl-C, the history is unchanged
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise HistoryError(
            f"{path}: {problem.strerror or problem}", is_of_full_disk=problem.errno in _NO_ROOM
        ) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as problem:
        raise HistoryError(f"{path} has a row that clusterproof did not write: {problem}; move it away") from None
    except sqlite3.Error as problem:
        is_of_full_disk = str(problem) == _FULL
        raise HistoryError(
            f"{path}: {problem}{_ADVICE.get(str(problem), '')}", is_of_full_disk=is_of_full_disk
        ) from None


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL = "database or disk is full"
_ADVICE = {
    "file is not a database": "; move it away, and the next run begins a new one",
    "database disk image is malformed": "; move it away, and the next run begins a new one",
    "database is locked": f": other runs held it for {TIMEOUT_S:g} s, or the file system does not support locks",
    _FULL: "; make room on its disk",
    "attempt to write a readonly database": "; name a file that this user may write",
    "interrupted": ": it takes more steps than a file of its size may; move it away, and the next run begins a new one",
    "unable to open database file": "; name a file in a folder that this user may write",
}
