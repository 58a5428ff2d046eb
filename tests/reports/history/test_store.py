"""A history's file: it is beside the reports, and no damage to it costs more than the history."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Measured
from clusterproof.reports.history import HistoryError, PastRun, schema
from clusterproof.reports.history.past import read_before
from clusterproof.reports.history.store import default_path, write_run
from clusterproof.reports.history.trends import trends
from clusterproof.reports.history.words import page
from tests.builders.wheel import linked_in
from tests.reports.history.kept import BROKEN, ECC, FAIL, PASS, add, machine, past, result, rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_clusters_in_one_file_are_kept_apart(file: Path) -> None:
    add(file, result("gpu001", FAIL))
    add(file, result("gpu001", PASS), cluster="large")
    assert len(past(file).runs) == 1
    assert read_before(file, "large")[1] == {}


def test_hostile_names_are_kept_as_text(file: Path) -> None:
    names = ["'; DROP TABLE runs; --", "\ud800", "\x00\x1b[2J", "ü" * 5_000]
    add(
        file,
        *(result(name, FAIL, check=f"{name}.x") for name in names),
        identities={names[1]: machine("\udfff", "\ud800")},
    )
    add(file, *(result(name, FAIL, check=f"{name}.x") for name in names))
    odd = PastRun("small", 1_773_000_000, 1_773_000_060, occasion=names[2])
    write_run(file, odd, [], measured=[Measured(names[2], "gpu001", 480, names[2])])
    stored = past(file)
    assert len(stored.tracks) == len(names)
    assert all(line.isprintable() for line in page(stored))


def test_an_older_schema_is_made_new_and_keeps_its_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older(file)
    before = past(file)  # read unchanged, from a copy
    assert rows(file, "PRAGMA user_version") == [(1,)]
    assert (len(before.runs), before.tracks[ECC, "gpu001"][0].verdict) == (1, FAIL)
    add(file, result("gpu001", PASS), measured=[Measured("busbw", "gpu001", 480, "GB/s")])
    assert rows(file, "PRAGMA user_version") == [(schema.SCHEMA,)]
    assert [entry.verdict for entry in past(file).tracks[ECC, "gpu001"]] == [FAIL, PASS]
    assert len(trends(past(file))) == 1


def older(path: Path) -> None:
    """A file with a run in schema 1, as it was released."""
    with closing(sqlite3.connect(path)) as database:
        for statement in schema.STEPS[0]:
            database.execute(statement)
        database.execute("PRAGMA user_version = 1")
        database.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        database.execute("INSERT INTO runs VALUES (7, 'small', 1.0, 2.0, 'preflight', 1, '0.1', 0, 1)")
        database.execute("INSERT INTO nodes VALUES (1, 'small', 'gpu001')")
        database.execute("INSERT INTO checks VALUES (1, ?)", (ECC,))
        database.execute("INSERT INTO verdicts VALUES (1, 1, 7, 'fail', NULL, '[\"GPU 3\"]', 'fourteen')")
        database.commit()


@BROKEN
def test_a_file_that_cannot_be_used_is_left_as_it_is_and_named_in_one_line(
    file: Path, breaks: object, words: str
) -> None:
    breaks(file)  # type: ignore[operator]
    before = file.read_bytes() if file.is_file() else b""
    with pytest.raises(HistoryError, match=words) as error:
        write_run(file, PastRun("small", 1, 2), [result("gpu001", FAIL)])
    assert "\n" not in str(error.value)
    assert (file.read_bytes() if file.is_file() else b"") == before


@pytest.mark.long
def test_a_full_disk_costs_the_new_run_and_none_that_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(file, result("gpu001", FAIL))
    connect = sqlite3.connect

    def small(*arguments: object, **more: object) -> sqlite3.Connection:
        database = connect(*arguments, **more)  # type: ignore[call-overload]
        database.execute("PRAGMA max_page_count = 16")  # the effect of a full disk on SQLite
        return database

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(HistoryError, match="full; make room"):
        write_run(file, PastRun("small", 1, 2), [result(f"gpu{number:05d}", FAIL) for number in range(20_000)])
    monkeypatch.undo()
    assert [run.number for run in past(file).runs] == [1]
    assert rows(file, "PRAGMA integrity_check") == [("ok",)]


WRITER = """
import sys
from pathlib import Path
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import default_path
from clusterproof.reports.history.store import write_run
for number in range(5):
    results = [Result("a.b", f"gpu{index:03d}", Verdict.FAIL) for index in range(200)]
    write_run(Path(sys.argv[1]), PastRun("small", number, number + 1), results)
"""


@pytest.mark.long
@pytest.mark.parametrize("local", [True, False], ids=["write-ahead log", "as on a file server"])
def test_runs_that_end_at_the_same_time_are_all_kept(file: Path, tmp_path: Path, local: bool) -> None:
    linked_in(tmp_path)
    elsewhere = "" if local else "schema.LOCAL = frozenset()\n"
    with_timeout = f"from clusterproof.reports.history import schema\nschema.TIMEOUT_S = 600.0\n{elsewhere}"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", with_timeout + WRITER, str(file)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [process.communicate()[1] for process in started] == [""] * 4
    assert len(past(file).runs) == 20
    assert {len(track) for track in past(file).tracks.values()} == {20}
    assert rows(file, "PRAGMA journal_mode") == [("wal" if local else "delete",)]


def test_a_file_that_another_run_begins_while_one_looks_whose_it_is_is_ours(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    statements: list[str] = []

    def begun_meanwhile(statement: str) -> None:
        if "sqlite_master" in statement and not statements:
            statements.append(statement)
            monkeypatch.setattr(sqlite3, "connect", connect)
            add(file, result("gpu001", FAIL))

    def connected(*arguments: object, **named: object) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **named)  # type: ignore[call-overload]
        database.execute("PRAGMA journal_mode = WAL")
        database.set_trace_callback(begun_meanwhile)
        return database

    monkeypatch.setattr(sqlite3, "connect", connected)
    add(file, result("gpu001", PASS))
    assert len(past(file).runs) == 2


@pytest.mark.long
def test_a_run_that_is_killed_while_it_writes_leaves_no_half(file: Path, tmp_path: Path) -> None:
    add(file, result("gpu001", FAIL))
    linked_in(tmp_path)
    dies = "import os\nfrom clusterproof.reports.history import store\nstore._identify = lambda *_: os._exit(9)\n"
    tail = (
        "from clusterproof.reports.history import NodeIdentity, PastRun\n"
        "from clusterproof.plugins.core.result import Result\nfrom clusterproof.plugins.core.verdict import Verdict\n"
        "from pathlib import Path\nimport sys\n"
        "results = [Result('a.b', 'x', Verdict.FAIL)]\n"
        "store.write_run(Path(sys.argv[1]), PastRun('small', 1, 2), results, {'x': NodeIdentity('i-1')})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", dies + tail, str(file)], env=environment).returncode == 9
    add(file, result("gpu001", PASS))
    assert [run.number for run in past(file).runs] == [1, 2]


def test_the_default_path_stays_beside_the_reports(tmp_path: Path) -> None:
    for cluster in ("hp", "../../etc", "ssh:gpu[001-016]", "", ".", "..", "ü" * 500, "\ud800"):
        path = default_path(cluster, tmp_path)
        assert path.parent.parent == tmp_path
        assert path.resolve().parent.parent == tmp_path.resolve()
        path.parent.mkdir(exist_ok=True)
