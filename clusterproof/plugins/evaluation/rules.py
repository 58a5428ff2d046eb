"""Extracts a check's rules from its source: which verdict it gives when, in its own messages."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from clusterproof.plugins.catalog import thresholds
from clusterproof.plugins.catalog.log_forms import LogForm, log_forms
from clusterproof.plugins.evidence import group

# Modules whose functions report findings.
MESSAGE_MODULES = (
    "clusterproof.checks.",
    "clusterproof.plugins.evidence.perf.comparison",
    "clusterproof.plugins.evidence.perf.facts",
    "clusterproof.plugins.evidence.host.facts",
)
VERDICT_FUNCTIONS = {  # the verdict, and the position of the message among the function's arguments
    "fail": ("fail", 0),
    "fail_if": ("fail", 1),
    "concern": ("concern", 0),
    "concern_if": ("concern", 1),
    "fail_by_log": ("fail", 2),
    "incomplete": ("incomplete", 0),
    "not_applicable": ("not applicable", 0),
}
ELLIPSIS = "…"
IN_A_GROUP = "… differs; expected as on most nodes of its group"  # the compared value is named at run time
NAMED_AT_RUN_TIME = "…; expected …"  # observed and expected are composed at run time
WHY_NOT = "for a reason that the finding names"
DEPTH = 3  # how many calls within the same package are followed from a check


@dataclass(frozen=True, order=True)
class Rule:
    """One message that a check can give; variable parts are `…`."""

    verdict: str
    sentence: str


def rules(function: Callable[..., Any]) -> list[Rule]:
    """A check's messages, in source order."""
    sources = list(_sources(function, DEPTH))
    given = _given([tree for tree, _ in sources])
    rules = [rule for tree, called in sources for rule in _rules_in(tree, _Scope(called, _assigned(tree), given))]
    return list(dict.fromkeys(Rule(rule.verdict, _readable(rule.sentence)) for rule in rules))


def _readable(sentence: str) -> str:
    """The message with one ellipsis for each gap; NAMED_THEN if nothing else is left."""
    joined = re.sub("…+", "…", sentence)
    return joined if re.search(r"\w", joined) else WHY_NOT


def thresholds_of(function: Callable[..., Any]) -> list[str]:
    """The names of the thresholds that a check compares with, also where a table gives a part of the name."""
    sources = list(_sources(function, DEPTH))
    nodes = [node for tree, _ in sources for node in ast.walk(tree)]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    texts |= {form.rate for node in nodes if _reports_lines(node) for form in _forms_of(node.args[1])}
    texts |= {key for tree, called in sources for key in _keys(tree, called)}
    composed = [sentence(node).split(ELLIPSIS) for node in nodes if isinstance(node, ast.JoinedStr)]
    texts |= {text.join(parts) for parts in composed if len(parts) == 2 for text in list(texts)}
    return sorted(name for name in texts if name in thresholds())


def _keys(tree: ast.AST, function: Callable[..., Any]) -> Iterator[str]:
    """The keys of the module's tables that a function names."""
    for node in ast.walk(tree):
        table = inspect.unwrap(function).__globals__.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(table, dict):
            yield from (key for key in table if isinstance(key, str))


@dataclass(frozen=True)
class _Scope:
    """A function and what its names refer to: its variables, and its callers' arguments."""

    function: Callable[..., Any]
    assigned: Mapping[str, list[ast.expr]]
    given: Mapping[str, list[ast.Call]]

    def behind(self, name: str) -> list[ast.expr]:
        """The expressions that a name can refer to; none if unknown."""
        if name in self.assigned:
            return self.assigned[name]
        parameters = list(inspect.signature(self.function).parameters)
        if name not in parameters:
            return []
        index = parameters.index(name)
        return [call.args[index] for call in self.given.get(self.function.__name__, ()) if len(call.args) > index]

    def sentences(self, message: ast.expr, depth: int = DEPTH) -> Iterator[str]:
        """The texts that a message can have."""
        if isinstance(message, ast.IfExp):
            yield from self.sentences(message.body, depth)
            yield from self.sentences(message.orelse, depth)
        elif isinstance(message, ast.Name) and depth and self.behind(message.id):
            for expression in self.behind(message.id):
                yield from self.sentences(expression, depth - 1)
        else:
            text = sentence(message)
            yield self._compared(message) if text == ELLIPSIS else text

    def _compared(self, message: ast.expr) -> str:
        """The texts of a message that is entirely composed at run time."""
        called = message.func.id if isinstance(message, ast.Call) and isinstance(message.func, ast.Name) else ""
        is_of_group = inspect.unwrap(self.function).__globals__.get(called) is group.describe
        return IN_A_GROUP if is_of_group else NAMED_AT_RUN_TIME


def _assigned(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """The values that a function's variables are assigned."""
    expressions: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            expressions.setdefault(node.targets[0].id, []).append(node.value)
    return expressions


def _given(trees: Iterable[ast.AST]) -> dict[str, list[ast.Call]]:
    """Calls of functions, by function name."""
    calls: dict[str, list[ast.Call]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                calls.setdefault(node.func.id, []).append(node)
    return calls


def _sources(function: Callable[..., Any], depth: int) -> Iterator[tuple[ast.AST, Callable[..., Any]]]:
    """The syntax trees of a function and of those it refers to that report findings too."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    yield tree, function
    if not depth:
        return
    scope = inspect.unwrap(function).__globals__
    for name in dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
        called = scope.get(name)
        is_ours = inspect.isfunction(called) and called.__module__.startswith(MESSAGE_MODULES)
        if is_ours and called is not function:
            yield from _sources(called, depth - 1)


def _rules_in(tree: ast.AST, scope: _Scope) -> Iterator[Rule]:
    for node in ast.walk(tree):
        if _reports_lines(node):
            yield from _of_lines(*node.args[1:3])
            continue
        if isinstance(node, ast.Assert) and node.msg:
            verdict, message = "fail", node.msg
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_failure(node.exc.func):
            verdict, message = "fail", node.exc.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in VERDICT_FUNCTIONS:
            verdict, index = VERDICT_FUNCTIONS[node.func.id]
            message = node.args[index]
        else:
            continue
        for text in scope.sentences(message):
            yield Rule(verdict, WHY_NOT if (verdict, text) == ("not applicable", NAMED_AT_RUN_TIME) else text)


def _reports_lines(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether this call reports findings on kernel log lines (`wording.report`)."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "report"


def _of_lines(check: ast.expr, expected: ast.expr) -> Iterator[Rule]:
    """The messages for the kernel log patterns that a check evaluates."""
    for form in _forms_of(check):
        if not form.event:
            meaning = re.sub(r"\{\w+\}", ELLIPSIS, form.meaning) or ELLIPSIS
            yield Rule(form.verdict, f"{ELLIPSIS}: {meaning}; expected {sentence(expected)}")


def _forms_of(check: ast.expr) -> list[LogForm]:
    return [form for form in log_forms().values() if isinstance(check, ast.Constant) and form.check == check.value]


def _is_failure(raised: ast.expr) -> bool:
    return isinstance(raised, ast.Name) and raised.id == "AssertionError"


def sentence(message: ast.expr) -> str:
    """The text of a message; inserted values become an ellipsis."""
    if isinstance(message, ast.Constant):
        return str(message.value)
    if isinstance(message, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else ELLIPSIS for part in message.values)
    if isinstance(message, ast.BinOp):
        return sentence(message.left) + sentence(message.right)
    return ELLIPSIS
