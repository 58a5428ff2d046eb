"""The rules of a check, read off its source: when it says what, in the words that it says it in."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.catalog import thresholds

SAID_BY = {"fail": "fail", "concern": "concern", "incomplete": "incomplete", "not_applicable": "not applicable"}
DEPTH = 3  # of functions of the same package that a check calls, and they call


@dataclass(frozen=True, order=True)
class Rule:
    """One sentence that a check can say; what differs from node to node is `…` in it."""

    verdict: str
    sentence: str


def rules(function: Callable[..., Any]) -> list[Rule]:
    """What a check can say, in the order of its source."""
    found = [rule for tree, _ in _sources(function, DEPTH) for rule in _said(tree)]
    return list(dict.fromkeys(found))


def thresholds_of(function: Callable[..., Any]) -> list[str]:
    """The names of the thresholds that a check compares with."""
    names = {
        node.value
        for tree, _ in _sources(function, DEPTH)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in thresholds()
    }
    return sorted(names)


def _sources(function: Callable[..., Any], depth: int) -> Iterator[tuple[ast.AST, Callable[..., Any]]]:
    """The syntax of a function and of those of the checks' own that it names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    yield tree, function
    if not depth:
        return
    scope = inspect.unwrap(function).__globals__
    for name in dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
        called = scope.get(name)
        is_ours = inspect.isfunction(called) and called.__module__.startswith("clusterproof.checks.")
        if is_ours and called is not function:
            yield from _sources(called, depth - 1)


def _said(tree: ast.AST) -> Iterator[Rule]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.msg:
            yield Rule("fail", sentence(node.msg))
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_failure(node.exc.func):
            yield Rule("fail", sentence(node.exc.args[0]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY:
            yield Rule(SAID_BY[node.func.id], sentence(node.args[0]))


def _is_failure(raised: ast.expr) -> bool:
    return isinstance(raised, ast.Name) and raised.id == "AssertionError"


def sentence(words: ast.expr) -> str:
    """The words of a message; whatever is put into it is an ellipsis."""
    if isinstance(words, ast.Constant):
        return str(words.value)
    if isinstance(words, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in words.values)
    if isinstance(words, ast.BinOp):
        return sentence(words.left) + sentence(words.right)
    return "…"
