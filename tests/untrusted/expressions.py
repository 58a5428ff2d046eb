"""Finds every regular expression of the product: in module globals, in tables, and written or built in functions."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from clusterproof import checks, fixtures, integrations, plugins, reports
from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.log_forms import patterns
from clusterproof.plugins.catalog.rows import parse
from clusterproof.plugins.evidence.software import collect_versions

CATALOG = Path(plugins.__path__[0], "catalog")
KEYS_OF_EXPRESSIONS = ("pattern", "vendor", "product")
WORD = "word"  # for values that only a call knows: a name, a number that marks a run
PACKAGES = (checks, fixtures, integrations, plugins, reports)
LOOKING = frozenset({"search", "findall", "finditer", "sub", "subn", "split"})  # from every place of a text


@dataclass(frozen=True, order=True)
class Expression:
    """An expression, its location, and whether it is searched for at every position of a text."""

    pattern: str
    flags: int
    is_searched: bool
    where: str = ""


@functools.cache
def expressions() -> list[Expression]:
    """All of the product's expressions, in module globals, in tables, and where they are used."""
    by_pattern: dict[tuple[str, int], Expression] = {}
    for expression in _all():
        key = expression.pattern, expression.flags
        if key not in by_pattern or (expression.is_searched and not by_pattern[key].is_searched):
            by_pattern[key] = expression
    return sorted(by_pattern.values())


def _all() -> Iterator[Expression]:
    for module in _modules():
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        methods = _methods(tree)
        for name, value in vars(module).items():
            for each in _within(value):
                used = methods.get(name, LOOKING if _is_table(value) else frozenset())
                yield Expression(each.pattern, each.flags & ~re.UNICODE, bool(used & LOOKING), module.__name__)
        yield from _written(tree, module)
    yield from (Expression(text, 0, is_searched=False, where=name) for name, text in of_tables())
    yield from (Expression(text, 0, is_searched=True, where="FILES") for *_, text in collect_versions.FILES)
    yield from (Expression(text, re.IGNORECASE, is_searched=False, where=name) for name, text in patterns().items())


def _modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".test_" not in info.name and "__main__" not in info.name:
                try:
                    yield importlib.import_module(info.name)
                except ImportError:
                    continue  # of a library that is not installed


def _is_table(value: object) -> bool:
    return not isinstance(value, (re.Pattern, Pattern))


def _within(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, (Pattern, re.Pattern)):
        yield re.compile(*_as_text(value.pattern, value.flags))
    elif isinstance(value, Mapping) and depth < 3:
        yield from (each for part in (*value, *value.values()) for each in _within(part, depth + 1))
    elif is_dataclass(value) and not isinstance(value, type) and depth < 3:
        yield from (each for part in fields(value) for each in _within(getattr(value, part.name, None), depth + 1))
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < 3:
        yield from (each for part in value for each in _within(part, depth + 1))


def _methods(tree: ast.AST) -> dict[str, frozenset[str]]:
    """The methods of each name that a module uses; a name that is passed on may be used in any way."""
    used: dict[str, set[str]] = {}
    taken = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in taken:
            used.setdefault(node.id, set()).update(LOOKING)
    return {name: frozenset(methods) for name, methods in used.items()}


def _written(tree: ast.AST, module: ModuleType) -> Iterator[Expression]:
    """`re.search("…", text)` inside a function, also for expressions built there."""
    of_module = {id(node) for node in _of_its_own(tree)}
    for call, text in _calls(tree, module):
        names = {each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute)}
        flags = sum(getattr(re, name) for name in names if name.isupper() and hasattr(re, name))
        anyhow = () if id(call) in of_module else ("compile",)  # in a function it may be used in any way
        used = {str(getattr(call.func, "attr", ""))} & {*LOOKING, *anyhow}
        if text is not None:
            yield Expression(*_as_text(text, int(flags)), bool(used), module.__name__)


def untold() -> list[str]:
    """Where a function uses an expression that only its caller knows."""
    functions = [
        f"{module.__name__.removeprefix('clusterproof.plugins.')}: {ast.unparse(call.args[0])}"
        for module in _modules()
        for call, text in _calls(ast.parse(Path(str(module.__file__)).read_text("utf-8")), module)
        if text is None
    ]
    return sorted(set(functions))


def of_tables() -> Iterator[tuple[str, str]]:
    """The expressions of the catalogue's tables, each for a whole value: unchanged, and without spaces."""
    for file in sorted(CATALOG.glob("*.toml")):
        for key, text in _entries(parse(file.read_text("utf-8"), file.name)):
            if key in KEYS_OF_EXPRESSIONS:
                yield file.name, text
                yield file.name, "".join(text.split())


def _entries(document: Any) -> Iterator[tuple[str, str]]:
    for key, value in document.items() if isinstance(document, dict) else (("", each) for each in document):
        if isinstance(value, (dict, list)):
            yield from _entries(value)
        elif isinstance(value, str):
            yield key, value


_CALLED = re.compile(r"re\.(?!escape)\w+")


def _calls(tree: ast.AST, module: ModuleType) -> Iterator[tuple[ast.Call, str | bytes | None]]:
    """The calls of `re` with the expression of each: None if it cannot be determined."""
    for function in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))):
        for node in _of_its_own(function):
            if not isinstance(node, ast.Call) or not node.args or not _CALLED.fullmatch(ast.unparse(node.func)):
                continue
            if function is not tree or isinstance(node.args[0], ast.Constant):
                yield node, _evaluated(node.args[0], function, module)


def _of_its_own(function: ast.AST) -> Iterator[ast.AST]:
    """A function's body without nested functions."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _of_its_own(node)


def _evaluated(expression: ast.expr, function: ast.AST, module: ModuleType) -> str | bytes | None:
    """An expression with a word for each value that only the call knows; None if that is all of it."""
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)} - vars(module).keys()
    local = {name: _assigned(name, function, module) for name in names - vars(builtins).keys()}
    if isinstance(expression, ast.Name) and expression.id in local:
        return local[expression.id]
    for word in (WORD, WORD.encode()):
        values = {name: word if value is None else value for name, value in local.items()}
        try:
            evaluated = eval(compile(ast.Expression(expression), "", "eval"), {**vars(module), **values})
        except (AttributeError, TypeError, ValueError, KeyError):
            continue
        pattern = getattr(evaluated, "pattern", evaluated)
        if isinstance(pattern, (str, bytes)):
            return pattern
    return None


def _assigned(name: str, function: ast.AST, module: ModuleType) -> str | bytes | None:
    """The value of a name that a function assigns once."""
    lines = [node for node in _of_its_own(function) if isinstance(node, ast.Assign)]
    given = [line.value for line in lines if name in map(ast.unparse, line.targets)]
    return _evaluated(given[0], function, module) if len(given) == 1 else None


def _as_text(pattern: str | bytes, flags: int) -> tuple[str, int]:
    """A bytes expression as a text expression, where each byte is a character."""
    return (pattern, flags) if isinstance(pattern, str) else (pattern.decode("latin-1"), flags | re.ASCII)
