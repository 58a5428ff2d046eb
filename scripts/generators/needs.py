"""Records what each packaged check reads: `scripts/generate needs [CHECK …]`, after a check reads something new.

Watches every check on each node of the fault matrix and on each node that the tests of checks evaluate. Checks that are
named are watched on their own faults and their folder's tests only, which takes seconds. Existing records stay for
checks that are not named, and where a fault cannot be injected, as without root.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

from clusterproof.plugins.evaluation import needs
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.check import SUBJECTS
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from scripts.arguments import Arguments, near
from tests.builders.reads import watched
from tests.faults import ALL_FAULTS, FAULTS
from tests.mutants import evaluated, faults
from tests.mutants.cases import Case, forget

ROOT = Path(__file__).resolve().parents[2]


def recorded(chosen: Collection[str] = ()) -> dict[str, list[str]]:
    """The collectors and lists of devices that each check reads, seen on the named checks' faults, or on all."""
    wanted = [fault for fault in ALL_FAULTS if not chosen or not fault.expect.keys().isdisjoint(chosen)]
    with ProcessPoolExecutor(os.cpu_count()) as readers:
        evidence = faults.begin(readers, wanted)  # it goes on in the background
        is_whole = not chosen and len(evidence) == len(FAULTS)
        cases = [case for tests in _tests(chosen) for case in evaluated.judged_by(*tests)[1]]
        cases += faults.cases(evidence, wanted)
    for case in cases:
        case.checks = {name: check for name, check in case.checks.items() if not chosen or name in chosen}
    seen = _seen(cases)
    before = {} if is_whole else needs.recorded()
    nothing = frozenset[str]()
    return {name: sorted(seen.get(name, nothing) | before.get(name, nothing)) for name in sorted({*seen, *before})}


def _tests(chosen: Collection[str]) -> list[list[str]]:
    """The tests that evaluate these checks, as command-line arguments."""
    if chosen:
        folders = {ROOT / "tests" / "checks" / Path(all_checks()[name].path).parent.name for name in chosen}
        return [[str(folder) for folder in sorted(folders) if folder.is_dir()]]
    return [
        [str(ROOT / test) for test in evaluated.TESTS],
        [str(ROOT / "tests" / room) for room in ("checks", "manifest")],
    ]


def _seen(cases: Iterable[Case]) -> Mapping[str, frozenset[str]]:
    """The collectors and lists of devices that each check read."""
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


def main(arguments: Sequence[str]) -> None:
    """Write the file."""
    parser = Arguments("scripts/generate needs", __doc__)
    parser.add_argument("check", nargs="*", metavar="CHECK", help="all checks by default")
    chosen: list[str] = parser.parse_args(arguments).check
    for name in chosen:
        if name not in all_checks():
            parser.error(
                f"{name!r:.80} is not a check{near(name, list(all_checks()))}; expected an id such as host.swap"
            )
    rows = (f"{json.dumps(name)}: {json.dumps(collectors)}" for name, collectors in recorded(chosen).items())
    needs.FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main(sys.argv[1:])
