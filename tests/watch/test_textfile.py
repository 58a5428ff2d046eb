"""`--textfile`: a file that is complete at any moment, readable for others, and removed when the watch ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.watch.textfile import MAX_HEAD, NoTextfile, Textfile, foreign_line
from tests.watch.conditions import until
from tests.watch.sinks_of_day import OfDay, series, tick


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def kept(path: Path, own: list[str] | None = None) -> Textfile:
    watched = OfDay().hello().take(tick(100.0))
    return Textfile(path, 0.01, watched.snapshot, (own if own is not None else []).append)


@pytest.mark.usefixtures("umask")
def test_the_file_is_there_at_once_for_all_to_read_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "watch.prom"
    file = kept(path)
    assert path.stat().st_mode & 0o777 == 0o644
    assert series(path.read_text())['gpu_power_watts{gpu="0"}'] == 576
    file.close()


def test_who_reads_while_it_is_written_reads_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "watch.prom"
    file = kept(path)
    first = path.stat().st_ino
    read = [path.read_text() for _ in range(200)]
    until(lambda: path.stat().st_ino != first)
    file.close()
    assert len({len(text) for text in read}) == 1


def test_the_end_leaves_that_it_is_over_and_no_value_of_a_node(tmp_path: Path) -> None:
    path = tmp_path / "watch.prom"
    kept(path).close()
    assert series(path.read_text()) == {"up": 0}
    assert [file.name for file in tmp_path.iterdir()] == ["watch.prom"]
    assert not any(thread.name == "watch-textfile" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("watch.txt", "--textfile is 'watch.txt'; expected a file NAME.prom: node_exporter reads no other"),
        (
            "/nowhere/watch.prom",
            "--textfile /nowhere/watch.prom: No such file or directory; expected a file that may be",
        ),
        ("/dev/null/watch.prom", "--textfile /dev/null/watch.prom: Not a directory"),
    ],
)
def test_what_cannot_be_written_is_one_line(path: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--cluster", "local", "--for", "1s", "--textfile", path]) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"clusterproof watch: {said}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    ["node_zfs_arc 7", 'clusterproof_check_verdict{node="gpu001"} 1', "one" * MAX_HEAD],
    ids=lambda case: case[:20],
)
def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, line: str) -> None:
    path = tmp_path / "node.prom"
    text = f"# HELP of somebody\n{line}\n"
    path.write_text(text)
    with pytest.raises(NoTextfile, match="which no watch has written; expected a file of its own, as it is replaced"):
        kept(path)
    assert path.read_text() == text


@pytest.mark.parametrize("is_over", [True, False])
def test_a_file_that_a_watch_has_left_is_taken_over(tmp_path: Path, is_over: bool) -> None:
    path = tmp_path / "watch.prom"
    before = kept(path)
    text = path.read_text()
    before.close()
    if not is_over:  # it was killed
        path.write_text(text)
    kept(path).close()
    assert series(path.read_text()) == {"up": 0}


@pytest.mark.parametrize("longer_by", range(0, 80, 8))
def test_a_long_file_of_a_killed_watch_is_taken_over_wherever_the_part_that_is_read_ends(
    tmp_path: Path, longer_by: int
) -> None:
    path = tmp_path / "watch.prom"
    value = 'clusterproof_watch_gpu_temperature_celsius{gpu="0",node="gpu001"} 55.0\n'
    path.write_text(f"# HELP {'x' * longer_by}\n{value * (2 * MAX_HEAD // len(value))}")
    kept(path).close()
    assert series(path.read_text()) == {"up": 0}


def test_a_pipe_of_that_name_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "watch.prom"
    os.mkfifo(path)
    assert foreign_line(path) == ""


def test_a_folder_of_that_name_is_refused_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "watch.prom").mkdir()
    with pytest.raises(NoTextfile, match="Is a directory"):
        kept(tmp_path / "watch.prom")
    assert [path.name for path in tmp_path.iterdir()] == ["watch.prom"]


def test_a_path_with_braces_is_said_as_it_is(tmp_path: Path) -> None:
    folder, own = tmp_path / "{cluster}", list[str]()
    folder.mkdir()
    file = kept(folder / "watch.prom", own)
    folder.rename(tmp_path / "away")
    until(lambda: own)
    file.close()
    assert own == [f"{folder / 'watch.prom'} is not written: No such file or directory; watching goes on"]


def test_a_failure_is_said_once_and_once_that_it_is_over(tmp_path: Path) -> None:
    folder, own = tmp_path / "metrics", list[str]()
    folder.mkdir()
    path = folder / "watch.prom"
    file = kept(path, own)
    folder.rename(tmp_path / "away")
    until(lambda: own)
    assert file.outage.is_failing
    folder.mkdir()
    until(path.exists)
    until(lambda: len(own) > 1)
    file.close()
    assert own == [
        f"{path} is not written: No such file or directory; watching goes on",
        f"{path} is written again",
    ]
