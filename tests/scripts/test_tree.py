"""The tree of tests: what several files use lies beside them, and no file of tests is read twice."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))


def imported(file: Path) -> set[str]:
    """The modules of which the file imports something; of one that names no file of tests, none are looked for."""
    text = file.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if re.search(r"\btests\.\S*test_", text) else ()
    return {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_nothing_is_imported_from_a_file_of_tests() -> None:
    found = {(str(file), name) for file in TESTS.rglob("*.py") for name in imported(file)}
    assert {(file, name) for file, name in found if name.startswith("tests.") and ".test_" in name} == set()


def test_every_folder_with_tests_is_a_package() -> None:
    assert [str(file) for file in FILES if not (file.parent / "__init__.py").exists()] == []
