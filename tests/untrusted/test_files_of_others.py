"""Other users' recordings, captures, runs, histories, policies and inventories: only files of theirs are opened."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from clusterproof.plugins.benchmarks.pairwise.journal import JournalError
from clusterproof.plugins.benchmarks.pairwise.journal import read as read_journal
from clusterproof.plugins.captures import collection
from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.opened import IS_LINK, NOT_A_FILE
from clusterproof.plugins.evidence.recording import read_cluster, read_control_plane
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.policy import read_policy
from clusterproof.plugins.training_run import RunError, files
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.transport import gather
from clusterproof.reports.history import HistoryError, PastRun
from clusterproof.reports.history.command import history
from clusterproof.reports.history.past import read_before
from clusterproof.reports.history.schema import APPLICATION, STEPS
from clusterproof.reports.history.store import write_run

SECRET = '{"rank": 0, "step": 1, "seconds": 1.0}\n'
STEP = '{{"rank": {rank}, "step": {step}, "seconds": 1.0}}\n'


def pipe(path: Path) -> None:
    """A pipe without a writer: opening it normally would block."""
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def elsewhere(path: Path) -> None:
    """A link out of the folder, to a file that only the caller may read."""
    secret = path.parents[2] / "secret"
    secret.write_text(SECRET)
    path.symlink_to(secret)


TRAPS = pytest.mark.parametrize("trap", [pipe, endless, elsewhere], ids=lambda trap: trap.__name__)
REFUSED = f"({IS_LINK}|{NOT_A_FILE})"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Another user's recording."""
    shutil.copytree(DEMO, tmp_path / "of others" / "recording")
    return tmp_path / "of others" / "recording"


@TRAPS
def test_a_node_whose_file_is_none_was_not_recorded(folder: Path, trap: Callable[[Path], None]) -> None:
    (folder / "nodes" / "gpu001.json").unlink()
    trap(folder / "nodes" / "gpu001.json")
    read = gather.replay(folder, read_cluster(folder))
    assert read["gpu001"].unreached is Unreached.UNRECORDED
    assert read["gpu001"].detail in (f"gpu001.json: {IS_LINK}", f"gpu001.json: {NOT_A_FILE}")
    assert not read["gpu002"].unreached


def test_a_folder_of_nodes_that_is_a_link_is_not_followed(folder: Path) -> None:
    (folder / "nodes").rename(folder.parent / "elsewhere")
    (folder / "nodes").symlink_to("../elsewhere")
    assert all(evidence.unreached for evidence in gather.replay(folder, read_cluster(folder)).values())


@pytest.mark.parametrize("text", [None, "", "{", '{"schema": 99, "node": "gpu001"}', '{"schema": 1}'])
def test_what_a_recording_lacks_is_nothing_against_its_node(folder: Path, text: str | None) -> None:
    file = min((folder / "nodes").iterdir())
    file.unlink() if text is None else file.write_text(text)
    evidence = next(iter(gather.replayed(folder, resolve(f"replay:{folder}"))))
    assert evidence.unreached is Unreached.UNRECORDED
    assert not unreached_rows()[Unreached.UNRECORDED.value].speaks_against_node


