"""Is each mutant of a check, of a catalogue rule, or of a gate's state found?

Needs root. WORDS select the mutants with them in their lines. Prints a line for each survivor; the last line is one
JSON object. A sample has the mutants of some files of checks, and tries only these checks' faults and tests.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from random import Random

from clusterproof.plugins.evaluation.all_checks import all_checks, node_checks
from scripts.arguments import Arguments, count
from tests.faults import ALL_FAULTS
from tests.mutants import evaluated, faults, unit_tests
from tests.mutants.bench import Bench
from tests.mutants.cases import Case
from tests.mutants.mutations import Mutant, files_of, live_functions, mutants_of, not_live
from tests.testbed.needs import needs_nodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clusterproof"
FILES = ("checks/**/test_*.py", "plugins/catalog/*.py", "plugins/transport/kubernetes/report_cache.py")
MIN_PERCENT = 95  # of the mutants must be found
MIN_PERCENT_OF_SAMPLE = 90  # for fewer mutants, on fewer faults and tests


def main(arguments: Sequence[str]) -> int:
    """Try the requested mutants; return 0 if enough of them are found."""
    parser = Arguments("scripts/mutate", __doc__)
    parser.add_argument("--sample", type=count, metavar="N", help="N to twice N mutants, from some files of checks")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default %(default)s)")
    parser.add_argument("words", nargs="*", metavar="WORDS", help="all mutants by default")
    options = parser.parse_args(arguments)
    mutants = all_mutants()
    lines = set(
        parser.chosen(
            " ".join(options.words), [candidate.in_words() for candidate in mutants], "words such as gpu/test_ecc"
        )
    )
    mutants = [mutant for mutant in mutants if mutant.in_words() in lines]
    if options.sample:
        mutants = sampled(mutants, options.sample, options.seed)
    problems = [f"NOT LIVE    {mutant.in_words()}" for mutant in not_live(mutants, live_functions(PACKAGE))]
    if needs_nodes.args[0]:
        problems.append(f"no fault can be put into a node: {needs_nodes.kwargs['reason']}")
    if problems or not mutants:
        _say("\n".join(problems) or "no mutant is of a check of nodes; expected one to sample")
        return 1
    return _tried_on_faults(mutants) if options.sample else _tried_on_all(mutants)


def all_mutants() -> list[Mutant]:
    """Every mutant, of functions that this process has from now on."""
    all_checks()
    files = files_of(PACKAGE, FILES)
    for file in files:
        import_module(".".join(("clusterproof", *file.relative_to(PACKAGE).with_suffix("").parts)))
    return [mutant for file in files for mutant in mutants_of(file, PACKAGE)]


def sampled(mutants: Sequence[Mutant], least: int, seed: int) -> list[Mutant]:
    """The mutants of some files of checks with faults: at least this many, and at most twice as many."""
    by_file: dict[str, list[Mutant]] = {file: [] for file in sorted(set(_files_of_checks().values()))}
    for mutant in mutants:
        by_file.get(mutant.place[0], []).append(mutant)
    files = list(by_file)
    Random(seed).shuffle(files)
    chosen: list[Mutant] = []
    for file in files:
        if len(chosen) < least and len(chosen) + len(by_file[file]) <= 2 * least:
            chosen += by_file[file]
    return chosen


def _files_of_checks() -> dict[str, str]:
    """The file of each node check that faults are for."""
    names = {name for fault in ALL_FAULTS for name in fault.expect}
    return {name: str(Path(check.path).relative_to(PACKAGE)) for name, check in node_checks().items() if name in names}


def _tried_on_faults(mutants: Sequence[Mutant]) -> int:
    files = {mutant.place[0] for mutant in mutants}
    checks = {name for name, file in _files_of_checks().items() if file in files}
    chosen = [fault for fault in ALL_FAULTS if not checks.isdisjoint(fault.expect)]
    with ProcessPoolExecutor(os.cpu_count()) as readers:
        cases = list(faults.cases(faults.begin(readers, chosen), chosen))
    for case in cases:
        case.checks = {name: check for name, check in case.checks.items() if name in checks}
    return _result(mutants, cases, MIN_PERCENT_OF_SAMPLE, {f"{Path(file).parent}/*.py" for file in files})


def _tried_on_all(mutants: Sequence[Mutant]) -> int:
    with ProcessPoolExecutor(os.cpu_count()) as readers:
        evidence = faults.begin(readers, ALL_FAULTS)  # it goes on in the background
        of_tests = list(evaluated.cases(ROOT))
        cases = [*faults.cases(evidence, ALL_FAULTS), *of_tests]
    return _result(mutants, cases, MIN_PERCENT, unit_tests.FILES)


def _left_by_cases(mutants: Sequence[Mutant], cases: Sequence[Case]) -> list[Mutant]:
    """The mutants that no case finds. A check with differing results in two runs is reported, and left out."""
    for case in cases:
        case.learn(str(PACKAGE))
        for name in sorted(case.checks.keys() - case.ran.keys()):
            _say(f"NOT TRIED   {name} says each time something else, or not its words, of {case.name}")
    left = _survivors(mutants, list(Bench(mutants, cases, live_functions(PACKAGE)).killers()))
    _say(f"{len(mutants)} mutants; {len(left)} survive {sum(len(case.ran) for case in cases)} evaluations")
    return left


def _survivors(mutants: Sequence[Mutant], killers: Sequence[str]) -> list[Mutant]:
    return [mutant for mutant, killer in zip(mutants, killers, strict=True) if not killer]


def _result(mutants: Sequence[Mutant], cases: Sequence[Case], least_percent: int, files: Iterable[str]) -> int:
    left = _left_by_cases(mutants, cases)
    killers, tests = unit_tests.killers(ROOT, PACKAGE, left, files)
    left = _survivors(left, killers)
    for mutant in left:
        _say(f"SURVIVES    {mutant.in_words()}")
    killed = len(mutants) - len(left)
    _say(json.dumps({"mutants": len(mutants), "killed": killed, "cases": len(cases), "tests": tests}))
    return 0 if 100 * killed >= least_percent * len(mutants) else 1


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this module is for


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main(sys.argv[1:]))
