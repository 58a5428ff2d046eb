"""The nightly jobs that check a cluster: in each CI's own format, with the same command, which runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.builders.runs import ROOT

pytestmark = pytest.mark.long

CI = ROOT / "integrations" / "ci"
JENKINSFILE = (CI / "Jenkinsfile").read_text(encoding="utf-8")
IN_JENKINS = re.compile(r"\bsh '([^'\n]*)'")
POLICY = '[mounts]\nexpected = ["/of-the-site"]\n'
INVENTORY = '[cluster]\nname = "here"\nconnection = "local"\n\n[[group]]\nname = "all"\nnodes = "here"\n'


def of_github() -> list[str]:
    (job,) = yaml.safe_load((CI / "nightly-github.yml").read_text())["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def of_gitlab() -> list[str]:
    job = yaml.safe_load((CI / "nightly-gitlab.yml").read_text())["prove"]
    return [*job["before_script"], *job["script"]]


COMMANDS = {"github": of_github(), "gitlab": of_gitlab(), "jenkins": IN_JENKINS.findall(JENKINSFILE)}
PIECES = [(name, piece) for name, commands in COMMANDS.items() for piece in commands]


@pytest.mark.parametrize(("_name", "words"), PIECES)
def test_every_piece_is_shell(_name: str, words: str) -> None:
    linter = ["shellcheck", "--shell=sh", "-"] if shutil.which("shellcheck") else ["sh", "-n"]
    linted = subprocess.run(linter, input=f"{words}\n", capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_all_of_jenkins_shell_is_seen_and_its_brackets_close() -> None:
    assert len(re.findall(r"(?<=[\s{])sh(?=[ (]+['\"])", JENKINSFILE)) == len(COMMANDS["jenkins"])
    bare = re.sub(r"//.*|'[^']*'|\"[^\"]*\"", "", JENKINSFILE)
    for opening, closing in ("{}", "()"):
        assert bare.count(opening) == bare.count(closing) > 3
    sections = re.findall(r"^ {4}(\w+)(?: \{|$)", bare, re.MULTILINE)
    assert sections == ["agent", "triggers", "parameters", "options", "environment", "stages", "post"]


def ran_in(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run the job's check in a world-writable checkout, as GitLab's runner makes it for a container."""
    (command,) = [piece for piece in COMMANDS[name] if "clusterproof check" in piece]
    for file, text in (("cluster.toml", INVENTORY), ("clusterproof.toml", POLICY)):
        (folder / file).write_text(text)
        (folder / file).chmod(0o666)
    (folder / ".clusterproof").mkdir()
    (folder / ".clusterproof" / "bin").symlink_to(Path(sys.executable).parent)
    env = {**os.environ, "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_reads_the_policy_and_leaves_the_reports_where_the_job_looks(name: str, tmp_path: Path) -> None:
    ran = ran_in(tmp_path, name)
    assert "policy: expects mounted /of-the-site" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 1, ran.stdout + ran.stderr  # no machine has the policy's mount
    assert (tmp_path / "reports" / "junit.xml").is_file()
    assert len(list(tmp_path.glob("*.sqlite"))) == 1
    assert "reports" in (CI / {"jenkins": "Jenkinsfile"}.get(name, f"nightly-{name}.yml")).read_text()


def test_nothing_that_an_earlier_build_left_in_jenkins_workspace_is_run_or_reported(tmp_path: Path) -> None:
    (install,) = [piece for piece in COMMANDS["jenkins"] if "pip install" in piece]
    earlier = (
        tmp_path / ".clusterproof" / "lib" / "of-an-earlier-wheel.py",  # pip keeps it, if its version is the same
        tmp_path / "reports" / "junit.xml",  # and a build that cannot begin writes none
    )
    for path in (*earlier, tmp_path / "history.sqlite"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run(["sh", "-c", install.rpartition("&&")[0]], cwd=tmp_path, check=True)
    assert (tmp_path / ".clusterproof" / "bin" / "pip").exists()
    assert [path for path in earlier if path.exists()] == []
    assert (tmp_path / "history.sqlite").exists()
