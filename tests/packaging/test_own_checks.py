"""Checks of somebody's own, run from an installed wheel by `clusterproof check X FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.wheel import Installed
from tests.packaging.their_suite import written

MINE = """
    from kept_here import LEAST_S
    from clusterproof import Node, mark

    @mark.host
    def test_up_for_long(node: Node) -> None:
        '''Time since boot.'''
        assert node.boot.uptime_s > LEAST_S, f"up for {node.boot.uptime_s:.0f} s; expected more than {LEAST_S} s"
"""
QUIETLY = ("--no-report", "--nodes", "gpu001")


@pytest.mark.parametrize("named", ["./test_mine.py", "test_mine.py", ".", "site checks/test_mine.py"])
def test_they_import_the_modules_beside_them_and_are_shown_as_seen_from_here(
    installed: Installed, tmp_path: Path, named: str
) -> None:
    beside = tmp_path / ("site checks" if "site checks" in named else "")
    beside.mkdir(exist_ok=True)
    written(beside, {"test_mine.py": MINE, "kept_here.py": "LEAST_S = 0\n"})
    ran = installed.run(tmp_path, "clusterproof", "check", "demo", named, "-v", *QUIETLY)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = "site checks/test_mine.py::" if "site checks" in named else "\ntest_mine.py::"
    assert shown in ran.stdout


def test_a_file_that_cannot_be_imported_is_named(installed: Installed, tmp_path: Path) -> None:
    ran = installed.run(written(tmp_path, {"test_mine.py": MINE}), "clusterproof", "check", "demo", "test_mine.py")
    assert ran.returncode == 2
    assert "ERROR test_mine.py" in ran.stdout
    assert "No module named 'kept_here'" in ran.stdout


def test_packaged_checks_are_shown_by_their_place_in_the_package(installed: Installed, tmp_path: Path) -> None:
    ran = installed.run(tmp_path, "clusterproof", "check", "demo", "-m", "storage", "-v", *QUIETLY)
    lines = [line for line in ran.stdout.splitlines() if ".py::" in line]
    assert lines
    assert all("clusterproof/checks/storage/test_" in line.partition("::")[0] for line in lines), ran.stdout
