"""The file of a history: its schema, how an older one is made new, and how it is opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from clusterproof.reports.history.model import HistoryError

APPLICATION = 0x436C7066  # "Clpf": whose file it is
TIMEOUT_S = 30.0  # for runs that write at the same time; each takes a fraction of a second
LOCAL = frozenset(["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"])
_MOUNTS = Path("/proc/self/mountinfo")

# Step n makes schema n out of schema n - 1. A step that was ever released is never changed.
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
)
SCHEMA = len(STEPS)


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction on the file, which is made and made new where it must be: all of it is kept, or nothing.

    Raises HistoryError.
    """
    with _in_words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=TIMEOUT_S, isolation_level=None)) as database:
            _is_ours(database, path)
            with suppress(sqlite3.OperationalError):  # another run is doing the same, or the file system cannot
                database.execute(f"PRAGMA journal_mode = {'WAL' if is_local(path) else 'DELETE'}")
            with _transaction(database):
                _renew(database, path)
                yield database


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as it is at this moment, in today's schema; nothing is written. Raises HistoryError."""
    with _in_words(path):
        if not path.exists():
            raise HistoryError(f"{path} is not there; expected a file that --history wrote")
        with closing(_opened_for_reading(path)) as database:
            if _is_ours(database, path) == SCHEMA:
                database.execute("BEGIN")
                yield database
                return
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
                database.backup(copy)
                with _transaction(copy):
                    _renew(copy, path)
                yield copy


def is_local(path: Path) -> bool:
    """Whether a file is on a disk of this machine: only there may several processes share a write-ahead log."""
    folder = str(path.parent.resolve())
    best, kind = "", ""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        place, _, rest = line.partition(" - ")
        point = place.split(" ")[4].replace("\\040", " ")
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
        # In a folder that may not be written a write-ahead log's index cannot be made; without a log none is needed.
        if not isinstance(problem, sqlite3.OperationalError) or path.with_name(f"{path.name}-wal").exists():
            raise
        database = sqlite3.connect(f"{where}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return database


def _is_ours(database: sqlite3.Connection, path: Path) -> int:
    """The schema of the file; 0 where it is empty."""
    version, owner, tables = database.execute(_WHOSE).fetchone()
    if owner != APPLICATION and (version or tables):
        raise HistoryError(f"{path} is a database of another program; expected a file that --history wrote")
    if version > SCHEMA:
        raise HistoryError(
            f"{path} has schema {version}, from a newer clusterproof; this one knows {SCHEMA}: install the newer one"
        )
    return int(version)


_WHOSE = """SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id),
    count(*) FROM sqlite_master"""  # in one: another run may begin the file at any moment


def _renew(database: sqlite3.Connection, path: Path) -> None:
    """Make an older schema, or an empty file, today's; inside a transaction, as another run may be at it."""
    version = _is_ours(database, path)
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
    except BaseException:  # Ctrl-C too leaves the history as it was
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise HistoryError(f"{path}: {problem.strerror or problem}") from None
    except sqlite3.Error as problem:
        raise HistoryError(f"{path}: {problem}{_ADVICE.get(str(problem), '')}") from None


_ADVICE = {
    "file is not a database": "; move it away, and the next run begins a new one",
    "database disk image is malformed": "; move it away, and the next run begins a new one",
    "database is locked": f": other runs held it for {TIMEOUT_S:g} s, or the file system knows no locks",
    "database or disk is full": "; make room on its disk",
    "attempt to write a readonly database": "; name a file that this user may write",
    "unable to open database file": "; name a file in a folder that this user may write",
}
