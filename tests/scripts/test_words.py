"""Each script prints its usage, and refuses a word that selects nothing; the output of scripts/generate."""

from __future__ import annotations

import os
import subprocess

import pytest
from _pytest.mark import ParameterSet

from clusterproof.plugins.evaluation.needs import FILE
from tests.builders.runs import ROOT

pytestmark = [pytest.mark.long, pytest.mark.any_user]

SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK))
WRONG = (
    ("bench slrum", "'slrum' chooses none of 20 (did you mean slurm?); expected one of runs.start_up, "),
    ("bench runs.start_up slrum", "'slrum' chooses none of"),
    ("chaos --seconds 0", "'0'; expected a whole number from 1 on"),
    ("counterparts slrum", "no counterpart is called slrum; expected one of: "),
    ("counterparts kubectl slrum", "no counterpart is called slrum; expected one of: "),
    ("demo nosuch.py", "not found: nosuch.py"),
    ("docs build/site build/more", "build/site build/more; expected nothing, or one folder"),
    ("docs --nosuch", "--nosuch; expected nothing, or one folder"),
    ("environment dve", "dve; expected nothing, dev, kubernetes or notify"),
    ("faults nosuchfault", "'nosuchfault' chooses none of "),
    ("faults a GPU that is losd", "(did you mean a GPU that is lost?); expected words of a fault's name"),
    ("faults --nosuch", "unrecognized arguments: --nosuch"),
    ("fuzz rusn", "'rusn' chooses none of 10 (did you mean runs?); expected one of frames, evidence, "),
    ("fuzz --seconds 0", "'0'; expected a whole number from 1 on"),
    ("furnished", "usage: scripts/furnished COMMAND..."),
    ("generate manpage", "manpage; expected nothing, needs, manifests or demo"),
    ("generate messages needs", "messages needs; expected nothing, needs, manifests or demo"),
    ("laws --law remval", "'remval' is no law (did you mean removal?); there are removal, pairs, order, cut, halves"),
    ("laws --fault losd", "no fault's name has 'losd'"),
    ("laws --check gpu.no_xidd", "(did you mean gpu.no_xid?)"),
    ("lint ruff", "ruff; expected nothing"),
    ("mutate checks/gpu/test_memroy", "'checks/gpu/test_memroy' chooses none of "),
    ("mutate negatd", "(did you mean negated?); expected words such as "),
    ("mutate --sample 0", "'0'; expected a whole number from 1 on"),
    ("new chek host.turbo", "invalid choice: 'chek'"),
    ("new check hots.turbo", "'hots.turbo' is no id of a check; expected node|gpu|"),
    ("simulate straglers", "'straglers' (did you mean stragglers?); expected a number above 0"),
    ("simulate real_run", "'real_run' (did you mean real_runs?); expected a number above 0"),
    ("simulate real_runs 0", "'0'; expected a whole number from 1 on"),
    ("simulate 0", "'0'; expected a number above 0"),
    ("simulate stragglers 0.1x", "'0.1x'; expected a number above 0"),
    ("soak --jobs 0", "'0'; expected a whole number from 1 on"),
    ("soak --slurm 1", "invalid choice: '1'"),
    ("test quik", "quik; expected quick, system, an option of pytest or a path"),
)


def script(command: str) -> subprocess.CompletedProcess[str]:
    name, *rest = command.split()
    return subprocess.run([ROOT / "scripts" / name, *rest], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_how_it_is_used_and_does_nothing_else(name: str) -> None:
    ran = script(f"{name} --help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"usage: scripts/{name}")
    assert ran.stdout.count("\n") > 1


def taking_turns() -> list[ParameterSet]:
    """Each script with every other of its wrong command lines, and with `--all` with each."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for command, says in WRONG:
        lines.setdefault(command.split()[0], []).append((command, says))
    return [
        pytest.param(*line, id=line[0], marks=[pytest.mark.in_turn(str(at % 2), by="test")] * (len(of_script) > 1))
        for of_script in lines.values()
        for at, line in enumerate(of_script)
    ]


@pytest.mark.parametrize(("words", "says"), taking_turns())
def test_a_word_that_chooses_nothing_is_an_error(words: str, says: str) -> None:
    ran = script(words)
    assert ran.returncode in (2, 4), ran.stdout
    assert says in ran.stdout + ran.stderr


def test_no_script_is_left_out() -> None:
    assert sorted({command.split()[0] for command, _ in WRONG}) == SCRIPTS


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "generate", *arguments], capture_output=True, text=True, check=False)


def test_a_word_that_it_does_not_know_is_answered_with_those_that_it_does() -> None:
    ran = generate("manpage")
    assert (ran.returncode, ran.stderr) == (
        4,
        "scripts/generate: manpage; expected nothing, needs, manifests or demo\n",
    )


def test_what_a_named_check_reads_is_seen_on_its_own_faults_and_tests() -> None:
    before = FILE.read_text(encoding="utf-8")
    assert generate("needs", "node.reachable").returncode == 0
    assert FILE.read_text(encoding="utf-8") == before


def test_a_check_that_is_not_there_is_one_line() -> None:
    ran = generate("needs", "gpu.no_xids")
    assert (ran.returncode, ran.stderr.count("\n")) == (4, 1)
    assert "'gpu.no_xids' is not a check (did you mean gpu.no_xid?)" in ran.stderr
