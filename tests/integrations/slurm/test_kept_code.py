"""The code that a run caches for the next: found at once, identical to the files, and written by nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.integrations.slurm import kept_code, main, standby
from tests.integrations.slurm.on_node import node, output_of, script
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5

FILES = {"kept/__init__.py": "FROM = 1\n", "kept/one.py": "from kept import FROM\n", "other.py": "import kept.one\n"}
# Imports them; prints how each was found, and its content.
PROGRAM = """
import sys
from clusterproof.integrations.slurm import kept_code
sys.path.insert(0, sys.argv[1])
kept_code.use(sys.argv[2])
import other, kept, kept.one
found = [type(module.__spec__.loader).__name__ == "KeptCode" for module in (kept, kept.one, other)]
inside = sys.argv[1] + "/kept"
print(found, kept.one.FROM, kept.__file__ == inside + "/__init__.py", list(kept.__path__) == [inside])
"""
ALL_KEPT, NONE_KEPT = "[True, True, True] 1 True True", "[False, False, False] 1 True True"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with these modules, and the cache of them."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    names = {"kept": "kept/__init__.py", "kept.one": "kept/one.py", "other": "other.py"}
    (tmp_path / kept_code.NAME).write_bytes(
        kept_code.content({name: str(tmp_path / file) for name, file in names.items()})
    )
    return tmp_path


def imported(folder: Path) -> str:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, folder, folder], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_modules_are_found_in_what_was_kept_with_the_names_of_their_files(folder: Path) -> None:
    assert imported(folder) == ALL_KEPT


def test_a_module_whose_file_was_written_since_is_read_from_it(folder: Path) -> None:
    (folder / "kept" / "__init__.py").write_text("FROM = 1 + 1\n")
    assert imported(folder) == "[False, True, True] 2 True True"


def test_a_module_whose_file_is_gone_is_gone(folder: Path) -> None:
    (folder / "other.py").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        imported(folder)


def of_another_python(whole: bytes) -> bytes:
    return whole.replace(f"{sys.hexversion:x}".encode(), b"3000000")


def of_another_installation(whole: bytes) -> bytes:
    own = kept_code.__file__.encode()
    return whole.replace(own, own.replace(b"/kept_code.py", b"/kept_c0de.py"))


@pytest.mark.parametrize(
    "changed",
    [
        of_another_python,
        of_another_installation,
        lambda _: b"",
        lambda whole: whole[:4],
        lambda whole: whole[:200],
        lambda whole: whole[:-1],
        lambda whole: b"\xff" * 8 + whole[8:],
        lambda whole: whole[:8] + b"nothing that marshal has written",
    ],
    ids=[
        "of another Python",
        "of another installation",
        "empty",
        "begun",
        "cut",
        "without its last byte",
        "without an end",
        "something else",
    ],
)
def test_what_cannot_be_read_is_not_used(folder: Path, changed: Callable[[bytes], bytes]) -> None:
    file = folder / kept_code.NAME
    file.write_bytes(changed(file.read_bytes()))
    assert imported(folder) == NONE_KEPT


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to give files away")
@pytest.mark.parametrize(
    "give",
    [
        lambda folder: os.chown(folder / kept_code.NAME, 65534, 65534),
        lambda folder: (folder / kept_code.NAME).chmod(0o666),
        lambda folder: os.chown(folder, 65534, 65534),
        lambda folder: folder.chmod(0o777),
        lambda folder: (folder / kept_code.NAME).symlink_to((folder / kept_code.NAME).rename(folder / "elsewhere")),
    ],
    ids=["another user's", "writable", "in another user's folder", "in a writable folder", "a link"],
)
def test_what_another_user_may_have_put_there_is_not_used(folder: Path, give: Callable[[Path], object]) -> None:
    give(folder)
    assert imported(folder) == NONE_KEPT


def test_what_there_is_no_time_for_is_not_kept(folder: Path) -> None:
    assert kept_code.content({"other": str(folder / "other.py")}, lambda: False) == b""


@pytest.mark.parametrize("drain", [None, "a drain"])
def test_what_breaks_while_code_is_kept_decides_nothing(monkeypatch: pytest.MonkeyPatch, drain: Any) -> None:
    calls: list[object] = []
    monkeypatch.setattr(main, "RAN", "sys")  # as after a run
    monkeypatch.setattr(main, "act", lambda _: drain)
    monkeypatch.setattr(main, "end", lambda _, answered: calls.append(answered))
    monkeypatch.setattr(standby, "keep_code", lambda *_: calls.append("keeps") or 1 / 0)
    main.answer(SimpleNamespace(occasion="explain", state=None, left_s=5.0))  # type: ignore[arg-type]
    assert calls == (["keeps", None] if drain is None else [drain])


@needs_nodes
def test_the_second_cold_prolog_looks_for_no_file_and_says_the_same() -> None:
    with node(healthy_p5(), 'mode = "drain"\nreuse_s = 0\n', is_first_run=True) as running:
        first, kept = script(running), running.root / "run/clusterproof" / kept_code.NAME
        at = kept.stat().st_mtime_ns
        second = script(running)
        assert kept.stat().st_mtime_ns == at  # everything needed was there
        assert kept.stat().st_mode & 0o777 == 0o600
    assert output_of(first).partition(" in ")[0] == output_of(second).partition(" in ")[0]
    assert output_of(second).strip().endswith("all pass")
