"""A folder of another user that is called as a job: it does not stand in the job's place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.case import CaseError, command
from clusterproof.plugins.case.builder import CaseBuilder
from tests.case.files import BROKEN_GPU, written
from tests.testbed.needs import needs_root

ALICE = 41_001
pytestmark = needs_root


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that Slurm is asked for, which knows nothing more of them."""
    monkeypatch.chdir(tmp_path)
    jobs: list[str] = []

    def read_job(number: str, _builder: CaseBuilder, _offset_s: float) -> None:
        jobs.append(number)

    monkeypatch.setattr(command, "read_job", read_job)
    (tmp_path / "77").mkdir()
    written(tmp_path / "77", BROKEN_GPU)
    return jobs


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_number_is_a_job_where_another_user_has_made_a_folder_of_that_name(
    asked: list[str], is_linked: bool, tmp_path: Path
) -> None:
    if is_linked:
        (tmp_path / "77").rename(tmp_path / "own")
        (tmp_path / "77").symlink_to("own")
    os.chown(tmp_path / "77", ALICE, ALICE, follow_symlinks=False)
    status, text = command.case(["77"])
    assert (status, asked, "gpu003" in text) == (0, ["77"], False)
    assert "clusterproof case ./77 reads it" in " ".join(text.split())
    assert "gpu003" in command.case(["./77"])[1]
    assert asked == ["77"]


def test_where_slurm_cannot_be_asked_the_folder_of_another_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(number: str, _builder: CaseBuilder, _offset_s: float) -> None:
        raise CaseError(f"Slurm could not be asked for job {number}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "read_job", unreachable)
    (tmp_path / "77").mkdir()
    os.chown(tmp_path / "77", ALICE, ALICE)
    _, text = command.case(["77"])
    seen = " ".join(text.split())
    assert "Slurm could not be asked for job 77; the folder 77 here is another user's" in seen
    assert "clusterproof case ./77 reads it" in seen


def test_a_folder_of_ones_own_is_read_by_its_name(asked: list[str]) -> None:
    assert "gpu003" in command.case(["77"])[1]
    assert asked == []
