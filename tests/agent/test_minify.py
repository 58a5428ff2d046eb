"""The minified program computes what its source does, without what only people read."""

from __future__ import annotations

import ast
import dis
import tokenize
from inspect import CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from clusterproof.plugins.agent import minify, payload
from tests.agent.node_side import NODE_SIDE

PLUGINS = Path(payload.__file__).parents[1]
LOADING = [*PLUGINS.glob("evidence/exact/on_node/*.py"), *PLUGINS.glob("benchmarks/load/*.py")]


@pytest.mark.parametrize("file", [*NODE_SIDE, *sorted(LOADING)], ids=lambda file: file.stem)
def test_what_travels_is_the_program_without_what_only_people_read(file: Path) -> None:
    source = file.read_text()
    short = payload.source_of(file)
    assert not [line for line in short.splitlines() if line.lstrip().startswith("# ") or ") -> " in line]
    assert not [token for token in tokenize.generate_tokens(StringIO(short).readline) if token.type == tokenize.COMMENT]
    assert differing(compiled(short), compiled(source)) == []
    assert len(short.splitlines()) == len(source.splitlines())


def compiled(source: str) -> CodeType:
    """The code that runs: without docstrings, annotations of functions and names, and imports only these need."""
    return compile(ast.unparse(for_the_machine(source)), "source", "exec")


def differing(short: CodeType, code: CodeType, around: dict[object, object] | None = None) -> list[str]:
    """Differing instructions, apart from the variable names of functions and those nested in them."""
    arguments = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & CO_VARARGS)
        + bool(code.co_flags & CO_VARKEYWORDS)
    )
    if short.co_varnames[:arguments] != code.co_varnames[:arguments]:
        return [f"{code.co_name}: {short.co_varnames} for {code.co_varnames}"]
    meant: dict[object, object] = {} if around is None else around
    differences: list[str] = []
    for own, other in zip_longest(instructions(short), instructions(code)):
        wrong = f"{code.co_name}: {own} for {other}"
        if own is None or other is None or own.opname != other.opname:
            differences.append(wrong)
        elif isinstance(own.argval, CodeType) and isinstance(other.argval, CodeType):
            differences += differing(own.argval, other.argval, meant if code.co_flags & CO_OPTIMIZED else None)
        elif own.opcode in (*dis.haslocal, *dis.hasfree):
            differences += [wrong] * (meant.setdefault(other.argval, own.argval) != own.argval)
        elif own.argval != other.argval and own.opcode not in (*dis.hasjrel, *dis.hasjabs):
            differences.append(wrong)
    return differences + [f"{code.co_name}: {meant}"] * (len({*meant.values()}) < len(meant))


def instructions(code: CodeType) -> list[Any]:
    """Effective instructions; a closure's variables come in the order of their names."""
    idle = ("CACHE", "EXTENDED_ARG", "NOP", "MAKE_CELL", "LOAD_CLOSURE", "COPY_FREE_VARS")
    return [instruction for instruction in dis.get_instructions(code) if instruction.opname not in idle]


