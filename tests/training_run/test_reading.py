"""A run's files are read strictly: a wrong line is one clear error, and a truncated file only loses its tail."""

from __future__ import annotations

import errno
import gzip
import os
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run import RunError, files, kind_of, reading, run_data
from clusterproof.plugins.training_run.files import RunFile
from clusterproof.plugins.training_run.not_recorded import how_it_ended
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import CHECKS, result_of

TABLE = "rank,step,optype,duration\n" + "".join(
    f"{rank},{step},forward-compute,0.{rank + 5}\n" for step in range(1, 31) for rank in range(4)
)
STEPS = "rank,step,start,dur,forward_ms,data_ms,loss\n" + "".join(
    f"{rank},{step},{step}.5,1.0,{500 + 100 * rank},100,2.{step}\n" for step in range(1, 31) for rank in range(4)
)
LINES = "".join(
    f'{{"rank": {rank}, "step": {step}, "start": {step}.5, "dur": 1.0, "stages": {{"forward": 0.{rank + 5}}}}}\n'
    for step in range(1, 31)
    for rank in range(4)
)
ROW = "3,30,forward-compute,0.8\n"
WRONG = [  # a replacement for the third line, and the error
    ("0,one,forward-compute,0.5", "step is 'one'; expected a whole number of 0 or more"),
    ("0,1,forward-compute", "3 values; expected 4, as the first line names them"),
    ("-1,1,forward-compute,0.5", "rank is '-1'; expected a whole number of 0 or more"),
    ("0,99999999999999999999,x,0.5", "step is '99999999999999999999'; expected a whole number"),
    ("0,1,,0.5", "operation is ''; expected a name of at most 200 characters"),
    ("0,1,\x1b[2J,0.5", "operation is '\\x1b[2J'; expected a name"),
]


def read(folder: Path, text: str | bytes, name: str = "trace.csv") -> TrainingRun:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run([str(path)])


@pytest.mark.parametrize("text", [TABLE, STEPS, LINES], ids=["operations", "steps", "JSON lines"])
def test_every_form_gives_the_compute_of_each_rank(tmp_path: Path, text: str) -> None:
    computed = read(tmp_path, text).computed
    in_step = {position.rank: round(seconds[7], 3) for position, seconds in computed.items()}
    assert in_step == {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}


def test_a_packed_file_reads_the_same(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(TABLE.encode())).computed == read(tmp_path, TABLE).computed


@pytest.mark.parametrize("text", [f"\ufeff{TABLE}", TABLE.replace("\n", "\r\n"), TABLE.rstrip("\n")])
def test_what_editors_do_to_a_table_changes_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).computed == read(tmp_path, TABLE).computed


def test_columns_may_stand_in_any_order_and_have_their_units(tmp_path: Path) -> None:
    other = "duration_ms,name,iteration,global_rank,more\n" + "".join(
        f"{500 + 100 * rank},fwd,{step}.0,{rank},\n" for step in range(1, 31) for rank in range(4)
    )
    computed = read(tmp_path, other).computed
    in_step = {position.rank: round(seconds[7], 3) for position, seconds in computed.items()}
    assert in_step == {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_a_wrong_line_is_one_error_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    rows = TABLE.split("\n")
    rows[2] = line
    with pytest.raises(RunError) as wrong:
        read(tmp_path, "\n".join(rows))
    assert str(wrong.value).startswith(f"{tmp_path}/trace.csv:3: {words}")


def test_a_wrong_line_of_one_file_leaves_what_is_before_it_and_all_other_files(tmp_path: Path) -> None:
    rows = TABLE.split("\n")
    (tmp_path / "other.csv").write_text("rank,step,optype,duration\n" + "".join(
        f"4,{step},forward-compute,0.9\n" for step in range(1, 31)
    ))  # fmt: skip
    (tmp_path / "trace.csv").write_text("\n".join([*rows[:9], WRONG[0][0], *rows[9:]]))
    run = read_run([str(tmp_path)])
    assert {position.rank: sorted(steps) for position, steps in run.computed.items() if position.rank in (0, 4)} == {
        0: [1, 2],
        4: [*range(1, 31)],
    }
    are_incomplete(
        run, f"{tmp_path}/trace.csv:10: step is 'one'; expected a whole number of 0 or more; nothing behind it"
    )


def are_incomplete(run: TrainingRun, message: str) -> None:
    """Each check says so, or has found something nevertheless."""
    results = [result_of(name, run) for name in CHECKS]
    assert {result.verdict for result in results} <= {Verdict.INCOMPLETE, Verdict.FAIL}
    assert all(any(finding.message.startswith(message) for finding in result.findings) for result in results)


@pytest.mark.parametrize(
    ("limits", "data", "words"),
    [
        ({"MAX_LINE": 1000}, f"{TABLE}{'3' * 2000}\n".encode(), ":122: 2,000 bytes; expected lines of less than 1,000"),
        (
            {"MAX_RATIO": 2, "ANY_RATIO_BYTES": 1 << 17},
            gzip.compress(f"{TABLE}{ROW * 9000}".encode()),
            ": unpacks to more",
        ),
    ],
)
def test_a_file_of_which_a_limit_leaves_a_part_unread_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Mapping[str, int], data: bytes, words: str
) -> None:
    (tmp_path / "other.csv").write_text(TABLE)
    (tmp_path / "trace.csv").write_bytes(data)
    for name, limit in limits.items():
        monkeypatch.setattr(files, name, limit)
    are_incomplete(read_run([str(tmp_path)]), f"{tmp_path}/trace.csv{words}")


