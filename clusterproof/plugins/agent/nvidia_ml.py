"""The part of nvidia-ml-py that programs use, which travels with them: nodes need not have it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from clusterproof.plugins.agent.minify import minified

DEFINED = re.compile(r"(?:@.*\n)*(?:def|class) +(\w+)|(\w+) *=(?!=)|(?:from [\w.]+ )?import +([\w*]+)")
CALLED = re.compile(r"\w+\(")
FORMATS = re.compile(r"^ +_fmt_ *= *\{[^{}]+\}.*\n", re.MULTILINE)  # of the fields of a structure
FOR_WINDOWS = re.compile(r"""^( +)if ?\(?sys\.platform\[:3\] == "win"\)?:\n(?:\1 .*\n|\n)*\1else:\n""", re.MULTILINE)
COMMENTS = re.compile(r"^#.*\n", re.MULTILINE)
BLANK_LINES = re.compile(r"\n\n+")


def pynvml_for(sources: Iterable[str]) -> str:
    """The part of nvidia-ml-py that these programs use. Raises ModuleNotFoundError."""
    wanted = {word for source in sources if "import pynvml" in source for word in words(source)}
    return _part_of(pynvml_source(), frozenset(wanted))


@cache
def _part_of(source: str, wanted: frozenset[str]) -> str:
    return BLANK_LINES.sub("\n", minified(reachable(source, wanted)))


def pynvml_source() -> str:
    """The source of the installed nvidia-ml-py for Linux, whose structures need not print.

    Raises ModuleNotFoundError.
    """
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("nvidia-ml-py is not installed; pip install nvidia-ml-py")
    return FORMATS.sub("", FOR_WINDOWS.sub(r"\1if True:\n", Path(spec.origin).read_text("utf-8")))


def words(source: str) -> Iterator[str]:
    """Every name, attribute and string of a program: anything by which it can refer to a module's names."""
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
    """The statements of a flat module that define the wanted names and everything those need, unchanged.

    A wanted "CAPITALS_" stands for every name with that prefix: NVML finds its errors that way at run time.
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
    """Whether a statement so far consists of decorators only."""
    return statement.rstrip("\n").rpartition("\n")[2].startswith("@")


def definitions(statements: Iterable[str]) -> dict[str, set[int]]:
    """Maps each defined name to the indexes of the statements that define it."""
    places: dict[str, set[int]] = {}
    for number, statement in enumerate(statements):
        defined = DEFINED.match(statement)
        if defined:
            places.setdefault(next(filter(None, defined.groups())), set()).add(number)
    return places


def _defining(word: str, definitions: Mapping[str, set[int]]) -> set[int]:
    if word.endswith("_") and word.isupper():
        return {n for name, numbers in definitions.items() if name.startswith(word) for n in numbers}
    return definitions.get(word, set())
