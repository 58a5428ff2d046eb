"""Marks that are set without pytest, and that pytest accepts as its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.marks import mark, marks_of_pytest, marks_on
from tests.builders.runs import Runs

CHECKS = Path(__file__).parents[2] / "checks"
DEMO = Path(__file__).parents[2] / "fixtures" / "demo"

OURS = """
from clusterproof.plugins.core.marks import mark

pytestmark = [mark.gpu, mark.prolog, mark.hyperpod_node_debugger("G")]

@mark.epilog
def test_ours(node): assert node.name

@mark.{name}
def test_other(node): assert node.name
"""
THEIRS = OURS.replace("from clusterproof.plugins.core.marks import mark", "import pytest\nmark = pytest.mark")


@pytest.mark.parametrize(
    ("markexpr", "count"),
    [("gpu", 2), ("epilog", 1), ("not epilog", 1), ("gpu and prolog", 2), ("hyperpod_node_debugger", 2), ("host", 0)],
)
def test_m_chooses_by_our_marks_as_by_those_of_pytest(runs: Runs, markexpr: str, count: int) -> None:
    runs.checks(test_ours=OURS.format(name="preflight"), test_pytests=THEIRS.format(name="preflight"))
    ran = collected(runs, "-m", markexpr)
    for file in ("test_ours.py", "test_pytests.py"):
        assert sum(f"{file}::test_" in line for line in ran.outlines) == count * 16


def test_k_chooses_by_our_marks_as_by_those_of_pytest(runs: Runs) -> None:
    runs.checks(test_it=OURS.format(name="preflight"))
    ran = collected(runs, "-k", "epilog")
    assert sum("::test_ours" in line for line in ran.outlines) == 16


def test_a_mark_that_nobody_has_declared_is_an_error_of_collection(runs: Runs) -> None:
    runs.checks(test_it=OURS.format(name="prologue"))
    ran = collected(runs, "--strict-markers")
    ran.stdout.fnmatch_lines(["*'prologue' not found in `markers` configuration option*"])
    assert ran.ret == pytest.ExitCode.INTERRUPTED


def collected(runs: Runs, *arguments: str) -> pytest.RunResult:
    """What pytest would run on the demo's nodes."""
    return runs.run("--cluster", f"replay:{DEMO}", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments)


def test_a_class_with_our_mark_keeps_its_tests(runs: Runs) -> None:
    of_class = "from clusterproof import mark\n\n@mark.{name}\nclass TestIt:\n    def test_ours(self, node): pass\n"
    runs.checks(test_it=of_class.format(name="host"), test_other=of_class.format(name="gpu"))
    ran = collected(runs, "-m", "host")
    assert [line.partition("[")[0] for line in ran.outlines if "::" in line] == ["test_it.py::TestIt::test_ours"] * 16


def test_marks_stand_in_the_order_in_which_pytest_puts_its_own() -> None:
    def ours() -> None: ...
    def theirs() -> None: ...

    mark.prolog(mark.hyperpod_nccl("13")(ours))
    pytest.mark.prolog(pytest.mark.hyperpod_nccl("13")(theirs))
    expected = [(entry.name, entry.args) for entry in marks_of_pytest(ours)]
    assert expected == [(entry.name, entry.args) for entry in marks_of_pytest(theirs)]
    assert [entry.name for entry in marks_on(ours)] == ["hyperpod_nccl", "prolog"]


@pytest.mark.long
def test_no_check_that_a_prolog_may_need_imports_pytest() -> None:
    modules = [
        "clusterproof." + ".".join(path.relative_to(CHECKS.parent).with_suffix("").parts)
        for path in sorted(CHECKS.rglob("test_*.py"))
        if b"mark.prolog" in (text := path.read_bytes()) or b"mark.epilog" in text
    ]
    assert len(modules) > 20
    looks = f"import sys, {', '.join(modules)}; print(sorted(m for m in sys.modules if 'pytest' in m))"
    ran = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
