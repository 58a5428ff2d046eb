"""Installed as a wheel, the suite is the same from any folder: checks, ids, verdicts, and users' own checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.reports.results import read_results
from tests.builders.wheel import ROOT, Installed, environment_with
from tests.packaging.their_suite import written


def verdicts(path: Path) -> set[tuple[str, str, str]]:
    """Node, check and verdict of every result."""
    return {(result.node, result.check, result.verdict.value) for result in read_results(path)}


@pytest.mark.long
def test_the_console_script_finds_in_the_demo_what_pytest_finds_in_the_checkout(
    installed: Installed, tmp_path: Path
) -> None:
    ran = installed.run(tmp_path, "clusterproof", "--cluster", "demo", "--results", "wheel.jsonl", "-v")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "checks/gpu/test_memory.py::test_no_uncorrected_ecc[gpu003] FAILED" in ran.stdout
    assert "1 of 16 nodes (gpu002)" in (tmp_path / "runs" / "latest" / "report.html").read_text(encoding="utf-8")
    checkout = [sys.executable, "-m", "pytest", "-p", "clusterproof.plugins.cluster", "-p", "no:cacheprovider"]
    again = subprocess.run(
        [*checkout, "--cluster", "demo", "--results", str(tmp_path / "checkout.jsonl"), "--no-report", "-q"],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert verdicts(tmp_path / "wheel.jsonl") == verdicts(tmp_path / "checkout.jsonl")


@pytest.mark.long
def test_the_url_of_a_bare_repository_is_all_that_an_installation_needs(tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    cloned = subprocess.run(["git", "clone", "-q", "--bare", "--single-branch", "--no-tags", ROOT, bare], check=False)
    if cloned.returncode:
        pytest.skip("not a git checkout: there is no repository to install from")
    without_history(bare)
    url = f"git+file://{bare}"
    made = environment_with(url, tmp_path / "environment", options=["--no-build-isolation"])
    ran = made.run(tmp_path, "clusterproof", "check", "demo", "-m", "prolog", "--no-report")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "FIT" in ran.stdout


def without_history(repository: Path) -> None:
    """Leave one commit of the same files: to pack thousands for pip takes longer than the installation."""
    git = ["git", "-C", str(repository), "-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
    tree = [*git, "commit-tree", "-m", "All", "HEAD^{tree}"]
    commit = subprocess.run(tree, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([*git, "update-ref", "HEAD", commit], check=True)


WORKERS = pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two workers"])


@pytest.mark.long
@WORKERS
def test_the_packaged_checks_run_beside_a_users_own(installed: Installed, tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_own.py").write_text(
        "def test_kernel(node):\n    assert node.boot.kernel.startswith('6.'), 'old; expected 6'\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    arguments = ["--pyargs", "clusterproof.checks", "test_own.py", "--cluster", "demo", "--nodes", "gpu001"]
    ran = installed.pytest(tmp_path, *arguments, "--results", "own.jsonl", "-q", *workers)
    checks = {check for _, check, _ in verdicts(tmp_path / "own.jsonl")}
    assert {"kernel", "gpu.no_xid"} <= checks, ran.stdout + ran.stderr


@pytest.mark.long
def test_workers_come_to_the_same_verdicts(installed: Installed, tmp_path: Path) -> None:
    by_run = {}
    for name, workers in (("alone", []), ("workers", ["-n", "2"]), ("pytest's own", ["--pyargs", "-n", "2"])):
        pytests = ["python", "-m", "pytest", "--pyargs", "clusterproof.checks"]
        program = pytests if "--pyargs" in workers else ["clusterproof"]
        arguments = ["--cluster", "demo", "--no-report", "-q", "-m", "prolog", "--results", name, *workers]
        ran = installed.run(tmp_path, *program, *arguments)
        assert ran.returncode == 1, ran.stdout + ran.stderr
        by_run[name] = verdicts(tmp_path / name)
    assert by_run["alone"]
    assert by_run["alone"] == by_run["workers"] == by_run["pytest's own"]


@pytest.mark.long
def test_slurms_scripts_lie_beside_it_and_can_be_run(installed: Installed) -> None:
    for name in ("prolog", "epilog", "health-check"):
        script = installed.bin / f"clusterproof-{name}"
        assert os.access(script, os.X_OK)
        assert script.read_text() == (ROOT / "integrations" / "slurm" / script.name).read_text()
    assert (installed.package / "integrations" / "slurm" / "install.md").is_file()


@pytest.mark.long
def test_what_is_copied_or_applied_lies_in_it(installed: Installed) -> None:
    assert os.access(installed.bin / "clusterproof-idle", os.X_OK)
    names = ("ci/gate.sh", "ci/iam.json", "image-builder/clusterproof.yml", "systemd/clusterproof-idle.timer")
    of_a_watch = ("grafana/watch.json", "prometheus/watch-rules.yml", "systemd/clusterproof-watch.service")
    folder = ROOT / "integrations" / "kubernetes"
    of_kubernetes = [f"kubernetes/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()]
    assert {"kubernetes/gate.yaml", "kubernetes/chart/templates/gate.yaml"} <= set(of_kubernetes)
    for name in (*names, *of_a_watch, *of_kubernetes):
        assert (installed.package / "integrations" / name).read_bytes() == (ROOT / "integrations" / name).read_bytes()
    assert (installed.package / "integrations" / "user-data" / "first-boot.sh").is_file()


@pytest.mark.long
def test_the_man_page_and_completion_lie_where_man_and_shells_look(installed: Installed, tmp_path: Path) -> None:
    share = installed.environment / "share"
    assert (share / "man" / "man1" / "clusterproof.1").read_text().startswith(".TH CLUSTERPROOF")
    assert (share / "zsh" / "site-functions" / "_clusterproof").is_file()
    assert (share / "fish" / "vendor_completions.d" / "clusterproof.fish").is_file()
    printed = installed.run(tmp_path, "clusterproof", "completion", "bash")
    assert "complete -o bashdefault -F _shtab_clusterproof clusterproof" in printed.stdout


@pytest.mark.long
def test_a_manifest_is_written_from_a_recording(installed: Installed, tmp_path: Path) -> None:
    made = installed.run(
        tmp_path, "clusterproof", "manifest", "--from", "demo", "--nodes", "gpu001", "--out", "golden.toml"
    )
    assert (made.returncode, made.stdout) == (0, ""), made.stderr
    gate = ["clusterproof", "--cluster", "demo", "--nodes", "gpu001"]
    kept = installed.run(tmp_path, *gate, "-m", "ami", "-k", "manifest", "--policy", "golden.toml")
    assert (kept.returncode, "6 passed" in kept.stdout) == (0, True), kept.stdout
    assert installed.run(tmp_path, "clusterproof", "manifest").returncode == 4


MINE = """
    from kept_here import MIN_S
    from clusterproof import Node, mark

    @mark.host
    def test_up_for_long(node: Node) -> None:
        '''Time since boot.'''
        assert node.boot.uptime_s > MIN_S, f"up for {node.boot.uptime_s:.0f} s; expected more than {MIN_S} s"
"""
QUIETLY = ("--no-report", "--nodes", "gpu001")


@pytest.mark.parametrize("named", ["./test_mine.py", "test_mine.py", ".", "site checks/test_mine.py"])
def test_they_import_the_modules_beside_them_and_are_shown_as_seen_from_here(
    installed: Installed, tmp_path: Path, named: str
) -> None:
    beside = tmp_path / ("site checks" if "site checks" in named else "")
    beside.mkdir(exist_ok=True)
    written(beside, {"test_mine.py": MINE, "kept_here.py": "MIN_S = 0\n"})
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
