"""The jobs that prove a cluster every night: each CI's own form, one command in all, and that command runs."""

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
INVENTORY = '[cluster]\nname = "here"\nconnection = "local"\n\n[[group]]\nname = "all"\nnodes = "here"\n'


def of_github() -> list[str]:
    (job,) = yaml.safe_load((CI / "nightly-github.yml").read_text())["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def of_gitlab() -> list[str]:
    job = yaml.safe_load((CI / "nightly-gitlab.yml").read_text())["prove"]
    return [*job["before_script"], *job["script"]]


COMMANDS = {"github": of_github(), "gitlab": of_gitlab(), "jenkins": IN_JENKINS.findall(JENKINSFILE)}
PIECES = [(name, words) for name, commands in COMMANDS.items() for words in commands]


@pytest.mark.parametrize(("_name", "words"), PIECES)
def test_every_piece_is_shell(_name: str, words: str) -> None:
    linter = ["shellcheck", "--shell=sh", "-"] if shutil.which("shellcheck") else ["sh", "-n"]
    found = subprocess.run(linter, input=f"{words}\n", capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


def test_all_of_jenkins_shell_is_seen_and_its_brackets_close() -> None:
    assert len(re.findall(r"(?<=[\s{])sh(?=[ (]+['\"])", JENKINSFILE)) == len(COMMANDS["jenkins"])
    bare = re.sub(r"//.*|'[^']*'|\"[^\"]*\"", "", JENKINSFILE)
    for opening, closing in ("{}", "()"):
        assert bare.count(opening) == bare.count(closing) > 3
    sections = re.findall(r"^ {4}(\w+)(?: \{|$)", bare, re.MULTILINE)
    assert sections == ["agent", "triggers", "parameters", "options", "environment", "stages", "post"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_leaves_the_reports_where_the_job_looks_for_them(name: str, tmp_path: Path) -> None:
    (command,) = [words for words in COMMANDS[name] if "clusterproof check" in words]
    (tmp_path / "cluster.toml").write_text(INVENTORY)
    (tmp_path / ".clusterproof").mkdir()
    (tmp_path / ".clusterproof" / "bin").symlink_to(Path(sys.executable).parent)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode in (0, 1, 10), ran.stdout + ran.stderr  # what this machine is, nobody knows
    assert (tmp_path / "reports" / "junit.xml").is_file()
    assert len(list(tmp_path.glob("*.sqlite"))) == 1
    assert "reports" in (CI / {"jenkins": "Jenkinsfile"}.get(name, f"nightly-{name}.yml")).read_text()