def test_a_recording_is_read_up_to_its_budget(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.evidence.recording.MAX_WHOLE_BYTES", 200_000)
    read = list(gather.replayed(folder, read_cluster(folder)))
    assert not read[0].unreached
    assert read[-1].detail == "gpu016.json: with it more than 200,000 bytes were read in all"


@TRAPS
@pytest.mark.parametrize("name", ["cluster.json", "control_plane.json", "pairwise.jsonl"])
def test_no_other_file_of_a_recording_is_opened_either(folder: Path, name: str, trap: Callable[[Path], None]) -> None:
    (folder / name).unlink(missing_ok=True)
    trap(folder / name)
    if name == "cluster.json":
        with pytest.raises(InventoryError, match=REFUSED):
            read_cluster(folder)
    elif name == "control_plane.json":
        assert read_control_plane(folder, "demo").detail.endswith((IS_LINK, NOT_A_FILE))
    else:
        with pytest.raises(JournalError, match=REFUSED):
            read_journal(folder / name)


@TRAPS
def test_what_is_no_file_of_a_runs_folder_is_left_out(folder: Path, trap: Callable[[Path], None]) -> None:
    run = folder / "run"
    run.mkdir()
    (run / "steps.jsonl").write_text(STEP.format(rank=0, step=1))
    trap(run / "more.jsonl")
    data = read_run([str(run)]).data
    assert data.files == [str(run / "steps.jsonl")]
    assert ("not followed, as they are links: more.jsonl" in data.notes) == (run / "more.jsonl").is_symlink()


def test_a_pipe_that_is_named_as_a_run_is_refused(tmp_path: Path) -> None:
    pipe(tmp_path / "steps.jsonl")
    with pytest.raises(RunError, match=NOT_A_FILE):
        read_run([str(tmp_path / "steps.jsonl")])


@TRAPS
def test_a_policy_and_an_inventory_are_files(folder: Path, trap: Callable[[Path], None]) -> None:
    trap(folder / "site.toml")
    is_link_to_text = trap is elsewhere  # named on the command line, a link is the caller's own
    for read in (read_policy, lambda path: resolve(str(path))):
        with pytest.raises(InventoryError, match="not TOML" if is_link_to_text else NOT_A_FILE):
            read(folder / "site.toml")


def test_a_history_is_a_file(tmp_path: Path) -> None:
    pipe(tmp_path / "history.sqlite")
    assert NOT_A_FILE in history(["--history", str(tmp_path / "history.sqlite")])[1]


# Packed files


def packed(path: Path, size: int, pack: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(pack(b'{"rank": 0, "step": 1, "seconds": 1.0}\n'.ljust(size, b"\n")))
    return path


@pytest.mark.long
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_file_of_a_run_is_unpacked_to_a_hundred_times_its_size(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ANY_RATIO_BYTES", 1 << 20)
    assert read_run([str(packed(tmp_path / "steps.jsonl", 1 << 20, pack))]).data.files
    with pytest.raises(RunError, match="unpacks to more than 100 times its size; expected less"):
        read_run([str(packed(tmp_path / "steps.jsonl", 4 << 20, pack))])


def test_what_is_beyond_the_budget_of_all_files_of_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.training_run.reading.MAX_BYTES", 100_000)
    for rank in range(3):
        text = "".join(STEP.format(rank=rank, step=step) for step in range(1_000))
        (tmp_path / f"{rank}.jsonl").write_text(text)
    read = read_run([str(tmp_path)]).data
    assert not any("0.jsonl" in line for line in read.refused)
    assert "2.jsonl: with it more than 100,000 bytes were read in all" in read.refused[-1]


@pytest.mark.long
def test_all_files_of_a_capture_together_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_WHOLE_BYTES", 2_000_000)
    for name in ("dmesg-1.gz", "dmesg-2.gz"):
        (tmp_path / name).write_bytes(gzip.compress(os.urandom(16).hex().encode() * 40_000))
    (first,) = read_capture(tmp_path, resolve(f"capture:{tmp_path}"), ["kernel_log"])
    assert any("with it more than 2,000,000 bytes were read in all" in line for line in first.unknown)


@pytest.mark.long
def test_a_packed_file_of_a_capture_that_was_not_read_to_its_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "dmesg.gz").write_bytes(gzip.compress(b"[    1.000000] %b\n" % (b"a" * 985) * 17_000))
    (first,) = read_capture(tmp_path, resolve(f"capture:{tmp_path}"), ["kernel_log"])
    assert any("is longer than" in line and "was read no further" in line for line in first.unknown)


# Histories that others have made


def forged(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in [*(each for step in STEPS for each in step), *statements]:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(STEPS)}")
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.commit()
    return path


RUN = "INSERT INTO runs VALUES (1, 'a', {began}, 2.0, 'preflight', 0, '0.1', 1, 1, 0)"


def test_a_history_with_a_view_or_a_trigger_is_refused(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    view = f"CREATE VIEW runs AS {endless} SELECT i AS id, 'a' AS cluster FROM n"
    trigger = "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM verdicts; END"
    for number, statements in enumerate([("DROP TABLE runs", view), (trigger,)]):
        path = forged(tmp_path / f"{number}.sqlite", *statements)
        assert "has tables that clusterproof did not make" in history(["--history", str(path)])[1]
        with pytest.raises(HistoryError, match="has tables that clusterproof did not make"):
            write_run(path, PastRun("a", 1, 2), [])


@pytest.mark.parametrize("began", ["'never'", "1e300", "-1", "x'ff'"])
def test_a_history_with_a_time_that_is_none_is_refused(tmp_path: Path, began: str) -> None:
    path = forged(tmp_path / "history.sqlite", RUN.format(began=began))
    assert "has a row that clusterproof did not write" in history(["--history", str(path)])[1]
    with pytest.raises(HistoryError, match="has a row that clusterproof did not write"):
        read_before(path, "a")


def test_a_history_whose_verdicts_are_no_words_is_refused(tmp_path: Path) -> None:
    columns = "(node, check_id, run, verdict, stands, devices, message)"
    row = f"INSERT INTO verdicts {columns} VALUES (1, 1, 1, 'fail', 'nonsense', '[[1]]', 3)"
    path = forged(
        tmp_path / "history.sqlite",
        RUN.format(began=1),
        "INSERT INTO nodes VALUES (1, 'a', 'n')",
        "INSERT INTO checks VALUES (1, 'c')",
        row,
    )
    assert "has a row that clusterproof did not write" in history(["--history", str(path)])[1]


@pytest.mark.parametrize(
    "row",
    [
        "INSERT INTO verdicts VALUES (1, 1, 'seven', 'fail', NULL, NULL, '', NULL)",
        "INSERT INTO identity VALUES (1, 'seven', '', '', '[]')",
        "INSERT INTO measurements VALUES (1, 'busbw', 'seven', 1.0, 'GB/s')",
        "INSERT INTO runs VALUES (2, x'61', 1.0, 2.0, 'preflight', 0, '0.1', 1, 1, 0)",
    ],
)
def test_a_history_with_a_number_or_a_name_that_is_none_is_refused(tmp_path: Path, row: str) -> None:
    names = ("INSERT INTO nodes VALUES (1, 'a', 'n')", "INSERT INTO checks VALUES (1, 'c')")
    path = forged(tmp_path / "history.sqlite", RUN.format(began=1), *names, row)
    assert "has a row that clusterproof did not write" in history(["--history", str(path)])[1]
