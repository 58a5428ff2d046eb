"""Files of a run are read strictly: a wrong line is one clear error, and a file that was cut loses its tail only."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError, files, kind_of, run_data
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.builders.unreadable import lock
from tests.training_run.logs import hugging_face

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
WRONG = [  # a line that takes the place of the third, and what is said of it
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
    found = read(tmp_path, text).computed
    assert {place.rank: round(seconds[7], 3) for place, seconds in found.items()} == {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}


def test_a_packed_file_reads_the_same(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(TABLE.encode())).computed == read(tmp_path, TABLE).computed


@pytest.mark.parametrize("text", [f"\ufeff{TABLE}", TABLE.replace("\n", "\r\n"), TABLE.rstrip("\n")])
def test_what_editors_do_to_a_table_changes_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).computed == read(tmp_path, TABLE).computed


def test_columns_may_stand_in_any_order_and_have_their_units(tmp_path: Path) -> None:
    other = "duration_ms,name,iteration,global_rank,more\n" + "".join(
        f"{500 + 100 * rank},fwd,{step}.0,{rank},\n" for step in range(1, 31) for rank in range(4)
    )
    found = read(tmp_path, other).computed
    assert {place.rank: round(seconds[7], 3) for place, seconds in found.items()} == {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8}


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_a_wrong_line_is_one_error_with_file_and_line(tmp_path: Path, line: str, words: str) -> None:
    rows = TABLE.split("\n")
    rows[2] = line
    with pytest.raises(RunError) as wrong:
        read(tmp_path, "\n".join(rows))
    assert str(wrong.value).startswith(f"{tmp_path}/trace.csv:3: {words}")


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
    for data in (text.encode()[:-9], gzip.compress(text.encode())[:-20]):
        found = read(tmp_path, data).computed
        assert len(found) == 4
        assert max(len(seconds) for seconds in found.values()) >= 25


@pytest.mark.parametrize(("text", "tail"), [(TABLE, 9), (LINES, 9)], ids=["operations", "JSON lines"])
def test_a_file_that_was_cut_is_named(tmp_path: Path, text: str, tail: int) -> None:
    assert read(tmp_path, text.encode()[:-tail]).data.notes == [f"cut: {tmp_path}/trace.csv"]
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


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "no file in it; expected "),
        (("notes.md",), r"none of its files \(notes.md\) has a form that is known"),
    ],
)
def test_a_folder_without_a_run_is_refused(tmp_path: Path, files: tuple[str, ...], words: str) -> None:
    for name in files:
        (tmp_path / name).write_text("# notes\n")
    with pytest.raises(RunError, match=words):
        read_run([str(tmp_path)])


@pytest.mark.parametrize("name", ["r1", "r1/trace.csv"])  # a folder that may not be listed, or only be listed
def test_a_folder_of_a_run_that_may_not_be_read_is_refused_as_a_file_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        (tmp_path / f"r{rank}").mkdir()
        read(tmp_path / f"r{rank}", TABLE)
    lock(monkeypatch, tmp_path / name)
    with pytest.raises(
        RunError, match=re.escape(f"{tmp_path / name}: Permission denied; expected a run whose folders")
    ):
        read_run([str(tmp_path)])


def test_what_a_watch_recorded_beside_its_samples_is_not_called_unknown(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    for name in ("cluster.json", "changes.jsonl", "nodes/gpu001.json"):
        (tmp_path / name).write_text("{}\n")
    assert read_run([str(tmp_path)]).data.notes == []
    (tmp_path / "trace.csv").write_text(TABLE)
    assert read_run([str(tmp_path)]).data.notes == []


def test_a_folder_is_read_file_by_file_and_says_what_it_did_not_understand(tmp_path: Path) -> None:
    rows = TABLE.splitlines(keepends=True)
    (tmp_path / "sub").mkdir()
    for rank in range(4):
        (tmp_path / "sub" / f"{rank}.csv").write_text(rows[0] + "".join(rows[1 + rank :: 4]))
    (tmp_path / "notes.md").write_text("# notes\n")
    run = read_run([str(tmp_path)])
    assert run.computed == read(tmp_path, TABLE, "all.txt").computed
    assert run.data.notes == ["not understood: notes.md"]
    assert len(run.data.files) == 4


def test_what_a_job_printed_is_said_to_be_read_by_another_command(tmp_path: Path) -> None:
    folder = tmp_path / "job 7"
    folder.mkdir()
    (folder / "trace.csv").write_text(TABLE)
    (folder / "job.err").write_text("it died", encoding="utf-8")
    assert read_run([str(folder)]).data.notes == [
        "not understood: job.err",
        f"what its job printed is read by: clusterproof case '{folder}'",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.csv", "No such file or directory"),
        ("notes.md", "its form is not known; expected "),
        ("empty.toml", r"empty.toml is empty; expected a file that a training run wrote \([^)]*\)$"),
        ("program", r"program is neither text nor a form that is known; expected a file that [^,]*$"),
    ],
)
def test_a_file_that_is_named_and_not_understood_is_an_error(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "notes.md").write_text("# notes\n")
    (tmp_path / "empty.toml").touch()
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0\xff")
    with pytest.raises(RunError, match=words):
        read_run([str(tmp_path / name)])


RAS = (
    "NCCL version 2.28.9 compiled with CUDA 12.9\nCUDA runtime version 12090, driver version 13000\n\nJob summary\n=\n"
)
EVENT = b"\x18\0\0\0\0\0\0\0\x7f\x93\x51\x36\x09\x91\xa5\xb0\x5d\x49\x6a\xd9\x41\x1a\x0dbrain.Event:2"
STATISTICS = "Successfully retrieved statistics for job: 232. \n+-----+\n| Summary |\n"
OTHERS = [  # a file that is not read: what is said of it, and what is expected in its place
    (
        "et.json",
        b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1}',
        "an execution trace of PyTorch, .*; expected the profiler's",
    ),
    ("rank0.nsys-rep", b"\1\2\3", "a report of Nsight Systems, .*; expected a trace of PyTorch's profiler"),
    ("train.log", "step: 1  loss: 2".encode("utf-16"), "text in UTF-16, .*; expected UTF-8"),
    ("rank0.sqlite", b"SQLite format 3\0\x10", "an SQLite database, .*; expected a trace of PyTorch's profiler"),
    ("ras.txt", RAS.encode(), "the answer of NCCL's RAS, .*; expected dumps of PyTorch's Flight Recorder"),
    (
        "ras.json",
        b'{\n  "nccl_version": "2.29.1",\n  "communicators": []}',
        "the answer of NCCL's RAS, .*; expected dumps",
    ),
    ("stats.txt", STATISTICS.encode(), "what DCGM has counted of a job, .*; expected samples over time"),
    ("run-x1.wandb", b":W&B\xe1\xbe\0", "a file of Weights & Biases; expected what the job printed"),
    ("wandb-summary.json", b'{"_runtime": 9}', "a file of Weights & Biases; expected what the job printed"),
    ("events.out.tfevents.1763600000.gpu001.7.0", EVENT, "events of TensorBoard, .*; expected the trainer's log"),
]


@pytest.mark.parametrize(("name", "data", "words"), OTHERS, ids=[name for name, *_ in OTHERS])
def test_a_file_that_is_not_read_is_said_in_one_line_with_what_to_give(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(RunError, match=rf"^{re.escape(str(path))}: {words}[^\n]*$"):
        read_run([str(path)])
    with pytest.raises(RunError, match=rf"^{re.escape(str(path.parent))}: {re.escape(name)} is {words}[^\n]*$"):
        read_run([str(path.parent)])
    (path.parent / "trace.csv").write_text(TABLE)
    (note,) = read_run([str(path.parent)]).data.notes
    assert re.match(rf"not read: {re.escape(name)} is {words}", note)


def test_what_a_job_printed_into_a_folder_of_others_is_read(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "run-x1.wandb").write_bytes(b":W&B\xe1\xbe\0")
    for name in ("wandb-summary.json", "wandb-metadata.json"):
        (tmp_path / "files" / name).write_text("{}")
    (tmp_path / "files" / "output.log").write_text(hugging_face(0.1) * 3, encoding="utf-8")
    run = read_run([str(tmp_path)])
    assert run.data.losses.losses[0, False].lines == 1
    assert len(run.data.notes) == 1


@pytest.mark.long
def test_memory_stays_flat_however_often_operations_repeat(tmp_path: Path) -> None:
    def peak(times: int) -> int:
        rows = TABLE.split("\n", 1)
        (tmp_path / "long.csv").write_text(rows[0] + "\n" + rows[1] * times)
        tracemalloc.start()
        read_run([str(tmp_path / "long.csv")])
        data = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return data

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
