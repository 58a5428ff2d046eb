"""The part of nvidia-ml-py's module that the probe reaches: what travels to nodes that lack it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

DEFINED = re.compile(r"(?:@.*\n)*(?:def|class) +(\w+)|(\w+) *=(?!=)|(?:from [\w.]+ )?import +([\w*]+)")
CALLED = re.compile(r"\w+\(")
COMMENTS = re.compile(r"^#.*\n", re.MULTILINE)


def pynvml_source() -> str:
    """The text of the installed nvidia-ml-py. Raises ModuleNotFoundError."""
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nvidia-ml-py is not installed; pip install nvidia-ml-py")
    return Path(spec.origin).read_text("utf-8")


def words(source: str) -> Iterator[str]:
    """Every name, attribute and text of a program: all by which it can ask a module for something."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Global):
            yield from node.names


@cache
def reachable(source: str, wanted: frozenset[str]) -> str:
    """The statements of a flat module that define the wanted names and all that those need, as they stand.

    A wanted "CAPITALS_" is every name that begins so: NVML's errors are found in that way, at run time.
    """
    statements = split(source)
    defined = definitions(statements)
    kept: set[int] = set()
    pending = {n for n, statement in enumerate(statements) if CALLED.match(statement)}
    pending |= _defining("*", defined) | {n for word in wanted for n in _defining(word, defined)}
    while pending:
        number = pending.pop()
        kept.add(number)
        reached = {n for word in words(statements[number]) for n in _defining(word, defined)}
        pending |= reached - kept
    return "".join(statements[number] for number in sorted(kept))


def split(source: str) -> list[str]:
    """The statements of a module: each begins in the first column, and nothing else does."""
    lines = COMMENTS.sub("", source).splitlines(keepends=True)
    statements: list[str] = []
    for line in lines:
        begins = line[:1].isidentifier() or line.startswith(("@", "'''", '"""'))
        if statements and (not begins or _is_decorated(statements[-1])):
            statements[-1] += line
        else:
            statements.append(line)
    return statements


def _is_decorated(statement: str) -> bool:
    """Whether a statement is still only its decorators."""
    return statement.rstrip("\n").rpartition("\n")[2].startswith("@")


def definitions(statements: Iterable[str]) -> dict[str, set[int]]:
    """The names that statements define, each with the numbers of those that do."""
    found: dict[str, set[int]] = {}
    for number, statement in enumerate(statements):
        defined = DEFINED.match(statement)
        if defined:
            found.setdefault(next(filter(None, defined.groups())), set()).add(number)
    return found


def _defining(word: str, definitions: Mapping[str, set[int]]) -> set[int]:
    if word.endswith("_") and word.isupper():
        return {n for name, numbers in definitions.items() if name.startswith(word) for n in numbers}
    return definitions.get(word, set())
