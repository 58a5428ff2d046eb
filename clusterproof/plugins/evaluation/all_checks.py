"""The packaged checks, as data: an example of what each finds, and its rules, read off its source; for documents."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeGuard

from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.catalog.log_forms import LogForm, log_forms
from clusterproof.plugins.core.marks import Mark, marks_on
from clusterproof.plugins.evaluation.check import Check, check_of, is_light
from clusterproof.plugins.evaluation.routing import OCCASIONS
from clusterproof.plugins.evidence import group

if TYPE_CHECKING:
    import pytest

PACKAGE = Path(__file__).resolve().parents[2]


@cache
def all_checks() -> dict[str, Check]:
    """Every packaged check by its stable id, in the order of their files."""
    checks = [check for path in sorted((PACKAGE / "checks").rglob("test_*.py")) for check in _of_file(path)]
    return {check.route.check: check for check in checks}


@cache
def node_checks() -> dict[str, Check]:
    """The checks that run on each node and need nothing but what the node reports."""
    return {
        name: check
        for name, check in all_checks().items()
        if not (check.is_of_cluster or check.is_of_run or check.needs_pairs)
    }


def _of_file(path: Path) -> Iterator[Check]:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    module = importlib.import_module(f"clusterproof.{name}")
    for function in vars(module).values():
        is_own = inspect.isfunction(function) and function.__module__ == module.__name__
        if is_own and function.__name__.startswith("test_") and is_light(function):
            yield check_of(function, [*marks_on(function), *marks_on(module)])


def marks_on_check(check: Check) -> list[Mark | pytest.Mark]:
    """The marks of a check's function, then those of its file."""
    module = SimpleNamespace(**inspect.unwrap(check.function).__globals__)  # also where it is in no sys.modules
    return [*marks_on(check.function), *marks_on(module)]


def marks_of(check: Check) -> frozenset[str]:
    """The names of a check's marks."""
    return frozenset(mark.name for mark in marks_on_check(check))


def occasions(check: Check) -> list[str]:
    """The occasions that a check is marked for."""
    return [occasion for occasion in OCCASIONS if occasion in marks_of(check)]


def when(check: Check) -> str:
    """When a check runs, in words."""
    return "with `--run`" if check.is_of_run else ", ".join(occasions(check))


def evaluated_by_pairs() -> frozenset[str]:
    """The checks that are evaluated from measurements of pairs of nodes, by id."""
    return frozenset(name for name, check in all_checks().items() if check.needs_pairs)


EXAMPLES = Path(__file__).with_name("examples.json")


def example_of(check: str) -> str:
    """`GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0`; empty where there is none."""
    return _examples().get(check, "")


@cache
def _examples() -> dict[str, str]:
    data: dict[str, str] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return data


# Modules whose functions say what is wrong.
SAYING = ("clusterproof.checks.", "clusterproof.plugins.evidence.perf.facts")
SAID_BY = {  # the verdict, and the place of the message among what the function is given
    "fail": ("fail", 0),
    "fail_if": ("fail", 1),
    "concern": ("concern", 0),
    "concern_if": ("concern", 1),
    "fail_by_log": ("fail", 2),
    "incomplete": ("incomplete", 0),
    "not_applicable": ("not applicable", 0),
}
ELLIPSIS = "…"
IN_A_GROUP = "… differs; expected as on most nodes of its group"  # what is compared is named at run time
NAMED_THEN = "…; expected …"  # observed and expected are put together at run time
WHY_NOT = "for a reason that the finding names"
DEPTH = 3  # of functions of the same package that a check calls, and they call


@dataclass(frozen=True, order=True)
class Rule:
    """One sentence that a check can say; what differs from node to node is `…` in it."""

    verdict: str
    sentence: str


def rules(function: Callable[..., Any]) -> list[Rule]:
    """What a check can say, in the order of its source."""
    sources = list(_sources(function, DEPTH))
    given = _given([tree for tree, _ in sources])
    found = [rule for tree, called in sources for rule in _said(tree, _Scope(called, _assigned(tree), given))]
    return list(dict.fromkeys(found))


