"""`scripts/new`: the files of a new check or kind of evidence, each where it belongs, and nothing lost."""

from __future__ import annotations

import ast
import difflib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDED_TO = ("docs/evidence.md", "clusterproof/plugins/redaction/kinds.toml", "tests/faults/__init__.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What of the project the script adds to."""
    for path in ADDED_TO:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for folder in ("clusterproof/checks/host", "clusterproof/plugins/evidence"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def new(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "scripts/scaffold.py"), *words]
    return subprocess.run(script, cwd=tree, capture_output=True, text=True, check=False)


def added(tree: Path) -> dict[str, list[str]]:
    """The lines that were added, by path; all others stand as they stood."""
    found = {}
    for path in ADDED_TO:
        before = (ROOT / path).read_text(encoding="utf-8").splitlines()
        lines = (tree / path).read_text(encoding="utf-8").splitlines()
        data = list(difflib.ndiff(before, lines))
        assert not [line for line in data if line.startswith("- ")]
        found[path] = [line[2:] for line in data if line.startswith("+ ") and line[2:]]
    return {path: lines for path, lines in found.items() if lines}


def test_a_check_comes_with_its_fault(tree: Path) -> None:
    ran = new(tree, "check", "host.turbo")
    assert ran.returncode == 0, ran.stderr
    check = ast.parse((tree / "clusterproof/checks/host/test_turbo.py").read_text(encoding="utf-8"))
    assert [part.name for part in check.body if isinstance(part, ast.FunctionDef)] == ["test_turbo"]
    assert '{"host.turbo": FAIL}' in (tree / "tests/faults/turbo.py").read_text(encoding="utf-8")
    assert added(tree) == {"tests/faults/__init__.py": ["    turbo,", "    turbo,"]}


def test_a_kind_of_evidence_has_its_own_folder_and_a_place_in_the_documents(tree: Path) -> None:
    ran = new(tree, "evidence", "turbo")
    assert ran.returncode == 0, ran.stderr
    names = ("__init__.py", "collect.py", "facts.py")
    for name in names:
        ast.parse((tree / "clusterproof/plugins/evidence/turbo" / name).read_text(encoding="utf-8"))
    assert added(tree) == {
        "docs/evidence.md": ["### `turbo` — WHERE IT IS READ", '`{"version": "…"}`'],
        "clusterproof/plugins/redaction/kinds.toml": ["[turbo]", 'text = "version"'],
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("check", "hosts.turbo"), "'hosts.turbo' is no id of a check; expected node|gpu|"),
        (("check", "turbo"), "'turbo' is no id of a check; expected node|gpu|"),
        (("check", "host.Turbo-1"), "'host.Turbo-1' is no id of a check; expected node|gpu|"),
        (("evidence", "../turbo"), "'../turbo' is no name of evidence; expected small letters"),
    ],
)
def test_a_wrong_name_is_one_line_and_writes_nothing(tree: Path, words: tuple[str, ...], says: str) -> None:
    ran = new(tree, *words)
    assert (ran.returncode, ran.stderr.count("\n")) == (4, 1)
    assert ran.stderr.startswith(says)
    assert added(tree) == {}


@pytest.mark.parametrize("words", [("check", "host.turbo"), ("evidence", "turbo")], ids=lambda words: words[0])
def test_what_is_there_is_not_written_again(tree: Path, words: tuple[str, ...]) -> None:
    assert new(tree, *words).returncode == 0
    before = added(tree)
    ran = new(tree, *words)
    assert ran.returncode == 4
    assert ran.stderr.endswith("is there already; expected a name that is new\n")
    assert added(tree) == before
