"""The tree of tests: what several files use lies beside them, and no file of tests is read twice."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))
IMPORT = re.compile(r"^\s*(?:from|import) (tests\.(?:\w+\.)*test_\w+)", re.MULTILINE)  # also by a program in a text


def test_nothing_is_imported_from_a_file_of_tests() -> None:
    found = {(str(file), name) for file in TESTS.rglob("*.py") for name in IMPORT.findall(file.read_text("utf-8"))}
    assert found == set()


def test_every_folder_with_tests_is_a_package() -> None:
    assert [str(file) for file in FILES if not (file.parent / "__init__.py").exists()] == []


def test_a_file_of_tests_is_understood_in_one_sitting() -> None:
    assert [str(file) for file in FILES if file.read_text("utf-8").count("\n") >= 300] == []
