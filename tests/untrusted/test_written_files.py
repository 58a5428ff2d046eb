"""A run's output goes into files of its own, whatever others have put in their place; nothing hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from clusterproof.plugins.core.opened import appendable
from clusterproof.plugins.evidence import recording
from clusterproof.plugins.watch.changes_file import append_changes
from clusterproof.reports.formats import write_whole
from clusterproof.reports.history import HistoryError
from clusterproof.reports.history.schema import writing
from clusterproof.reports.history.store import require_own_history
from clusterproof.reports.results import ResultsFile
from clusterproof.reports.run_folder import folder_of_its_own
from tests.testbed.needs import needs_root

ALICE = 41_001
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "a link": lambda place, victim: place.symlink_to(victim),
    "a further name": lambda place, victim: place.hardlink_to(victim),
    "a pipe": lambda place, _victim: os.mkfifo(place),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
@pytest.mark.parametrize(
    "write",
    [
        lambda place: write_whole(place, "report"),
        lambda place: recording.write_whole(place, "report"),
        lambda place: ResultsFile(place, is_named=False).close(),
    ],
    ids=["a report", "a recording", "results"],
)
@pytest.mark.parametrize("is_half", [False, True])
def test_what_stands_in_the_place_of_a_file_is_replaced(
    write: Callable[[Path], None],
    planted: Callable[[Path, Path], None],
    is_half: bool,
    tmp_path: Path,
    victim: Path,
) -> None:
    place = tmp_path / "report.html"
    for name in (".report.html.{}", ".report.html.{}.part") if is_half else ("report.html",):
        planted(tmp_path / name.format(os.getpid()), victim)
    write(place)
    assert (place.is_file(), place.is_symlink(), victim.read_text()) == (True, False, "precious")


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_nothing_is_written_behind_what_another_has_put_there(
    planted: Callable[[Path, Path], None], tmp_path: Path, victim: Path
) -> None:
    planted(tmp_path / "changes.jsonl", victim)
    with pytest.raises(OSError, match=r"is a link|is not a regular file"):
        append_changes(tmp_path / "changes.jsonl", [], 0)
    with pytest.raises(OSError, match=r"is a link|is not a regular file"):
        appendable(tmp_path / "changes.jsonl")
    assert victim.read_text() == "precious"


@needs_root
@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {tmp}/etc runs; chown -h 41001 runs",
        "mkdir runs; chown 41001 runs",
        "mkdir -m 777 runs",
        "mkdir runs; ln -s {tmp}/etc runs/gpu; chown -h 41001 runs/gpu",
        "ln -s nothing runs",
        "mkfifo runs",
    ],
)
def test_reports_and_history_are_written_into_no_folder_of_another_user(plant: str, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "work").mkdir()
    assert os.system(f"cd {tmp_path}/work && {plant.format(tmp=tmp_path)}") == 0
    with pytest.raises(OSError, match="expected a folder") as refused:
        folder_of_its_own(tmp_path / "work", "gpu", NOW)
    assert "\n" not in str(refused.value)
    with pytest.raises(HistoryError, match="expected a folder"):
        require_own_history(tmp_path / "work/runs/gpu/history.sqlite")
    assert list((tmp_path / "etc").iterdir()) == []


def test_a_link_of_ones_own_may_lead_to_the_folder_of_reports(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert folder_of_its_own(tmp_path, "gpu", NOW).is_dir()


@needs_root
def test_a_history_is_not_made_behind_another_users_link(tmp_path: Path) -> None:
    place = tmp_path / "history.sqlite"
    place.symlink_to(tmp_path / "cron")
    os.chown(place, ALICE, ALICE, follow_symlinks=False)
    with pytest.raises(HistoryError, match="another user's link"), writing(place):
        pass
    assert not (tmp_path / "cron").exists()
