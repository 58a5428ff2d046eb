"""The console command in another user's folder: nothing in it is run, and no policy there is taken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.own_python import PACKAGES, python_running
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.policy import find_policy
from tests.testbed.needs import needs_root

pytestmark = pytest.mark.long

SPRUNG = "sprung"
MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
QUIET = ("-q", "--no-report", "-k", "uptime")
REFUSES = "ssh:127.0.0.1:9"
PACKAGE = PACKAGES / "clusterproof"
OWN = "def test_own(node):\n    import beside\n    assert beside.KNOWN\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording, with everything that Python or pytest might load from the current folder."""
    shutil.copytree(DEMO, tmp_path / "recording")
    trap = f"with open({str(tmp_path / SPRUNG)!r}, 'a') as file:\n    file.write(__file__)\n"
    inside = (
        "conftest.py",
        "tests/conftest.py",
        "sitecustomize.py",
        "threading.py",
        "queue.py",
        "json.py",
        "plugin.py",
    )
    for name in ("conftest.py", *(f"recording/{name}" for name in inside)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(trap)
    for name, text in (
        ("pytest.ini", "[pytest]\naddopts = -p plugin\n"),
        ("pytest.toml", '[pytest]\naddopts = ["-p", "plugin"]\n'),
        ("tox.ini", "[pytest]\naddopts = -p plugin\n"),
        ("setup.cfg", "[tool:pytest]\naddopts = -p plugin\n"),
        (".env", "PYTEST_PLUGINS=plugin\n"),
    ):
        (tmp_path / "recording" / name).write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    """The command's output there; it ends as a run does."""
    ran = subprocess.run([sys.executable, "-I", "-c", MAIN, *arguments], cwd=folder, capture_output=True, text=True)
    assert ran.returncode in (0, 1, 10), ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("recording", ["check", "replay:.", *QUIET]),
        ("recording", ["check", "replay:.", *QUIET, "-n", "2"]),
        ("recording", ["check", "replay:.", *QUIET, "--basetemp", "tests/of pytest"]),
        ("recording", ["--run", ".", "-q"]),
        ("recording", ["manifest", "--from", "replay:.", "--nodes", "gpu001", "--out", "golden.toml"]),
        ("recording", ["--pyargs", "clusterproof.checks", "--cluster", "replay:.", *QUIET]),
        (".", ["check", "replay:recording", *QUIET]),
        (".", ["check", "replay:recording", *QUIET, "--policy", "recording/policy.toml"]),
    ],
    ids=lambda argument: argument if isinstance(argument, str) else " ".join(argument),
)
def test_nothing_that_lies_there_is_run(folder: Path, where: str, words: list[str]) -> None:
    (folder / "recording" / "policy.toml").write_text("[thresholds.shm]\nminimum_gib = 1\n")
    (folder / "recording" / "steps.jsonl").write_text('{"rank": 0, "step": 1, "seconds": 1.0}\n')
    run(folder / where, *words)
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()


@pytest.mark.parametrize("words", [["accept", REFUSES], ["return", REFUSES, "127.0.0.1"]], ids=["accept", "return"])
def test_nor_by_the_runs_that_a_command_starts(folder: Path, words: list[str]) -> None:
    output = run(folder / "recording", *words)
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()
    assert "127.0.0.1" in output


def test_nor_by_the_report_of_a_watched_job(folder: Path) -> None:
    program = "from clusterproof.plugins.watch.job import evaluate_recorded as e; from pathlib import Path; "
    command = [sys.executable, "-I", "-c", f"{program} e(Path('.'), (), None)"]
    subprocess.run(command, cwd=folder / "recording", check=True, capture_output=True)
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()
    assert list((folder / "recording" / "report").iterdir())


