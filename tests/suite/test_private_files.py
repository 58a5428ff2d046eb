"""A run's files are private to its user, whatever the umask; redacted ones may be readable by others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.runs import ROOT, Runs

WRITTEN = (
    *("--results=results.jsonl", "--record=kept", "--junitxml=junit.xml", "--html=page.html"),
    "--report=reports",
)
OTHERS = 0o077


@pytest.fixture(autouse=True)
def _for_all_to_read() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def run(runs: Runs, *options: str) -> list[Path]:
    """The files and folders that a run over the demo cluster leaves."""
    before = set(runs.folder.rglob("*"))
    checks = str(ROOT / "checks/host/test_memory.py")
    runs.plain("--cluster=demo", checks, f"--rootdir={ROOT}", "-p", "no:cacheprovider", *WRITTEN, *options)
    before |= {path for path in runs.folder.rglob("*") if path.is_symlink() or "assets" in path.parts}  # a style sheet
    return [path for path in runs.folder.rglob("*") if path not in before]


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "two workers"])
def test_no_other_user_may_read_what_a_run_writes(runs: Runs, options: tuple[str, ...]) -> None:
    made = run(runs, "--history=h.db", *options)
    assert {"results.jsonl", "junit.xml", "page.html", "h.db", "cluster.json", "report.html"} <= {
        path.name for path in made
    }
    assert [path for path in made if path.stat().st_mode & OTHERS] == []
    assert os.umask(0o022) == 0o022


def test_what_is_redacted_is_as_readable_as_the_umask_says(runs: Runs) -> None:
    assert {path.stat().st_mode & OTHERS for path in run(runs, "--redact") if path.is_file()} == {0o044}
