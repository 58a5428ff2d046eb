"""Mutants: functions of checks and of the catalogue with one mistake, swapped with the live ones and back again.

Omitted because nothing could distinguish them from the original: a dropped assert without a message or with `x is not
None`, which only serves the type checker; and a branch never taken that is a single call, which equals the dropped
call.
"""

from __future__ import annotations

import ast
import copy
import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Function: TypeAlias = "ast.FunctionDef | ast.Lambda"
Place: TypeAlias = "tuple[str, str, int]"  # a function's file, name, and first line including decorators

OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def files_of(folder: Path, patterns: Iterable[str]) -> list[Path]:
    """A folder's files that match any pattern. Raises RuntimeError for a pattern without a match."""
    by_pattern = {pattern: list(folder.glob(pattern)) for pattern in patterns}
    nothing = [pattern for pattern, files in by_pattern.items() if not files]
    if nothing:
        raise RuntimeError(f"{folder} has no {', '.join(nothing)}; expected a file of each pattern")
    return sorted({file for files in by_pattern.values() for file in files})


def without_assert(node: ast.AST) -> ast.AST | None:
    """Drop an assert."""
    is_for_types = isinstance(node, ast.Assert) and (node.msg is None or _is_narrowing(node.test))
    return ast.Pass() if isinstance(node, ast.Assert) and not is_for_types else None


def _is_narrowing(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.IsNot):
        return False
    return isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None


def without_call(node: ast.AST) -> ast.AST | None:
    """Drop a call whose value is unused."""
    return ast.Pass() if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None


def negated(node: ast.AST) -> ast.AST | None:
    """Negate a comparison."""
    if not isinstance(node, ast.Compare):
        return None
    if len(node.ops) > 1:
        return ast.UnaryOp(ast.Not(), node)
    return ast.Compare(node.left, [OPPOSITES[type(node.ops[0])]()], node.comparators)


def swapped(node: ast.AST) -> ast.AST | None:
    """Swap `and` and `or`."""
    if not isinstance(node, ast.BoolOp):
        return None
    return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def never_taken(node: ast.AST) -> ast.AST | None:
    """Never take a branch."""
    if not isinstance(node, ast.If) or (not node.orelse and len(node.body) == 1 and without_call(node.body[0])):
        return None
    return ast.If(ast.Constant(value=False), node.body, node.orelse)


OPERATORS: Mapping[str, Callable[[ast.AST], ast.AST | None]] = {
    "assert dropped": without_assert,
    "call dropped": without_call,
    "negated": negated,
    "and/or swapped": swapped,
    "never taken": never_taken,
}


@dataclass(frozen=True)
class Mutant:
    """One change: its function, lines, operation and words, and how to create its code."""

    place: Place
    lines: range
    change: str
    words: str
    compiled: Callable[[], CodeType] = field(repr=False, compare=False)

    @property
    def is_of_catalogue(self) -> bool:
        """Whether it changes the catalogue rather than a check."""
        return self.place[0].startswith("plugins/catalog/")

    def in_words(self) -> str:
        """`checks/gpu/test_link.py:40 negated: width < widest`."""
        return f"{self.place[0]}:{self.lines.start} {self.change}: {self.words}"


def mutants_of(file: Path, root: Path) -> Iterator[Mutant]:
    """Every mutant of one file's functions, in line order."""
    source = file.read_bytes()
    source_lines = source.splitlines()
    for function in _functions(ast.parse(source)):
        lines = [function.lineno, *(decorator.lineno for decorator in getattr(function, "decorator_list", ()))]
        place = str(file.relative_to(root)), getattr(function, "name", "<lambda>"), min(lines)
        nodes = (node for node in ast.walk(function) if hasattr(node, "lineno"))
        for node in sorted(nodes, key=lambda node: int(node.lineno)):
            for change, operator in OPERATORS.items():
                other = operator(node)
                if other is not None:
                    compiled = partial(_compiled, function, node, other, place, file)
                    yield Mutant(place, _lines(node), change, _source_of(node, source_lines), compiled)


def _functions(tree: ast.AST) -> Iterator[Function]:
    """Functions, methods and lambdas, except nested ones, which change with them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node
        else:
            yield from _functions(node)


def _compiled(function: Function, node: ast.AST, other: ast.AST, place: Place, file: Path) -> CodeType:
    changed = ast.fix_missing_locations(ast.copy_location(other, node))
    function = copy.deepcopy(function, {id(node): changed})
    annotations = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    body: list[ast.stmt] = [annotations, function if isinstance(function, ast.FunctionDef) else ast.Expr(function)]
    module = compile(ast.fix_missing_locations(ast.Module(body, [])), str(file), "exec", dont_inherit=True)
    return next(
        constant for constant in module.co_consts if isinstance(constant, CodeType) and constant.co_name == place[1]
    )


def _lines(node: ast.AST) -> range:
    """The lines of which at least one runs if the change makes a difference."""
    changed = node.test if isinstance(node, ast.If) else node
    assert isinstance(changed, (ast.expr, ast.stmt))
    return range(changed.lineno, (changed.end_lineno or changed.lineno) + 1)


def _source_of(node: ast.AST, lines: Sequence[bytes]) -> str:
    shown = node.test if isinstance(node, (ast.If, ast.Assert)) else node
    assert isinstance(shown, (ast.expr, ast.stmt))
    own = [*lines[shown.lineno - 1 : shown.end_lineno]]
    own[-1] = own[-1][: shown.end_col_offset]  # first, as it may be the only one
    own[0] = own[0][shown.col_offset :]
    return " ".join(b" ".join(own).decode().split())


def live_functions(root: Path) -> Mapping[Place, list[FunctionType]]:
    """The functions under `root` in this process, by place; a module loaded twice has two of each."""
    functions: dict[Place, list[FunctionType]] = defaultdict(list)
    for function in live_objects(FunctionType):
        code = function.__code__
        if code.co_filename.startswith(f"{root}/"):
            functions[code.co_filename.removeprefix(f"{root}/"), code.co_name, code.co_firstlineno].append(function)
    return functions


def live_objects(kind: type[T]) -> list[T]:
    """The objects of a kind in this process, including frozen ones, which `get_objects` leaves out."""
    gc.unfreeze()
    return [
        candidate for candidate in gc.get_objects() if issubclass(type(candidate), kind)
    ]  # isinstance would ask dead weak proxies


def not_live(mutants: Iterable[Mutant], live: Mapping[Place, Sequence[FunctionType]]) -> list[Mutant]:
    """The mutants without a live function at their place."""
    return [mutant for mutant in mutants if not live.get(mutant.place)]


@contextmanager
def installed(mutant: Mutant, live: Mapping[Place, Iterable[FunctionType]]) -> Iterator[None]:
    """Replace the functions at the mutant's place by the mutant."""
    functions = {id(live_code): (live_code, live_code.__code__) for live_code in live.get(mutant.place, ())}.values()
    if not functions:
        raise LookupError(f"{mutant.in_words()}: no function is there; expected one to change")
    changed = mutant.compiled()
    for function, _ in functions:
        function.__code__ = changed
    try:
        yield
    finally:
        for function, code in functions:
            function.__code__ = code