class Untyped(ast.NodeTransformer):
    """Turns `name: type = value` into its effect, except in classes, where it may do more; leaves out type checking."""

    def visit_If(self, node: ast.If) -> ast.stmt | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [line if isinstance(line, ast.AnnAssign) else self.visit(line) for line in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        typed = not node.simple or node.value is None
        return node if typed or not node.value else ast.Assign([node.target], node.value, lineno=node.lineno)


def for_the_machine(source: str) -> ast.Module:
    """The same as a tree."""
    tree = Untyped().visit(ast.parse(source))
    for block in ast.walk(tree):
        if isinstance(block, ast.arg):
            block.annotation = None
        if isinstance(block, ast.FunctionDef):
            block.returns = None
        if isinstance(block, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = block.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                block.body[:1] = [] if len(block.body) > 1 else [ast.Pass()]
    used = {name.id for name in ast.walk(tree) if isinstance(name, ast.Name)}
    is_annotated = any(getattr(node, "annotation", None) for node in ast.walk(tree))
    tree.body = [line for line in tree.body if not imports_idly(line, used, is_annotated)]
    return tree


def imports_idly(line: ast.stmt, used: set[str], is_annotated: bool) -> bool:
    """Whether a line imports only names used in annotations, or speaks of annotations where none is left."""
    if isinstance(line, ast.ImportFrom) and line.module == "__future__":
        return not is_annotated
    of_types = isinstance(line, ast.ImportFrom) and line.module in ("typing", "collections.abc", "types")
    return of_types and not any(name.name in used for name in line.names)  # type: ignore[attr-defined]


def test_what_travels_keeps_what_stands_beside_the_types(tmp_path: Path) -> None:
    file = tmp_path / "collector.py"
    file.write_text(
        'def è(ä: str = "ü", *b: int, c: "list[int]" = [1], **d: object) -> dict[str, str]: return {ä: b}\n'
    )
    assert payload.source_of(file) == 'def è(ä="ü",*b,c=[1],**d):return{ä:b}\n'


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ('class A(Exception):\n    """Why."""\n', "class A(Exception):\n pass\n"),
        ('def f(b):\n    """One.\n\n    Two.\n    """\n', "def f(b):\n pass\n\n\n\n"),
        ('def f(b): """One."""\n', 'def f(b):"""One."""\n'),
        ("if TYPE_CHECKING:\n    import json\nb = 1\n", "\n\nb=1\n"),
        ("from __future__ import annotations\nb: int = 1\n", "\nb=1\n"),
        (
            "from __future__ import annotations\nclass A:\n    b: int\n",
            "from __future__ import annotations\nclass A:\n b:int\n",
        ),
        (
            "from __future__ import annotations\ndef f() -> dict[\n    str, int\n]:\n    return\n",
            "from __future__ import annotations\ndef f()->dict[\nstr,int\n]:\n return\n",
        ),
        ("if TYPE_CHECKING:\n    b = 2\nelse:\n    b = 1\n", "if TYPE_CHECKING:\n b=2\nelse:\n b=1\n"),
    ],
)
def test_a_line_that_does_nothing_is_left_out_and_the_others_keep_their_numbers(source: str, short: str) -> None:
    assert minify.minified(source) == short


def test_names_that_only_a_function_has_are_short() -> None:
    source = (
        "def total(rows):\n    summed = 0\n    for counted in rows:\n        summed += counted\n    return summed\n"
    )
    assert minify.minified(source) == "def total(rows):\n a=0\n for b in rows:\n  a+=b\n return a\n"


@pytest.mark.parametrize(
    "body",
    [
        "words = 1\nreturn f'{words} {[one for one in (words,)]}'",
        "words = [one for one in (1, 2)]\nreturn [later(one) for one in words]",
        "return [path for path in (1, 2)], [path for _ in (1,)]",
        "global known\nknown = 3\nreturn known",
        "words = 1\nreturn dict(words=words)",
        "words = {'words': 1}\nreturn words['words'], (lambda words: words)(2)",
        "words = 4\nreturn sorted(locals())",
        "try:\n    raise ValueError(7)\nexcept ValueError as words:\n    return str(words)",
        "def words():\n    return counted\ncounted = 9\nreturn words()",
        "import os as words\nreturn words.sep",
        "words, (first, *rest) = 1, (2, 3, 4)\nreturn words, first, rest",
        "a = 1\nwords = 2\nreturn a, words",
        "ä, words = 'ö', 'ü'; return ä + words",
        "if (words := 5) > 4:\n    return words",
        "class Kind:\n    words = 6\nreturn Kind.words",
        "words = later\nreturn words(5)",
        "max = 3\nreturn [max for _ in '12'], (lambda: max)()",
    ],
)
def test_a_function_with_short_names_returns_the_same(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    source = f"path, known = 'global', 0\ndef later(value, given=path):\n    return value, given\ndef read():\n{lines}"
    returned = []
    for text in (source, minify.minified(source)):
        names: dict[str, Any] = {}
        exec(text, names)
        returned.append((names["read"](), names["known"]))
    assert returned[0] == returned[1]


def test_a_name_that_is_another_variable_is_seen() -> None:
    source = "def read(given):\n    first = 1\n    second = 2\n    return {}\n"
    assert differing(compiled(source.format("first")), compiled(source.format("second")))
