"""What a verdict depends on besides the node."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import settings as settings_file
from clusterproof.integrations.slurm.settings import HealthCheck, Settings, fingerprint_of
from clusterproof.plugins.core.policy import OWN_FILE, PYPROJECT
from clusterproof.plugins.evaluation import index


def edited(file: Path) -> None:
    file.write_text(file.read_text() + "y = 1\n")


def replaced_with_its_old_times(file: Path) -> None:
    known = file.stat()
    new = file.with_suffix(".new")
    new.write_text(file.read_text())
    os.utime(new, ns=(known.st_atime_ns, known.st_mtime_ns))
    new.replace(file)


@pytest.mark.parametrize("change", [edited, replaced_with_its_old_times, Path.unlink])
@pytest.mark.parametrize("name", ["policy.toml", "checks.json"])
def test_it_changes_with_the_policy_and_with_what_is_installed(
    name: str, change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made in ("policy.toml", "checks.json"):
        (tmp_path / made).write_text("x = 1\n")
    monkeypatch.setattr(settings_file, "INDEX", str(tmp_path / "checks.json"))
    settings = Settings(policy=str(tmp_path / "policy.toml"))
    before = fingerprint_of(settings)
    assert fingerprint_of(settings) == before
    change(tmp_path / name)
    assert fingerprint_of(settings) != before


@pytest.mark.parametrize(
    ("settings", "is_another"),
    [
        (Settings(deadline_s=8), True),
        (Settings(instance_type="p5.48xlarge"), True),
        (Settings(policy="/etc/none.toml"), True),
        (Settings(mode="drain"), False),
        (Settings(at_deadline="drain"), False),
        (Settings(reuse_s=0), False),
        (Settings(health_check=HealthCheck(resume=False)), False),
    ],
)
def test_it_changes_with_the_settings_that_checks_are_evaluated_by(settings: Settings, is_another: bool) -> None:
    assert (fingerprint_of(settings) != fingerprint_of(Settings())) == is_another


def test_a_policy_that_nobody_names_is_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = fingerprint_of(Settings())
    (tmp_path / OWN_FILE).write_text("")
    assert fingerprint_of(Settings()) != before


def test_the_files_that_it_names_are_those_that_are_read() -> None:
    assert settings_file.UNNAMED == (OWN_FILE, PYPROJECT)
    assert Path(settings_file.INDEX).samefile(index.FILE)
