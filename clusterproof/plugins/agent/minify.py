"""Shortens programs for transport: removes what only readers need."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
from itertools import count, product
from string import ascii_lowercase

NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
ASKS_BY_NAME = frozenset({"dir", "eval", "exec", "locals", "vars"})  # a function that calls these keeps its names
WITHOUT_PARTS = frozenset({"attr", "ctx", "id", "kind", "op", "ops", "type_comment"})  # of an AST's fields
OF_TYPES = re.compile(r"^from (?:typing|collections\.abc|types) import ([\w, ]+)$", re.MULTILINE)


@cache  # most programs share most modules
def minified(source: str) -> str:
    """A program without docstrings, annotations, comments, most spaces and long local names; line numbers stay.

    Invalid Python is returned unchanged: its collector will report the error.
    """
    try:
        module = ast.parse(source)
        parts = _parts(module)
        idle = dict(_idle_lines(source, module, parts))
        types = sorted(_types(parts), reverse=True)
        has_others = sum(map(_annotations, parts)) > len(types)
        short = _without_spaces(_with_short_names(_without(types, source)))
        lines = _without_idle_imports(short, has_others).splitlines(keepends=True)
    except (SyntaxError, tokenize.TokenError):
        return source
    return "".join(_shortened(line, idle.get(number)) for number, line in enumerate(lines, 1))


def _shortened(line: str, statement: str | None) -> str:
    """The line with this statement in its place, if any, at its indentation."""
    if statement is None:
        return line
    indentation = len(line) - len(line.lstrip(" "))
    return f"{' ' * indentation}{statement}".rstrip() + "\n"


def _parts(tree: ast.AST) -> list[ast.AST]:
    """The tree and its nodes, but for contexts and operators, in the order of `ast.walk`, in a third of the time."""
    nodes = [tree]
    for node in nodes:
        for name in node._fields:
            if name in WITHOUT_PARTS:
                continue
            part = getattr(node, name, None)
            if isinstance(part, list):
                nodes += [one for one in part if isinstance(one, ast.AST)]
            elif isinstance(part, ast.AST):
                nodes.append(part)
    return nodes


def _annotations(part: ast.AST) -> int:
    return bool(getattr(part, "annotation", None)) + bool(getattr(part, "returns", None))


def _without_idle_imports(source: str, has_annotations: bool) -> str:
    """Remove imports that only annotations used, and what keeps annotations unevaluated where none is left."""
    if not has_annotations:
        source = source.replace("from __future__ import annotations\n", "\n", 1)
    for imported in OF_TYPES.finditer(source):
        others = source.replace(imported[0], "")
        if not any(re.search(rf"\b{name}\b", others) for name in re.findall(r"\w+", imported[1])):
            source = others
    return source


def _without(types: Iterable[tuple[int, int, int]], source: str) -> str:
    """Remove these annotations, the last first."""
    lines = source.encode().splitlines(keepends=True)  # AST columns count bytes
    for line, start, end in types:
        before = lines[line - 1][:start].rstrip()
        cut = before.removesuffix(b"->") if before.endswith(b"->") else before.removesuffix(b":")
        lines[line - 1] = cut.rstrip() + lines[line - 1][end:]
    return b"".join(lines).decode()


def _types(parts: list[ast.AST]) -> Iterator[tuple[int, int, int]]:
    """Line, first and last column of each annotation that may go, in bytes; those of class attributes stay."""
    of_classes = {id(line) for block in parts if isinstance(block, ast.ClassDef) for line in block.body}
    hints: list[ast.expr | None] = []
    for part in parts:
        if isinstance(part, ast.FunctionDef):
            data = part.args
            arguments = [*data.posonlyargs, *data.args, *data.kwonlyargs, data.vararg, data.kwarg]
            hints += [part.returns, *(argument.annotation for argument in arguments if argument)]
        elif isinstance(part, ast.AnnAssign) and part.simple and part.value and id(part) not in of_classes:
            hints.append(part.annotation)
    for hint in hints:
        if hint is not None and hint.end_lineno == hint.lineno and hint.end_col_offset is not None:
            yield hint.lineno, hint.col_offset, hint.end_col_offset


def _with_short_names(source: str) -> str:
    """Rename functions' local variables to one or two letters; arguments keep their names."""
    tree = ast.parse(source)
    functions = [_parts(function) for function in _functions(tree)]
    outside = _names_of_module(tree)
    if "*" in outside:  # import *: all names of another module
        return source
    known = outside.union(*({node.id for node in nodes if isinstance(node, ast.Name)} for nodes in functions))
    known = known.union(*map(_kept_names, functions))
    lines = source.encode().split(b"\n")  # AST columns count bytes
    places: list[tuple[int, int, int, str]] = []
    for nodes in functions:
        own = _local_names(nodes) - outside
        short, free = {name: name for name in own if len(name) == 1}, _short_names(known)
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in own:
                name = short.get(node.id) or short.setdefault(node.id, next(free))
                places.append((node.lineno, node.col_offset, node.end_col_offset or 0, name))
    for line, start, end, name in sorted(places, reverse=True):
        lines[line - 1] = lines[line - 1][:start] + name.encode() + lines[line - 1][end:]
    return b"\n".join(lines).decode()


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions of a module and of its classes, each with its nested functions."""
    for part in tree.body:
        parts = part.body if isinstance(part, ast.ClassDef) else [part]
        yield from (one for one in parts if isinstance(one, ast.FunctionDef))


def _short_names(known: set[str]) -> Iterator[str]:
    words = ("".join(letters) for size in count(1) for letters in product(ascii_lowercase, repeat=size))
    return (word for word in words if word not in known and not keyword.iskeyword(word))


def _local_names(function: Iterable[ast.AST]) -> set[str]:
    """Names that a function assigns, except those that also occur where an AST gives no position."""
    names = [node for node in function if isinstance(node, ast.Name)]
    has_class = any(isinstance(node, ast.ClassDef) for node in function)
    if has_class or ASKS_BY_NAME.intersection(node.id for node in names):
        return set()
    return {node.id for node in names if isinstance(node.ctx, ast.Store)} - _kept_names(function)


def _kept_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names of arguments, functions, imports, exceptions and patterns, and those within f-strings."""
    kept: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.Name, ast.Attribute, ast.Constant, ast.Call)):
            continue  # most are
        if isinstance(node, ast.arg):
            kept.add(node.arg)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            kept.update(node.names)
        elif isinstance(node, NAMED):
            kept.add(node.name or "")
        elif isinstance(node, ast.MatchMapping):
            kept.add(node.rest or "")
        elif isinstance(node, ast.alias):
            kept.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.JoinedStr):
            kept.update(word.id for word in _parts(node) if isinstance(word, ast.Name))
    return kept


