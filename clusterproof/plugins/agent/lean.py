"""A program's text without what only its readers need, so that it is short on the wire."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from io import StringIO


@cache  # most programs that are made have most modules in common
def lean(source: str) -> str:
    """A program without docstrings, types of functions, comments, and most spaces; line numbers stay.

    One that is not Python stays as it is: its collector will say so.
    """
    try:
        dropped = _docstring_lines(source)
        bare = _without_idle_imports(_without_types(_without_comments(source)))
        lines = _without_spaces(bare).splitlines(keepends=True)
    except (SyntaxError, tokenize.TokenError):
        return source
    return "".join("\n" if number in dropped else line for number, line in enumerate(lines, 1))


def _without_idle_imports(source: str) -> str:
    """Without what was imported only to say types."""
    for line in re.findall(r"^from (?:typing|collections\.abc|types) import .*$", source, re.MULTILINE):
        names = re.findall(r"\w+", line.partition(" import ")[2])
        if not any(re.search(rf"\b{name}\b", source.replace(line, "")) for name in names):
            source = source.replace(line, "")
    return source


def _without_types(source: str) -> str:
    """Without what is said of the types of arguments, results and names, where that stands on one line."""
    lines = source.encode().splitlines(keepends=True)  # for an AST counts bytes
    for line, start, end in sorted(_types(source), reverse=True):
        before = lines[line - 1][:start].rstrip()
        cut = before.removesuffix(b"->") if before.endswith(b"->") else before.removesuffix(b":")
        lines[line - 1] = cut.rstrip() + lines[line - 1][end:]
    return b"".join(lines).decode()


def _types(source: str) -> Iterator[tuple[int, int, int]]:
    """Line, first and last column of each, in bytes; those of a class's own names may be more than words."""
    tree = ast.parse(source)
    of_classes = {id(line) for block in ast.walk(tree) if isinstance(block, ast.ClassDef) for line in block.body}
    said: list[ast.expr | None] = []
    for part in ast.walk(tree):
        if isinstance(part, ast.FunctionDef):
            data = part.args
            arguments = [*data.posonlyargs, *data.args, *data.kwonlyargs, data.vararg, data.kwarg]
            said += [part.returns, *(argument.annotation for argument in arguments if argument)]
        elif isinstance(part, ast.AnnAssign) and part.simple and part.value and id(part) not in of_classes:
            said.append(part.annotation)
    for one in said:
        if one is not None and one.end_lineno == one.lineno and one.end_col_offset is not None:
            yield one.lineno, one.col_offset, one.end_col_offset


def _without_comments(source: str) -> str:
    """Without its comments, of which a mark in a text is none. Raises SyntaxError, TokenError."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column].rstrip()
    return "\n".join(lines)


def _without_spaces(source: str) -> str:
    """With one space for each level, and else only those between words; texts stay. Raises SyntaxError, TokenError."""
    lines = source.split("\n")
    cuts: list[tuple[int, int, int, str]] = []
    level, nested, end = 0, 0, (0, 0)
    for token in tokenize.generate_tokens(StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        level += (name == "INDENT") - (name == "DEDENT")
        if name in ("INDENT", "DEDENT", "NL", "NEWLINE", "ENDMARKER"):
            continue
        (row, column), line = token.start, lines[token.start[0] - 1]
        if row != end[0]:
            cuts.append((row, 0, column, " " * level))
        elif not nested and end[1] < column and not _are_words(line[end[1] - 1], line[column]):
            cuts.append((row, end[1], column, ""))
        nested += (name == "FSTRING_START") - (name == "FSTRING_END")
        end = token.end
    for row, start, stop, instead in reversed(cuts):
        lines[row - 1] = lines[row - 1][:start] + instead + lines[row - 1][stop:]
    return "\n".join(lines)


def _are_words(*ends: str) -> bool:
    return all(end.isalnum() or end in "_." for end in ends)


def _docstring_lines(source: str) -> set[int]:
    dropped: set[int] = set()
    for block in ast.walk(ast.parse(source)):
        if isinstance(block, (ast.Module, ast.ClassDef, ast.FunctionDef)) and len(block.body) > 1:
            first = block.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                dropped.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return dropped
