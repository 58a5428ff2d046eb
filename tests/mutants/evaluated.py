"""The cases of tests that ask AWS or Slurm, or measure pairs, once: what they evaluated is kept to be evaluated again.

Those tests compare every verdict with a table, so that one that differs is one that they would find.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.result import Finding
from clusterproof.plugins.evaluation import evaluate as evaluating
from clusterproof.plugins.evaluation.check import Check, CheckOwner
from tests.mutants.cases import Case

TESTS = (
    "tests/aws/test_cluster_checks.py",
    "tests/aws/test_fsx.py",
    "tests/aws/test_fsx_load.py",
    "tests/aws/test_placement.py",
    "tests/checks/perf/test_pairs.py",
    "tests/checks/control_plane/test_slurm.py",
)


def cases(root: Path) -> Iterable[Case]:
    """What those tests evaluate, as cases. Raises RuntimeError where they do not pass."""
    ended, found = judged_by(*(str(root / test) for test in TESTS))
    if ended is not pytest.ExitCode.OK:
        raise RuntimeError(f"the tests do not pass as they are: {ended!r}")
    return found


def judged_by(*words: str) -> tuple[int, list[Case]]:
    """How the tests end that these words of a command line choose, and what they evaluate."""
    kept: dict[int, tuple[Any, dict[str, Check]]] = {}
    findings = evaluating._findings  # by which every verdict comes about, whoever has imported what calls it

    def remembered(check: Check, owner: CheckOwner) -> list[Finding]:
        kept.setdefault(id(owner), (owner, {}))[1][check.route.check] = check
        return findings(check, owner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluating, "_findings", remembered)
        ended = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "--all", *words])
    return ended, [Case(f"{owner.name} of the tests", owner, checks) for owner, checks in kept.values()]
