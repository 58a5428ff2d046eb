"""`scripts/new`: the files of a new check or kind of evidence, each in its place, and nothing lost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.strict import parse_toml

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The project's folders that the script writes to."""
    for folder in ("clusterproof/checks/host", "clusterproof/plugins/evidence", "tests/faults"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def new(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "scripts/scaffold.py"), *arguments]
    return subprocess.run(script, cwd=tree, capture_output=True, text=True, check=False)


def files(tree: Path) -> dict[str, str]:
    """The text of each existing file, by path."""
    return {str(path.relative_to(tree)): path.read_text(encoding="utf-8") for path in tree.rglob("*") if path.is_file()}


def test_a_check_comes_with_its_fault(tree: Path) -> None:
    ran = new(tree, "check", "host.turbo")
    assert ran.returncode == 0, ran.stderr
    written = files(tree)
    assert written.keys() == {"clusterproof/checks/host/test_turbo.py", "tests/faults/turbo.py"}
    check = ast.parse(written["clusterproof/checks/host/test_turbo.py"])
    assert [part.name for part in check.body if isinstance(part, ast.FunctionDef)] == ["test_turbo"]
    assert '{"host.turbo": FAIL}' in written["tests/faults/turbo.py"]


def test_a_kind_of_evidence_has_all_that_it_needs_in_a_folder_of_its_own(tree: Path) -> None:
    ran = new(tree, "evidence", "turbo")
    assert ran.returncode == 0, ran.stderr
    folder = "clusterproof/plugins/evidence/turbo"
    names = ("__init__.py", "collect.py", "facts.py", "redaction.toml")
    written = files(tree)
    assert written.keys() == {f"{folder}/{name}" for name in names}
    for name in names[:-1]:
        ast.parse(written[f"{folder}/{name}"])
    assert parse_toml(written[f"{folder}/redaction.toml"], "redaction.toml") == {"turbo": {"text": "version"}}


def test_what_is_written_passes_the_linter(tree: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("no ruff beside this Python: scripts/environment dev installs it")
    assert new(tree, "check", "host.turbo").returncode == new(tree, "evidence", "turbo").returncode == 0
    command = [str(ruff), "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tree)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


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
    assert files(tree) == {}


@pytest.mark.parametrize("words", [("check", "host.turbo"), ("evidence", "turbo")], ids=lambda arguments: arguments[0])
def test_what_is_there_is_not_written_again(tree: Path, words: tuple[str, ...]) -> None:
    assert new(tree, *words).returncode == 0
    before = files(tree)
    ran = new(tree, *words)
    assert ran.returncode == 4
    assert ran.stderr.endswith("is there already; expected a name that is new\n")
    assert files(tree) == before
