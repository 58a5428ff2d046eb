"""Cases from tests that query AWS or Slurm, or measure pairs: run once, with their evaluations kept for reuse.

Those tests compare every verdict with a table, so they would notice one that differs.
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
    """The evaluations of those tests, as cases. Raises RuntimeError if they do not pass."""
    ended, collected = judged_by(*(str(root / test) for test in TESTS))
    if ended is not pytest.ExitCode.OK:
        raise RuntimeError(f"the tests do not pass as they are: {ended!r}")
    return collected


def judged_by(*arguments: str) -> tuple[int, list[Case]]:
    """The outcome of the tests selected by these arguments, and their evaluations."""
    kept: dict[int, tuple[Any, dict[str, Check]]] = {}
    findings = evaluating._findings  # every verdict passes through it, whoever has imported its callers

    def remembered(check: Check, owner: CheckOwner) -> list[Finding]:
        kept.setdefault(id(owner), (owner, {}))[1][check.route.check] = check
        return findings(check, owner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluating, "_findings", remembered)
        ended = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "--all", *arguments])
    return ended, [Case(f"{owner.name} of the tests", owner, checks) for owner, checks in kept.values()]