@pytest.mark.parametrize("has_pip", [True, False], ids=["this Python's pip", "one of its own"])
def test_nor_by_pip_as_versions_for_slurm_are_installed(folder: Path, has_pip: bool) -> None:
    program = f"""from pathlib import Path
from clusterproof.integrations.slurm import versions
versions._has_pip = lambda: {has_pip}
versions._run(*versions._environment(Path({str(folder / "environment")!r})), "--version")"""
    command = [sys.executable, "-I", "-c", program]
    ran = subprocess.run(command, cwd=folder / "recording", capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()


@pytest.mark.parametrize("path", [".:{}", ":{}", "bin:{}", "{}:", "."])
@pytest.mark.parametrize(
    "words",
    [["case", "77"], ["check", "local", *QUIET], ["check", "slurm:", *QUIET], ["doctor", "local"]],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_program_is_run_that_lies_there(folder: Path, path: str, words: list[str]) -> None:
    for name in ("id", "stat", "readlink", "python3", "scontrol", "sacct", "squeue", "sinfo", "srun", "ssh"):
        for program in (folder / name, folder / "bin" / name):
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\necho {name} >>{folder / SPRUNG}\n")
            program.chmod(0o755)
    environment = {**os.environ, "PATH": path.format("/usr/local/bin:/usr/bin:/bin")}
    command = [*python_running(MAIN), *words]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False)
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()


def test_no_other_program_is_started_by_words_that_have_python_look_there_first() -> None:
    pattern = re.compile(r"""sys\.executable,\s*['"]-(?!I)\w*['"]""")
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "own_python.py"]
    assert len(files) > 400
    assert [path.name for path in files if pattern.search(path.read_text())] == ["versions.py"]  # which runs it in /


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two workers"])
def test_checks_that_are_named_load_what_lies_beside_them_and_no_more(folder: Path, workers: list[str]) -> None:
    site = folder / "recording" / "site"
    site.mkdir()
    (site / "test_own.py").write_text(OWN)
    (site / "beside.py").write_text("KNOWN = False\n")
    (site / "conftest.py").write_text("import beside\nbeside.KNOWN = True\n")
    assert "16 passed" in run(folder / "recording", "check", "replay:.", "site/test_own.py", "-q", *workers)
    assert not (folder / SPRUNG).exists(), (folder / SPRUNG).read_text()


def test_beside_a_named_check_nothing_is_loaded_that_others_may_have_put_there(folder: Path) -> None:
    own = folder / "recording"
    (own / "test_own.py").write_text("def test_own(node):\n    pass\n")
    own.chmod(0o1777)
    output = run(own, "check", "replay:.", "test_own.py", "-q")
    assert f"{own} may be written by others: no conftest.py and no module there is loaded" in output
    assert "16 passed" in output
    assert not (folder / SPRUNG).exists()


# The policy of the working folder


POLICY = "[expect]\ngpus = 3\n"


@pytest.mark.parametrize("name", ["clusterproof.toml", "pyproject.toml"])
def test_a_policy_that_others_may_write_is_ignored_and_that_is_said(folder: Path, name: str) -> None:
    policy = folder / name
    policy.write_text(POLICY if name == "clusterproof.toml" else "[tool.clusterproof.expect]\ngpus = 3\n")
    assert "policy: expects gpus=3" in run(folder, "check", "demo", *QUIET[1:])
    policy.chmod(0o666)
    output = run(folder, "check", "demo", *QUIET)
    assert f"{name} is ignored: it may be written by others; --policy {name} reads it all the same" in output
    assert "policy: expects gpus=3" in run(folder, "check", "demo", *QUIET[1:], "--policy", name)
    policy.chmod(0o644)
    assert "ignored" not in run(folder, "check", "demo", *QUIET)


def test_a_policy_that_leads_nowhere_is_ignored_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.clusterproof.expect]\ngpus = 3\n")
    (tmp_path / "clusterproof.toml").symlink_to("unmounted/clusterproof.toml")
    assert find_policy(None, tmp_path).ignored.startswith("clusterproof.toml is ignored: it leads to no file")


@needs_root
@pytest.mark.parametrize("is_link", [False, True], ids=["a file", "a link to a file of root's"])
def test_a_policy_of_another_user_is_ignored(folder: Path, is_link: bool) -> None:
    policy = folder / "clusterproof.toml"
    (folder / "of_root.toml").write_text(POLICY)
    policy.symlink_to("of_root.toml") if is_link else policy.write_text(POLICY)
    os.chown(policy, 1234, 0, follow_symlinks=False)
    output = run(folder, "check", "demo", *QUIET)
    assert "clusterproof.toml is ignored: it belongs to user 1234" in output
    assert "policy: expects gpus=3" in run(folder, "check", "demo", *QUIET[1:], "--policy", "clusterproof.toml")


def test_a_policy_beside_an_inventory_elsewhere_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "clusterproof.toml").write_text("[thresholds.shm]\nminimum_gib = 1\n")
    message = "site/clusterproof.toml is not read; --policy site/clusterproof.toml does that"
    assert find_policy(None, tmp_path, "site/cluster.toml").ignored == message
    assert not find_policy(None, tmp_path / "site", "cluster.toml").ignored
    assert not find_policy("site/clusterproof.toml", tmp_path, "site/cluster.toml").ignored
    assert not find_policy(None, tmp_path, "ssh:gpu001").ignored
