"""`python -m tests.mutants [WORDS]`: is each mutant of a check, or of a rule of the catalogue, found?

Needs root. WORDS chooses the mutants in whose line they are. Prints a line for each that survives; the last line is one
JSON object.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from clusterproof.plugins.suite.all_checks import all_checks
from tests.mutants import evaluated, faults, unit_tests
from tests.mutants.bench import Bench
from tests.mutants.cases import Case
from tests.mutants.mutations import Mutant, live_functions, mutants_of

ROOT = Path(__file__).resolve().parents[2]
FILES = ("checks/**/test_*.py", "plugins/catalog/*.py")


def main(words: str) -> int:
    """Try every mutant; 0 where 95 of 100 are found."""
    mutants = [mutant for mutant in _mutants() if words in mutant.in_words()]
    cases = _cases()
    left = _survivors(mutants, list(Bench(mutants, cases, live_functions(ROOT)).killers()))
    _say(f"{len(mutants)} mutants; {len(left)} survive {sum(len(case.ran) for case in cases)} evaluations")
    left = _survivors(left, unit_tests.killers(ROOT, left))
    for mutant in left:
        _say(f"SURVIVES    {mutant.in_words()}")
    _say(json.dumps({"mutants": len(mutants), "killed": len(mutants) - len(left)}))
    return 1 if 20 * len(left) > len(mutants) else 0


def _cases() -> list[Case]:
    """Every case, with what checks say of it. What they do not say twice is reported, and left out."""
    with ProcessPoolExecutor(os.cpu_count()) as readers:
        data = faults.begin(readers)  # which goes on meanwhile
        of_tests = list(evaluated.cases(ROOT))
        cases = [*faults.cases(data), *of_tests]
    for case in cases:
        case.learn(str(ROOT))
        for name in sorted(case.checks.keys() - case.ran.keys()):
            _say(f"NOT TRIED   {name} says each time something else, or not its words, of {case.name}")
    return cases


def _survivors(mutants: Sequence[Mutant], killers: Sequence[str]) -> list[Mutant]:
    return [mutant for mutant, killer in zip(mutants, killers, strict=True) if not killer]


def _mutants() -> list[Mutant]:
    all_checks()
    files = sorted(file for pattern in FILES for file in ROOT.glob(pattern))
    return [mutant for file in files for mutant in mutants_of(file, ROOT)]


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this module is for


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main(" ".join(sys.argv[1:])))
