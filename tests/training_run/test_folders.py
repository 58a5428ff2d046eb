"""A run's folder: which of its files are read, which are named, and which are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.builders.unreadable import lock
from tests.training_run.logs import hugging_face

TABLE = "rank,step,optype,duration\n" + "".join(
    f"{rank},{step},forward-compute,0.{rank + 5}\n" for step in range(1, 31) for rank in range(4)
)


def read(folder: Path, text: str | bytes, name: str = "trace.csv") -> TrainingRun:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run([str(path)])


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


@pytest.mark.parametrize("name", ["r1", "r1/trace.csv"])  # a folder that cannot be listed, or only listed
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


def test_what_is_no_part_of_a_run_or_gone_since_refuses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(tmp_path, TABLE)
    for name in ("lost+found", ".Trash-0"):
        (tmp_path / name).mkdir()
        lock(monkeypatch, tmp_path / name)
    (tmp_path / "gone.tmp").write_text("")
    lstat = Path.lstat

    def gone(path: Path) -> os.stat_result:
        return lstat(path.with_name("nowhere") if path.name == "gone.tmp" else path)

    monkeypatch.setattr(Path, "lstat", gone)
    assert read_run([str(tmp_path)]).data.files


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
        (
            "empty.toml",
            r"empty.toml is empty; expected a log, trace, table, dump or samples of a training run \([^)]*\)$",
        ),
        ("program", r"program is neither text nor a form that is known; expected a log, trace, table"),
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
OTHERS = [  # a file that is not read: the message, and what is expected instead
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
    (
        "gpu001.pmon.txt",
        b"# gpu         pid   type     sm    mem   command\n    0       4242     C     95     40   python\n",
        "what nvidia-smi pmon says of processes; expected what nvidia-smi dmon says",
    ),
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
