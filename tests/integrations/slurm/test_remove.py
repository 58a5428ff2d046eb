"""When `remove` refuses: Slurm names the scripts, or cannot be asked."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import versions

SCONTROL = """#!/bin/sh
[ "$2" != config ] || echo "Prolog                  = {home}/bin/clusterproof-prolog"
[ "$2" = config ] || echo "NodeName=gpu001 State=IDLE"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation on a node where Slurm's commands are in none of the usual folders."""
    home, installed = tmp_path / "home", tmp_path / "versions"
    (installed / "1-a" / "bin").mkdir(parents=True)
    (installed / "1-a" / "bin" / "clusterproof-prolog").write_text("#!/bin/sh\noccasion=prolog\n")
    home.symlink_to(installed / "1-a")
    monkeypatch.setattr(versions, "HOME", home)
    monkeypatch.setattr(versions, "VERSIONS", installed)
    monkeypatch.setattr(versions, "PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "also-none"))
    return home


@contextmanager
def running_slurmd(folder: Path) -> Iterator[None]:
    program = folder / "slurmd"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            yield
        finally:
            process.kill()


def test_where_slurmd_runs_and_there_is_no_scontrol_it_refuses(home: Path, tmp_path: Path) -> None:
    with (
        running_slurmd(tmp_path),
        pytest.raises(
            versions.Refused, match=r"slurmd runs \(process \d+\) and PATH has no scontrol; expected it there"
        ),
    ):
        versions.remove()
    assert (home / "bin").is_dir()


def test_the_scontrol_of_who_calls_is_asked_where_the_usual_folders_have_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "slurm" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(SCONTROL.format(home=home))
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:/usr/bin:/bin")
    with pytest.raises(versions.Refused, match=r"slurm\.conf has Prolog of ours; expected none"):
        versions.remove()
    assert (home / "bin").is_dir()


def test_where_there_is_no_slurm_it_removes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_slurmd", str)
    versions.remove()
    assert not home.is_symlink()
