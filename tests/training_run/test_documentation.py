"""The lines for training code in docs/training-runs.md write what `--run` reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from tests.builders.runs import Runs
from tests.builders.wheel import ROOT

STEPS, RANKS = 30, 4
WALKED = ("clusterproof/checks/run/test_skipped_steps.py", "tests/training_run/faults/skipped_steps.py")


class Loss(SimpleNamespace):
    def backward(self) -> None:
        """Nothing to learn."""


def nothing() -> None:
    """Takes no time."""


def test_the_lines_for_ones_own_training_code_write_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "training-runs.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    torch = ModuleType("torch")
    torch.__dict__["cuda"] = SimpleNamespace(synchronize=nothing)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.chdir(tmp_path)
    model: Callable[[object], Loss] = lambda _batch: Loss()  # noqa: E731
    optimizer = SimpleNamespace(step=nothing, zero_grad=nothing)
    for rank in range(RANKS):
        monkeypatch.setenv("RANK", str(rank))
        names = {"loader": [0] * STEPS, "steps": STEPS, "model": model, "optimizer": optimizer}
        exec(code, names)
        names["log"].close()  # type: ignore[attr-defined]
    run = read_run([str(tmp_path)])
    counts = {position.rank: len(seconds) for position, seconds in run.computed.items()}
    assert counts == dict.fromkeys(range(RANKS), STEPS)
    assert set(run.data.steps) == set(range(RANKS))
    assert {name for _, name in run.data.parts} == {"data"}


@pytest.fixture
def walked() -> tuple[str, str]:
    """The check and the faults that CONTRIBUTING adds."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    check, faults = (dict(re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL))[path] for path in WALKED)
    return check, faults


def test_the_rule_that_contributing_adds_finds_its_fault_and_passes_a_healthy_run(
    runs: Runs, walked: tuple[str, str]
) -> None:
    check, text = walked
    faults: dict[str, Any] = {}
    exec(text, faults)
    (only,) = faults["FAULTS"]
    (name,) = faults["HEALTHY"]
    (runs.folder / "test_skipped_steps.py").write_text(check, encoding="utf-8")
    for run, verdict in ((only.run(), only.expect[name]), (faults["HEALTHY"][name](), Verdict.PASS)):
        rows = (
            f"{rank},{step},{operation},{seconds}\n"
            for (rank, operation), cells in run.data.compute.items()
            for step, (seconds, _) in cells.items()
        )
        (runs.folder / "trace.csv").write_text("rank,step,operation,duration\n" + "".join(rows), encoding="utf-8")
        runs.run("--results", str(runs.results_file), "--run", "trace.csv", "test_skipped_steps.py")
        (result,) = runs.results
        assert (result.check, result.verdict) == (name, verdict), result.message
        assert verdict is Verdict.PASS or only.words in result.message


@pytest.mark.long
def test_the_rule_that_contributing_adds_passes_the_tests_of_all_rules(tmp_path: Path, walked: tuple[str, str]) -> None:
    for package in ("clusterproof", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, text in zip(WALKED, walked, strict=True):
        (tmp_path / path).write_text(text, encoding="utf-8")
    tests = [sys.executable, "-m", "pytest", "-q", "tests/training_run/test_run_checks.py"]
    ran = subprocess.run(tests, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert not ran.returncode, ran.stdout.decode()
