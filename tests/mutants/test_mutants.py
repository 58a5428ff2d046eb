"""Mutants: each operator makes its change, and a mutant is found exactly where a case shows it."""

from __future__ import annotations

import ast
import gc
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.check import check_of
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.recordings import boot, node
from tests.mutants.bench import Bench
from tests.mutants.cases import Case
from tests.mutants.mutations import OPERATORS, files_of, installed, live_functions, mutants_of, not_live

pytestmark = pytest.mark.long

CHECK = """
from clusterproof.plugins.core.verdict import concern

def is_old(kernel):
    return kernel == "old"

def test_kernel(node):
    kernel = node.boot.kernel
    if is_old(kernel):
        concern("the kernel is old; expected a new one")
    assert kernel != "bad" and kernel != "worse", f"the kernel is {kernel}; expected a good one"
"""

ENDLESS = """
def test_kernel(node):
    left = 3
    while left > 0:
        left -= 1
        if left != left:
            left = 9
"""


def loaded(folder: Path, text: str) -> ModuleType:
    """The module of a file of checks in a separate checkout."""
    file = folder / "checks" / "test_own.py"
    file.parent.mkdir()
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("own_checks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case(module: ModuleType, root: Path, kernel: str, expected: str = "") -> Case:
    """The check's results on a node with that kernel."""
    evidence = node("gpu001", boot=boot(kernel))
    cluster = Cluster("own", "local", (Target("gpu001"),))
    owner = nodes(cluster, {"gpu001": evidence})["gpu001"]
    made = Case(kernel, owner, {"kernel": check_of(module.test_kernel, [])}, {"kernel": expected})
    made.learn(str(root))
    return made


def survivors(root: Path, *cases: Case) -> set[str]:
    """The changes of the mutants that these cases do not find."""
    mutants = list(mutants_of(root / "checks" / "test_own.py", root))
    bench = Bench(mutants, cases, live_functions(root))
    return {f"{mutant.change}: {mutant.words}" for mutant in mutants if not bench.killer(mutant)}


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("assert dropped", "assert x, 'is not x'", "pass"),
        ("call dropped", "concern(x)", "pass"),
        ("negated", "x == y", "x != y"),
        ("negated", "x < y", "x >= y"),
        ("negated", "x not in y", "x in y"),
        ("negated", "x is None", "x is not None"),
        ("negated", "0 < x < y", "not 0 < x < y"),
        ("and/or swapped", "x and y and z", "x or y or z"),
        ("and/or swapped", "x or y", "x and y"),
        ("never taken", "if x:\n    return", "if False:\n    return"),
        ("never taken", "if x:\n    f()\nelse:\n    g()", "if False:\n    f()\nelse:\n    g()"),
    ],
)
def test_an_operator_changes_what_it_says(change: str, before: str, after: str) -> None:
    statement = ast.parse(before).body[0]
    changed = OPERATORS[change](statement.value if change in ("negated", "and/or swapped") else statement)  # type: ignore[attr-defined]
    assert changed is not None
    assert ast.unparse(changed) == after


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ("assert dropped", "assert x"),  # for the type checker
        ("assert dropped", "assert x is not None, 'no x'"),
        ("never taken", "if x:\n    f()"),  # equals the dropped call
        ("call dropped", "x = f()"),
    ],
)
def test_what_nothing_could_distinguish_from_its_origin_is_not_made(change: str, of: str) -> None:
    assert OPERATORS[change](ast.parse(of).body[0]) is None


def test_every_place_of_a_file_is_changed_once(tmp_path: Path) -> None:
    loaded(tmp_path, CHECK)
    assert [mutant.in_words() for mutant in mutants_of(tmp_path / "checks" / "test_own.py", tmp_path)] == [
        'checks/test_own.py:5 negated: kernel == "old"',
        'checks/test_own.py:10 call dropped: concern("the kernel is old; expected a new one")',
        'checks/test_own.py:11 assert dropped: kernel != "bad" and kernel != "worse"',
        'checks/test_own.py:11 and/or swapped: kernel != "bad" and kernel != "worse"',
        'checks/test_own.py:11 negated: kernel != "bad"',
        'checks/test_own.py:11 negated: kernel != "worse"',
    ]


def test_a_mutant_is_taken_out_again(tmp_path: Path) -> None:
    module = loaded(tmp_path, CHECK)
    [negated] = [
        mutant for mutant in mutants_of(tmp_path / "checks" / "test_own.py", tmp_path) if mutant.place[1] == "is_old"
    ]
    with installed(negated, live_functions(tmp_path)):
        assert not module.is_old("old")
    assert module.is_old("old")


def test_a_function_is_found_though_somebody_froze_what_there_is(tmp_path: Path) -> None:
    module = loaded(tmp_path, CHECK)
    gc.freeze()
    live = live_functions(tmp_path)
    assert [module.is_old] in live.values()


def test_a_mutant_that_no_function_can_become_is_an_error(tmp_path: Path) -> None:
    module = loaded(tmp_path, CHECK)
    del module.is_old
    mutants = list(mutants_of(tmp_path / "checks" / "test_own.py", tmp_path))
    live = live_functions(tmp_path)
    assert [mutant.place[1] for mutant in not_live(mutants, live)] == ["is_old"]
    with pytest.raises(LookupError, match=r"test_own.py:5 negated.*no function is there"), installed(mutants[0], live):
        pass


def test_a_healthy_node_alone_finds_no_assert_that_was_dropped(tmp_path: Path) -> None:
    module = loaded(tmp_path, CHECK)
    assert survivors(tmp_path, case(module, tmp_path, "good")) == {
        'assert dropped: kernel != "bad" and kernel != "worse"',
        'and/or swapped: kernel != "bad" and kernel != "worse"',
        'call dropped: concern("the kernel is old; expected a new one")',
    }


def test_each_fault_finds_what_it_shows(tmp_path: Path) -> None:
    module = loaded(tmp_path, CHECK)
    bad = case(module, tmp_path, "bad")
    assert bad.verdicts == {"kernel": Verdict.FAIL}
    assert survivors(tmp_path, bad) == {
        'call dropped: concern("the kernel is old; expected a new one")',
        'negated: kernel != "worse"',
    }
    assert survivors(tmp_path, *(case(module, tmp_path, kernel) for kernel in ("good", "bad", "old"))) == set()


def test_words_that_a_fault_asks_for_are_missed(tmp_path: Path) -> None:
    message = 'f"{kernel or 0} is bad"'
    module = loaded(
        tmp_path, f"def test_kernel(node):\n    kernel = node.boot.kernel\n    assert not kernel, {message}\n"
    )
    swapped = "and/or swapped: kernel or 0"
    assert swapped in survivors(tmp_path, case(module, tmp_path, "old"))
    assert swapped not in survivors(tmp_path, case(module, tmp_path, "old", "old is bad"))


def test_a_mutant_without_an_end_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutants.cases.CPU_S", 1.0)
    module = loaded(tmp_path, ENDLESS)
    assert "negated: left != left" not in survivors(tmp_path, case(module, tmp_path, "good"))


def test_a_pattern_that_names_no_file_any_more_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    assert files_of(tmp_path, ["*.py", "a.*"]) == [tmp_path / "a.py"]
    with pytest.raises(RuntimeError, match=r"has no gone\.py; expected a file of each pattern"):
        files_of(tmp_path, ["*.py", "gone.py"])
