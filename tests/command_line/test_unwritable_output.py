"""Output that cannot be written, and an invalid working folder: one line or nothing, never a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT

pytestmark = pytest.mark.long

MAIN = [sys.executable, "-c", "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"]
ANSWERS: tuple[list[str], ...] = (
    ["help"],
    ["version"],
    ["explain", "gpu.no_xid"],
    ["doctor"],
    ["completion", "bash"],
    ["checks"],
    ["manifest", "--from", "demo", "--nodes", "gpu001"],
    [],
)


def ran(shell: str, arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell that has it in `"$@"`."""
    command = ["/bin/sh", "-c", shell, "sh", *MAIN, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


RUN = ["check", "demo", "--nodes", "gpu001", "-m", "gpu", "--no-report"]


@pytest.mark.parametrize("words", [*ANSWERS, RUN, [*RUN, "-v"], [*RUN, "-n2"]], ids=" ".join)
def test_an_answer_on_a_full_disk_is_one_line_and_no_verdict(words: list[str], tmp_path: Path) -> None:
    end = ran('"$@" >/dev/full', words, tmp_path)
    assert (end.returncode, end.stderr) == (
        2,
        "clusterproof: the answer could not be written: No space left on device\n",
    )


@pytest.mark.parametrize("words", [*ANSWERS, ["check", "--help-all"]], ids=" ".join)
def test_a_reader_that_stops_is_told_nothing(words: list[str], tmp_path: Path) -> None:
    assert ran('"$@" | true', words, tmp_path).stderr == ""


@pytest.mark.parametrize("words", [["explain", "gpu.no_xid"], ["help"], ["check", "nowhere:x"]], ids=" ".join)
def test_what_a_terminal_has_no_letters_for_is_escaped(words: list[str], tmp_path: Path) -> None:
    end = ran('"$@"', words, tmp_path, PYTHONIOENCODING="ascii")
    assert end.returncode in (0, 4)
    assert "Traceback" not in end.stdout + end.stderr


def test_a_daemon_without_standard_output_gets_the_verdict_all_the_same(tmp_path: Path) -> None:
    arguments = ["check", "demo", "-k", "no_xid", "--no-report"]
    assert ran('"$@" >&-', arguments, tmp_path).returncode == ran('"$@"', arguments, tmp_path).returncode == 1


@pytest.mark.parametrize("words", [["check", "local", "-m", "node"], ["history"], ["watch", "local"]], ids=" ".join)
def test_a_working_folder_that_is_gone_is_one_line(words: list[str], tmp_path: Path) -> None:
    end = ran('mkdir gone; cd gone; rmdir ../gone; "$@"', words, tmp_path)
    message = "clusterproof: the working folder: No such file or directory; expected one to begin in: cd /\n"
    assert (end.returncode, end.stderr) == (4, message)


def test_a_watch_goes_on_where_its_own_output_cannot_be_written(tmp_path: Path) -> None:
    end = ran('"$@" >/dev/full', ["watch", "local", "--for", "2s", "--every", "1", "--record", "kept"], tmp_path)
    assert "Traceback" not in end.stderr
    assert end.returncode in (0, 1, 10)
    assert list((tmp_path / "kept").iterdir())
