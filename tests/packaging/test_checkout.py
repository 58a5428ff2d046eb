"""A clone can be imported in place by every tool, and one clone's code never runs instead of another's."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT, Installed, clone_of, environment, environment_with, wheel_of
from tests.tiers import each_with_some

pytestmark = pytest.mark.long

ONE_NODE = ("--nodes", "gpu003", "--no-report", "-q", "-p", "no:cacheprovider")
FINDING = "FAIL        Uncorrected GPU memory errors: 1 of 1 node (gpu003)"
MODULE = "clusterproof.plugins.core.verdict"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, without its tests."""
    return clone_of(ROOT, tmp_path_factory.mktemp("clone") / "clusterproof")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with only the suite's dependencies, in which clusterproof's metadata are hidden."""
    made = environment(tmp_path_factory.mktemp("bare") / "venv")
    hidden = "from importlib import metadata\n_all = metadata.MetadataPathFinder.find_distributions\n"
    hidden += "metadata.MetadataPathFinder.find_distributions = classmethod(lambda cls, *given: (\n"
    hidden += "    one for one in _all(*given) if one.metadata['Name'] != 'clusterproof'))\n"
    (made.site / "without_clusterproof.py").write_text(hidden, encoding="utf-8")
    (made.site / "without_clusterproof.pth").write_text("import without_clusterproof\n", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def editable(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with an editable install of the clone."""
    folder = tmp_path_factory.mktemp("editable") / "venv"
    return environment_with(clone, folder, options=("--no-build-isolation", "--editable"))


def test_a_clone_is_imported_as_it_lies(bare: Installed, clone: Path) -> None:
    ran = bare.run(clone, "python", "-c", f"import {MODULE} as it; print(it.__file__)")
    assert ran.stdout.strip() == str(clone / "clusterproof/plugins/core/verdict.py"), ran.stderr


NAMED = [(".", "checks/gpu"), (".", "clusterproof/checks/gpu"), ("checks/gpu", "test_memory.py")]


@pytest.mark.parametrize(
    ("named_in", "cluster"), each_with_some(NAMED, [["--cluster", "demo"], ["--cluster=demo"]]), ids=" ".join
)
def test_pytest_runs_the_checks_of_a_clone_where_nothing_is_installed(
    bare: Installed, clone: Path, named_in: tuple[str, str], cluster: list[str]
) -> None:
    folder, named = named_in
    ran = bare.run(clone / folder, "python", "-m", "pytest", *cluster, *ONE_NODE, named)
    assert (ran.returncode, FINDING in ran.stdout) == (1, True), ran.stdout + ran.stderr


def test_pytest_collects_each_check_once(bare: Installed, clone: Path) -> None:
    command = ("-m", "pytest", "--cluster=demo", *ONE_NODE, "--collect-only")
    ran = (bare.run(clone, "python", *command, *paths).stdout.splitlines() for paths in ([], ["."]))
    here, below = ([line for line in lines if "::" in line] for lines in ran)
    assert sorted(below) == sorted(here)
    assert len(here) > 100


@pytest.mark.parametrize("program", [("python", "-I", "-m", "pytest"), ("clusterproof",)], ids=" ".join)
def test_one_clone_refuses_to_check_in_another(
    editable: Installed, clone: Path, tmp_path: Path, program: tuple[str, ...]
) -> None:
    other = clone_of(ROOT, tmp_path / "other")
    ran = editable.run(other, *program, "--cluster=demo", *ONE_NODE)
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert f"{other} is another checkout than {clone}, whose code this Python imports" in ran.stderr


@pytest.mark.parametrize("folder", ["", "my-cluster"], ids=["above it", "beside it"])
def test_a_clone_is_used_from_the_folders_around_it(editable: Installed, clone: Path, folder: str) -> None:
    here = clone.parent / folder
    here.mkdir(exist_ok=True)
    (here / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    arguments = ("--nodes", "gpu003", "--no-report", "-k", "no_uncorrected_ecc")
    for program in (
        ("clusterproof", "check", "demo"),
        ("python", "-I", "-m", "pytest", "--pyargs", "clusterproof.checks", "--cluster=demo"),
    ):
        ran = editable.run(here, *program, *arguments)
        assert (ran.returncode, FINDING in ran.stdout) == (1, True), ran.stdout + ran.stderr
    (here / "pytest.ini").unlink()


def test_a_clone_that_is_installed_is_found_by_pytest_and_by_mypy(
    editable: Installed, clone: Path, tmp_path: Path
) -> None:
    ran = editable.run(clone, "python", "-m", "pytest", "--cluster", "demo", *ONE_NODE, "checks/gpu")
    assert (ran.returncode, FINDING in ran.stdout) == (1, True), ran.stdout + ran.stderr
    (tmp_path / "own.py").write_text(f"from {MODULE} import Verdict\nreveal_type(Verdict.PASS)\n", encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--python-executable", str(editable.python), "--strict", "own.py"]
    checked = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True)
    assert f"{MODULE}.Verdict.PASS" in checked.stdout, checked.stdout


def test_a_source_archive_has_each_file_once_and_makes_the_same_wheel(
    clone: Path, wheel: Path, installed: Installed, tmp_path: Path
) -> None:
    make = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    made = subprocess.run([sys.executable, "-c", make, str(tmp_path)], cwd=clone, capture_output=True, text=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        names = [name.partition("/")[2] for name in source.getnames()]
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    assert [name for name in names if name.startswith(("checks/", "plugins/", "reports/"))] == [], made.stderr
    again = wheel_of(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "again")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """A wheel's files, each with its checksum."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if "dist-info" not in each.filename}