def thresholds_of(function: Callable[..., Any]) -> list[str]:
    """The names of the thresholds that a check compares with."""
    nodes = [node for tree, _ in _sources(function, DEPTH) for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    texts |= {form.rate for node in nodes if _says_lines(node) for form in _forms_of(node.args[1])}
    return sorted(name for name in texts if name in thresholds())


@dataclass(frozen=True)
class _Scope:
    """A function, and what stands behind the names in it: its variables, and what its callers give it."""

    function: Callable[..., Any]
    assigned: Mapping[str, list[ast.expr]]
    given: Mapping[str, list[ast.Call]]

    def behind(self, name: str) -> list[ast.expr]:
        """The expressions that a name can stand for; none where they are unknown."""
        if name in self.assigned:
            return self.assigned[name]
        parameters = list(inspect.signature(self.function).parameters)
        if name not in parameters:
            return []
        place = parameters.index(name)
        return [call.args[place] for call in self.given.get(self.function.__name__, ()) if len(call.args) > place]

    def sentences(self, words: ast.expr, depth: int = DEPTH) -> Iterator[str]:
        """What a message can be, each way in which it is put together."""
        if isinstance(words, ast.IfExp):
            yield from self.sentences(words.body, depth)
            yield from self.sentences(words.orelse, depth)
        elif isinstance(words, ast.Name) and depth and self.behind(words.id):
            for one in self.behind(words.id):
                yield from self.sentences(one, depth - 1)
        else:
            found = sentence(words)
            yield self._compared(words) if found == ELLIPSIS else found

    def _compared(self, words: ast.expr) -> str:
        """What is said where all of a message is put together at run time."""
        called = words.func.id if isinstance(words, ast.Call) and isinstance(words.func, ast.Name) else ""
        is_of_group = inspect.unwrap(self.function).__globals__.get(called) is group.in_words
        return IN_A_GROUP if is_of_group else NAMED_THEN


def _assigned(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """What a function's variables are set to."""
    data: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            data.setdefault(node.targets[0].id, []).append(node.value)
    return data


def _given(trees: Iterable[ast.AST]) -> dict[str, list[ast.Call]]:
    """The calls of functions, by their names."""
    data: dict[str, list[ast.Call]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                data.setdefault(node.func.id, []).append(node)
    return data


def _sources(function: Callable[..., Any], depth: int) -> Iterator[tuple[ast.AST, Callable[..., Any]]]:
    """The syntax of a function and of those that it names and that say something too."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    yield tree, function
    if not depth:
        return
    scope = inspect.unwrap(function).__globals__
    for name in dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
        called = scope.get(name)
        is_ours = inspect.isfunction(called) and called.__module__.startswith(SAYING)
        if is_ours and called is not function:
            yield from _sources(called, depth - 1)


def _said(tree: ast.AST, scope: _Scope) -> Iterator[Rule]:
    for node in ast.walk(tree):
        if _says_lines(node):
            yield from _of_lines(*node.args[1:3])
            continue
        if isinstance(node, ast.Assert) and node.msg:
            verdict, message = "fail", node.msg
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_failure(node.exc.func):
            verdict, message = "fail", node.exc.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY:
            verdict, place = SAID_BY[node.func.id]
            message = node.args[place]
        else:
            continue
        for words in scope.sentences(message):
            yield Rule(verdict, WHY_NOT if (verdict, words) == ("not applicable", NAMED_THEN) else words)


def _says_lines(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this says what lines of the kernel log mean (`wording.say`)."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "say"


def _of_lines(check: ast.expr, expected: ast.expr) -> Iterator[Rule]:
    """What forms of the kernel log's lines mean that a check evaluates."""
    for form in _forms_of(check):
        if not form.event:
            meaning = re.sub(r"\{\w+\}", ELLIPSIS, form.meaning) or ELLIPSIS
            yield Rule(form.verdict, f"{ELLIPSIS}: {meaning}; expected {sentence(expected)}")


def _forms_of(check: ast.expr) -> list[LogForm]:
    return [form for form in log_forms().values() if isinstance(check, ast.Constant) and form.check == check.value]


def _is_failure(raised: ast.expr) -> bool:
    return isinstance(raised, ast.Name) and raised.id == "AssertionError"


def sentence(words: ast.expr) -> str:
    """The words of a message; whatever is put into it is an ellipsis."""
    if isinstance(words, ast.Constant):
        return str(words.value)
    if isinstance(words, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else ELLIPSIS for part in words.values)
    if isinstance(words, ast.BinOp):
        return sentence(words.left) + sentence(words.right)
    return ELLIPSIS
