"""A sample of the mutants of `make mutate` (with `--all` a larger one): nine of ten are found."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.builders.runs import ROOT
from tests.mutants.__main__ import all_mutants, sampled
from tests.testbed.needs import needs_nodes

pytestmark = pytest.mark.long

MUTANTS, WITH_ALL = 20, 60


@needs_nodes
def test_mutants_of_some_checks_are_found(pytestconfig: pytest.Config) -> None:
    least = WITH_ALL if pytestconfig.getoption("--all") else MUTANTS
    command = [sys.executable, "-m", "tests.mutants", "--sample", str(least)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tried = json.loads(ran.stdout.splitlines()[-1])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert tried["mutants"] >= least
    assert tried["cases"] >= least // 6
    assert 10 * tried["killed"] >= 9 * tried["mutants"]


def test_a_sample_has_whole_files_and_is_the_same_each_time() -> None:
    mutants = all_mutants()
    assert len(mutants) > 1500
    chosen = sampled(mutants, MUTANTS, seed=1)
    files = {mutant.place[0] for mutant in chosen}
    assert MUTANTS <= len(chosen) <= 2 * MUTANTS
    assert {mutant for mutant in mutants if mutant.place[0] in files} == set(chosen)
    assert sampled(mutants, MUTANTS, seed=1) == chosen != sampled(mutants, MUTANTS, seed=2)
