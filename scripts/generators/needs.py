"""Records what each packaged check reads: `scripts/generate needs`, after a check reads something new.

Every check is watched on every node of the fault matrix, and on all that the tests of checks evaluate. Where a fault
cannot be put into a node, as without root, what is recorded already stays.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite import needs_of_check
from clusterproof.plugins.suite.all_checks import all_checks
from clusterproof.plugins.suite.evaluate import evaluate
from clusterproof.plugins.suite.subjects import SUBJECTS
from tests.builders.reads import watched
from tests.faults import FAULTS
from tests.mutants import evaluated, faults
from tests.mutants.cases import Case, forget

ROOT = Path(__file__).resolve().parents[2]
TESTS = [str(ROOT / "tests" / room) for room in ("checks", "manifest")]


def recorded() -> dict[str, list[str]]:
    """The collectors that each check reads, and each list of devices."""
    with ProcessPoolExecutor(os.cpu_count()) as readers:
        data = faults.begin(readers)  # which goes on meanwhile
        is_whole = len(data) == len(FAULTS)
        _, of_others = evaluated.judged_by(*(str(ROOT / test) for test in evaluated.TESTS))
        _, of_tests = evaluated.judged_by(*TESTS)
        cases = [*faults.cases(data), *of_tests, *of_others]
    seen = _seen(cases)
    before = {} if is_whole else needs_of_check.recorded()
    nothing = frozenset[str]()
    return {name: sorted(seen.get(name, nothing) | before.get(name, nothing)) for name in sorted({*seen, *before})}


def _seen(cases: Iterable[Case]) -> Mapping[str, frozenset[str]]:
    """What each check reads, and each list of devices."""
    devices: dict[str, set[object]] = {subject: set() for subject in SUBJECTS}
    with watched() as watch:
        for case in cases:
            for check in case.checks.values():
                forget(case.owner)
                evaluate(check, case.owner)
            if isinstance(case.owner, Node):
                for subject, of_node in SUBJECTS.items():
                    with watch.reading() as own, suppress(Exception):
                        list(of_node(case.owner))
                    devices[subject] |= own
    of_checks = {name: reads for name, reads in watch.by_check.items() if name in all_checks()}
    return {**{subject: watch.collectors(read) for subject, read in devices.items()}, **of_checks}


def main() -> None:
    """Write the file."""
    rows = (f"{json.dumps(name)}: {json.dumps(collectors)}" for name, collectors in recorded().items())
    needs_of_check.FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
