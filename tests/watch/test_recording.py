"""A watch's recording: samples of each connection, gaps between them, changes; a full disk costs one message."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import zstandard

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.files import RunFile
from clusterproof.plugins.training_run.formats.watch_samples import read_samples
from clusterproof.plugins.training_run.sample_columns import HEADER, SUFFIX, SampledGpu
from clusterproof.plugins.training_run.samples import GPU, MEMORY, Sample
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch import recording as module
from clusterproof.plugins.watch.changes_file import CHANGES_FILE
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.updates import Hello, LogLine, LogUpdate, Tick
from tests.watch.receiving import change
from tests.watch.small_disk import no_room

NODE = "gpu001"
GPUS = (SampledGpu("GPU-1", 80_000.0, 700.0), SampledGpu("GPU-2", 80_000.0, 700.0))
VALUES = (90.0, None, None, None, None, 40_000.0, 1_700.0, 600.0, 60.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def tick(up: float, gpus: tuple[SampledGpu, ...] | None = None, count: int = 2) -> Tick:
    return Tick(1.7e9 + up, up, (VALUES,) * count, (1.0,) * 15, gpus)


class Kept:
    """A recording, and its messages about itself."""

    def __init__(self, folder: Path) -> None:
        self.own: list[str] = []
        self.recording = Recording(folder, 10.0, self.own.append)
        self.path = folder / f"{NODE}{SUFFIX}"
        self.now = 0.0

    def take(self, what: Any, why: str = "") -> None:
        self.now += 10.0
        self.recording.record(NODE, what, 1.7e9 + self.now, self.now, why)

    @property
    def lines(self) -> list[Any]:
        self.recording.close(self.now)
        text = zstandard.ZstdDecompressor().stream_reader(self.path.read_bytes(), read_across_frames=True).read()
        return [json.loads(line) for line in text.splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [
            "sample" if isinstance(line, list) else "header" if HEADER in line else next(iter(line))
            for line in self.lines
        ]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path / "kept")
    made.take(Hello("boot-1", 1.7e9, 100.0))
    made.take(tick(100.0, GPUS))
    made.take(tick(110.0))
    return made


def test_times_are_seconds_since_the_header_by_a_clock_that_nobody_sets(kept: Kept) -> None:
    kept.take(Tick(5.0, 120.0, (VALUES,) * 2, (1.0,) * 15))
    assert kept.lines[0]["began"] == 1.7e9
    assert [line[0] for line in kept.lines[1:]] == [0.0, 10.0, 20.0]


def test_a_new_connection_has_a_header_of_its_own_and_says_what_is_missing_between(kept: Kept) -> None:
    kept.take(Hello("boot-2", 1.7e9 + 500, 5.0), "the connection broke: reset by peer")
    kept.take(tick(6.0, GPUS))
    assert kept.kinds == ["header", "sample", "sample", "gap", "header", "sample"]
    assert kept.lines[3]["gap"]["why"] == "the connection broke: reset by peer"
    assert kept.lines[4]["boot_id"] == "boot-2"


def test_gpus_that_do_not_answer_are_gaps_in_the_values(kept: Kept) -> None:
    kept.take(tick(120.0, count=0))
    kept.take(tick(130.0))
    assert kept.kinds == ["header"] + ["sample"] * 4
    assert set(kept.lines[3][1:29]) == {None}
    assert {entry.metric for entry in read_samples(RunFile(kept.path)) if isinstance(entry, Sample)} >= {GPU, MEMORY}


def test_lines_of_the_kernel_log_are_events(kept: Kept) -> None:
    kept.take(LogUpdate(120.0, (LogLine(7, 119.5, "NVRM: Xid 79", 12),)))
    (event,) = [line["event"] for line in kept.lines if isinstance(line, dict) and "event" in line]
    assert event == {"time": 19.5, "source": "kernel", "text": "NVRM: Xid 79 (and 12 lines like it before)"}


def test_a_watch_that_begins_again_goes_on_in_the_same_files(kept: Kept, tmp_path: Path) -> None:
    kept.recording.close(0.0)
    kept.path.write_bytes(kept.path.read_bytes() + b"\x28\xb5\x2f\xfd torn")
    again = Kept(tmp_path / "kept")
    again.take(Hello("boot-1", 1.7e9 + 100, 200.0))
    again.take(tick(200.0, GPUS))
    assert again.kinds == ["header", "sample", "sample", "gap", "header", "sample"]
    assert again.lines[3]["gap"]["why"] == "nobody watched"


def test_changes_are_kept_as_they_are_said(kept: Kept) -> None:
    change = Change(ChangeKind.OPENED, Key(NODE, "GPU 1", "gpu.row_remap"), Verdict.FAIL, "remapping failed", 1.0)
    kept.recording.changes([change], 1.7e9, 0.0)
    (line,) = (kept.recording.folder / CHANGES_FILE).read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "time": 1.7e9,
        "kind": "opened",
        "node": NODE,
        "device": "GPU 1",
        "rule": "gpu.row_remap",
        "verdict": "fail",
        "message": "remapping failed",
        "findings": 1,
    }


def test_a_disk_that_is_full_costs_a_line_and_what_comes_after_is_whole(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 50.0)
    before = len(kept.lines)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kept.path.stat().st_size + 5, limits[1]))
    try:
        for at in range(100):
            kept.take(tick(120.0 + 10 * at))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(kept.own) == 1
    assert "nothing is recorded" in kept.own[0]
    assert "File too large; watching goes on" in kept.own[0]
    for at in range(20):
        kept.take(tick(2_000.0 + 10 * at))
    assert kept.own[1:] == [f"recording under {kept.recording.folder} again"]
    assert kept.kinds[before : before + 3] == ["gap", "header", "sample"]
    assert kept.lines[before]["gap"]["why"] == "File too large"
    assert list(read_samples(RunFile(kept.path)))


def test_a_watch_that_ends_while_the_disk_is_full_does_not_say_that_it_records_again(tmp_path: Path) -> None:
    said = list[str]()
    made = Recording(tmp_path, 10.0, said.append)
    made.guard(no_room, 100.0)
    made.close(110.0)
    assert said == [f"nothing is recorded under {tmp_path}: No space left on device; watching goes on"]


def test_a_folder_in_which_a_watch_records_is_no_other_watchs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would replace the other's outbox, and record as reported what only the other has to deliver."""
    first, folder = Recording(tmp_path, 10.0, print), str(tmp_path)
    first.earlier_changes()
    assert main(["watch", "local", "--record", folder]) == 4
    said = f"clusterproof watch: --record {folder}: another watch records there; expected a folder of its own\n"
    assert capsys.readouterr().err == said
    first.close(0.0)
    Recording(tmp_path, 10.0, print).earlier_changes()


def test_changes_for_which_there_was_no_room_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OWED", 3)
    said, full = list[str](), [True]
    made = Recording(tmp_path, 10.0, said.append)
    for number in range(5):
        made.changes([change(f"gpu{number:03}")], 1.7e9, 100.0 * number, lambda: not full[0])
    full[0] = False
    made.guard(lambda: None, 1_000.0)
    assert said[-1] == f"recording under {tmp_path} again, without the first 2 of what waited"
    assert len((tmp_path / "changes.jsonl").read_text().splitlines()) == 3