def _names_of_module(tree: ast.Module) -> set[str]:
    """Module-level and builtin names that a function may refer to."""
    names = set(dir(builtins))
    for part in tree.body:
        nodes = [part] if isinstance(part, (ast.FunctionDef, ast.ClassDef)) else _parts(part)
        names |= _kept_names(nodes) | {node.id for node in nodes if isinstance(node, ast.Name)}
    return names


def _without_spaces(source: str) -> str:
    """Indent by one space, keep only spaces between words, and no comments; strings stay.

    Raises SyntaxError, TokenError.
    """
    lines = source.split("\n")
    cuts: list[tuple[int, int, int, str]] = []
    level, nested, end = 0, 0, (0, 0)
    for token in tokenize.generate_tokens(StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        level += (name == "INDENT") - (name == "DEDENT")
        if name in ("INDENT", "DEDENT", "NL", "NEWLINE", "ENDMARKER"):
            continue
        (row, column), line = token.start, lines[token.start[0] - 1]
        if name == "COMMENT":
            cuts.append((row, len(line[:column].rstrip()), len(line), ""))
            continue
        if row != end[0]:
            cuts.append((row, 0, column, " " * level))
        elif not nested and end[1] < column and not _are_words(line[end[1] - 1], line[column]):
            cuts.append((row, end[1], column, ""))
        nested += (name == "FSTRING_START") - (name == "FSTRING_END")
        end = token.end
    for row, start, stop, instead in reversed(cuts):
        lines[row - 1] = lines[row - 1][:start] + instead + lines[row - 1][stop:]
    return "\n".join(lines)


def _are_words(*characters: str) -> bool:
    return all(character.isalnum() or character in "_." for character in characters)


def _idle_lines(source: str, module: ast.Module, parts: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """The number of each line that does nothing when run, and what takes its place: `pass`, or nothing."""
    lines = source.encode().splitlines()  # AST columns count bytes
    for block in parts:
        if isinstance(block, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = block.body[0] if block.body else None
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if first and is_docstring and not lines[first.lineno - 1][: first.col_offset].strip():
                yield from _numbered(first)
                yield first.lineno, "" if len(block.body) > 1 else "pass"
    for block in module.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING" and not block.orelse:
            yield from _numbered(block)


def _numbered(statement: ast.stmt) -> Iterator[tuple[int, str]]:
    return ((number, "") for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
