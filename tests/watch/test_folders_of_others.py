"""A watch's folder that another user has made: nothing in it is believed, waited for or written to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch.changes_file import CHANGES_FILE, append_changes
from clusterproof.plugins.watch.recording import Recording
from tests.testbed.needs import needs_root

ALICE = 41_001
OPEN = Change(ChangeKind("opened"), Key("local", "", "gpu.no_xid"), Verdict.FAIL, "Xid 79", 1.0)


def folder_of_alice(folder: Path) -> Path:
    folder.mkdir()
    os.chown(folder, ALICE, ALICE)
    return folder


def link_of_alice(folder: Path) -> Path:
    (folder.parent / "etc").mkdir()
    folder.symlink_to("etc")
    os.chown(folder, ALICE, ALICE, follow_symlinks=False)
    return folder


@needs_root
@pytest.mark.parametrize("made", [folder_of_alice, link_of_alice])
def test_nothing_is_recorded_in_another_users_folder(
    made: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "clusterproof-job-77")
    assert main(["watch", "local", "--record", str(folder)]) == 4
    said = capsys.readouterr().err
    expected = "expected a writable folder of this user's"
    assert said == f"clusterproof watch: --record {folder}: belongs to user {ALICE}; {expected}\n"
    assert list(folder.iterdir()) == []


def forged(path: Path) -> None:
    append_changes(path, [OPEN], 1.0)
    os.chown(path, ALICE, ALICE)


def linked(path: Path) -> None:
    append_changes(path.parent / "another", [OPEN], 1.0)
    path.symlink_to("another")


@needs_root
@pytest.mark.parametrize("planted", [forged, linked, os.mkfifo], ids=["another user's", "a link", "a pipe"])
def test_what_another_user_says_is_open_is_not_believed(planted: Callable[[Path], None], tmp_path: Path) -> None:
    planted(tmp_path / CHANGES_FILE)
    with pytest.raises(OSError, match=r"is a link|is not a regular file of this user's"):
        list(Recording(tmp_path, 10.0, print).earlier_changes())
