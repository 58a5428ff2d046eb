"""The source tree: shared test code is near its users, no test file imports another, settings name real paths."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FILES = sorted(TESTS.rglob("test_*.py"))
IMPORT = re.compile(r"^\s*(?:from|import) (tests\.(?:\w+\.)*test_\w+)", re.MULTILINE)  # also in programs in strings
SETTING = re.compile(r'"((?:clusterproof|tests|scripts|\{)[^"\s]*/[^"\s]*)"')  # a path, or a pattern of paths
BRACES = re.compile(r"\{([^{}]*)\}")


def alternatives(pattern: str) -> list[str]:
    """The patterns that a pattern with braces expands to."""
    braces = BRACES.search(pattern)
    if not braces:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [each for part in braces[1].split(",") for each in alternatives(f"{before}{part}{after}")]


def test_a_path_in_the_settings_names_a_file() -> None:
    patterns = SETTING.findall((ROOT / "pyproject.toml").read_text("utf-8"))
    each = [path for pattern in patterns for path in alternatives(pattern)]
    assert len(each) > 20
    assert [path for path in each if not any(ROOT.glob(path))] == []


def test_nothing_is_imported_from_a_file_of_tests() -> None:
    imports = {(str(file), name) for file in TESTS.rglob("*.py") for name in IMPORT.findall(file.read_text("utf-8"))}
    assert imports == set()


def test_every_folder_with_tests_is_a_package() -> None:
    assert [str(file) for file in FILES if not (file.parent / "__init__.py").exists()] == []


def test_a_file_of_tests_is_understood_in_one_sitting() -> None:
    assert [str(file) for file in FILES if file.read_text("utf-8").count("\n") >= 300] == []