def test_a_packed_file_that_is_damaged_from_its_beginning_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(TABLE)
    damaged = bytearray(gzip.compress(TABLE.encode()))
    damaged[30:40] = bytes(10)
    (tmp_path / "trace.csv.gz").write_bytes(damaged)
    are_incomplete(read_run([str(tmp_path)]), f"{tmp_path}/trace.csv.gz: Error -3 while decompressing data")


def test_a_log_that_is_rotated_away_behind_its_last_line_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text(TABLE)

    def gone(file: RunFile) -> str:
        file.path.unlink()
        return how_it_ended(file)

    monkeypatch.setattr(reading, "how_it_ended", gone)
    assert read_run([str(tmp_path)]).data.files


def test_a_log_that_a_file_server_no_longer_has_behind_its_last_line_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text(TABLE)

    def stale(_: RunFile) -> str:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(reading, "how_it_ended", stale)
    assert read_run([str(tmp_path)]).data.files


@pytest.mark.parametrize("value", ["-0.5", "nan"])
def test_an_operation_that_lasts_no_time_costs_itself_only(tmp_path: Path, value: str) -> None:
    rows = TABLE.split("\n")
    rows[2] = f"0,1,forward-compute,{value}"
    assert read(tmp_path, "\n".join(rows)).data.notes[0].startswith("1 duration left out")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "'{' is not JSON; expected"),
        ("[" * 100_000, "is not JSON; expected"),
        ('{"rank": 1}', "is not a step; expected"),
        ('{"step": 1, "dur": true}', "dur is True; expected a number"),
        ('{"step": 1, "dur": 1, "stages": [1]}', "stages is '[1]'; expected seconds by name"),
        ("7", "'7' is not a step; expected"),
    ],
)
def test_so_is_a_wrong_line_of_json(tmp_path: Path, line: str, words: str) -> None:
    rows = LINES.split("\n")
    rows[2] = line
    with pytest.raises(RunError) as wrong:
        read(tmp_path, "\n".join(rows), "steps.jsonl")
    assert str(wrong.value).startswith(f"{tmp_path}/steps.jsonl:3: ")
    assert words in str(wrong.value)


@pytest.mark.parametrize("text", [TABLE, STEPS, LINES], ids=["operations", "steps", "JSON lines"])
def test_a_file_that_was_cut_loses_its_tail_only(tmp_path: Path, text: str) -> None:
    for content in (text.encode()[:-9], gzip.compress(text.encode())[:-20]):
        computed = read(tmp_path, content).computed
        assert len(computed) == 4
        assert max(len(seconds) for seconds in computed.values()) >= 25


@pytest.mark.parametrize(("text", "tail"), [(TABLE, 9), (LINES, 9)], ids=["operations", "JSON lines"])
def test_a_file_that_was_cut_is_named(tmp_path: Path, text: str, tail: int) -> None:
    run = read(tmp_path, text.encode()[:-tail])
    assert (run.data.notes, run.unread) == ([f"cut: {tmp_path}/trace.csv"], ""), "its job may still write it"
    assert read(tmp_path, text.rstrip("\n")).data.notes == []


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"trace\.csv:2: byte 0 is not UTF-8; expected text"):
        read(tmp_path, TABLE.encode().replace(b"0,1,", b"\xff,1,", 1))


def test_a_line_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1000)
    with pytest.raises(RunError, match=r"trace\.csv:2: 2,008 bytes; expected lines of less than 1,000 bytes"):
        read(tmp_path, TABLE.replace("forward-compute", "f" * 2000, 1))


def test_more_than_there_is_room_for_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "MAX_CELLS", 100)
    with pytest.raises(RunError, match="more than 100 ranks × steps × operations; expected fewer"):
        read(tmp_path, TABLE)


def test_files_of_two_runs_are_not_one_run(tmp_path: Path) -> None:
    for name, stage in (("a.csv", 2), ("b.csv", 1)):
        (tmp_path / name).write_text(f"rank,stage,step,optype,duration\n3,{stage},1,fwd,0.5\n")
    with pytest.raises(RunError, match=r"rank 3 is of stage 1.*, and of stage 2.*before; expected files of one run"):
        read_run([str(tmp_path)])


@pytest.mark.long
def test_memory_stays_flat_however_often_operations_repeat(tmp_path: Path) -> None:
    def peak(times: int) -> int:
        rows = TABLE.split("\n", 1)
        (tmp_path / "long.csv").write_text(rows[0] + "\n" + rows[1] * times)
        tracemalloc.start()
        read_run([str(tmp_path / "long.csv")])
        used_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used_bytes

    assert peak(1000) < peak(200) + 100_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("forward-compute", "compute"),
        ("backward-send", "communication"),
        ("forward-recv", "communication"),
        ("grads-reduce-scatter", "communication"),
        ("params_all_gather", "communication"),
        ("ncclDevKernel_AllReduce", "communication"),
        ("all-to-all", "communication"),
        ("BackwardPass", "compute"),
        ("bwd", "compute"),
        ("DataLoader", "data"),
        ("data_wait", "data"),
        ("wait_for_data", "data"),
        ("dataloader_wait", "data"),
        ("data_loading_wait", "data"),
        ("WaitForBatch", "data"),
        ("wait_data_parallel", "communication"),
        ("DataParallel.all_reduce", "communication"),
        ("save_checkpoint", "checkpoint"),
        ("optimizer-clip-main-grad", "other"),
        ("gc", "other"),
        ("W", "unknown"),
        ("attention", "unknown"),
    ],
)
def test_the_name_of_an_operation_says_what_it_is(name: str, kind: str) -> None:
    assert kind_of(name) == kind
