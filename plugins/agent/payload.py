"""Builds the program that runs on a node: a short shell command that finds a Python, and the probe's text."""

from __future__ import annotations

import ast
import re
import secrets
import sys
import tokenize
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path

from clusterproof.plugins.agent.collectors import module_of
from clusterproof.plugins.agent.options import ProbeOptions
from clusterproof.plugins.agent.program import Program
from clusterproof.plugins.agent.pynvml_part import pynvml_source, reachable, words

FOLDER = Path(__file__).parent
ROOMS = "clusterproof.plugins."  # what they are called here; they travel without it
PACKAGE = f"{ROOMS}agent"
IMPORTED = re.compile(rf"^ *from ({re.escape(ROOMS)}[\w.]+) import (\w+)", re.MULTILINE)
COLLECTED = re.compile(r"clusterproof\.plugins\.evidence\.\w+\.collect_(\w+)")
OF_KIND = re.compile(r"clusterproof\.plugins\.evidence\.(\w+)\.collect\b")
COLLECTOR = "clusterproof.collector"  # what collectors of others import of us
IMPORTS_COLLECTOR = re.compile(rf"^ *from {re.escape(COLLECTOR)} import", re.MULTILINE)
QUOTES = "'''"
MAX_CHARACTERS = 60_000  # of the whole program as one argument: AWS Systems Manager takes 65,535

# For any POSIX shell; in single quotes it passes through csh and fish too: no quote, "!" or backslash in it.
SHELL = (
    "n={nonce};s=;r=;t=;PATH=${{PATH:+$PATH:}}/usr/local/bin:/usr/bin:/bin;{sudo}"
    "for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 "
    "/opt/*/bin/python3 /opt/*/*/bin/python3;do "
    'p=$(command -v "$p" 2>/dev/null)||continue;'
    '$s "$p" -I -S -B -c "{python}" "$n" "$r" begin. {argument};'
    "case $? in 1|2|97|126|127);;*)exit 0;;esac;"
    't="$t $p ($("$p" -V 2>&1))";done;echo "$n:no-python:$t"'
)
TEXT_IN_COMMAND = re.compile(r"(?<= begin\. )[A-Za-z0-9+/]+=*(?=;)")  # where SHELL has its argument
SUDO = '[ "$(id -u)" = 0 ]||if r=$(sudo -n true </dev/null 2>&1);then s="sudo -n";r=used;else r="refused: $r";fi;'
PYTHON = (
    "import sys,zlib,binascii as b;sys.version_info<(3,8) and sys.exit(97);"
    "print(sys.argv[1],sys.argv[3],sep=chr(58),flush=True);exec(zlib.decompress(b.a2b_base64({text})))"
)


def program(
    collectors: Iterable[str], options: ProbeOptions, further: Sequence[Path] = (), on_stdin: bool = True
) -> tuple[Program, str]:
    """The program that reads these collectors, and the nonce that marks its answers.

    `further` are files with collectors of others. Its text comes over standard input, or as the last argument.
    Raises ValueError for a collector that does not exist or a program that is too large.
    """
    nonce = new_nonce()
    made = started_by_shell(payload(frozenset(collectors), options, tuple(further)), nonce, options.sudo, on_stdin)
    size = len(made.command) + len(made.stdin)
    if size > MAX_CHARACTERS:
        raise ValueError(f"the probe has {size} characters; expected at most {MAX_CHARACTERS}")
    return made, nonce


def new_nonce() -> str:
    """A word that nobody else prints."""
    return "cp" + secrets.token_hex(5)


def started_by_shell(text: str, nonce: str, sudo: bool, on_stdin: bool) -> Program:
    """The program whose compressed text this is, as a shell command that finds a Python for it."""
    source = f"sys.stdin.buffer.read({len(text)})" if on_stdin else "sys.argv[4]"
    script = SHELL.format(
        nonce=nonce,
        sudo=SUDO if sudo else "",
        python=PYTHON.format(text=source),
        argument="" if on_stdin else text,
    )
    return Program(f"/bin/sh -c '{script}'", text.encode() if on_stdin else b"", nonce)


@cache
def payload(collectors: frozenset[str], options: ProbeOptions, further: tuple[Path, ...] = ()) -> str:
    """The probe's text for these collectors, compressed, as base64."""
    files = {f"{PACKAGE}.{path.stem}": path for path in further}
    of_others = {path.stem: f"{PACKAGE}.{path.stem}" for path in further}
    named = {collector: of_others.get(collector) or module_of(collector) for collector in collectors}
    modules = modules_for({f"{PACKAGE}.run", *named.values()}, files)
    if any("import pynvml" in source for source in modules.values()):
        modules["pynvml"] = pynvml_for(modules.values())
    slowest_first = sorted(collectors, key=lambda collector: (-options.deadline_s(collector), collector))
    asked = {collector: (_short(named[collector]), options.deadline_s(collector)) for collector in slowest_first}
    limits = (options.mount_s, options.whole_s(collectors))
    paths = (options.checkpoints, options.mounts)
    request = (asked, options.host_root, *limits, *paths, options.log_cursor, options.room)
    return started(f"{PACKAGE}.run", modules, request)


SAMPLED = {  # what samples each source
    "gpu": "nvml_samples",
    "host": "host_samples",
    "network": "network_samples",
    "lustre": "lustre_samples",
}
FOLLOWS = "follow"  # what follows the kernel log


def sampler(every_s: float, host_root: str, log_cursor: tuple[str, int, float]) -> str:
    """The text of the program that stays on a node and samples it, compressed, as base64."""
    sources = {source: _short(module_of(module)) for source, module in SAMPLED.items()}
    request = (sources, _short(module_of(FOLLOWS)), every_s, host_root, log_cursor)
    return started(f"{PACKAGE}.sampler", _modules_of_sampler(), request)


@cache
def _modules_of_sampler() -> Mapping[str, str]:
    modules = modules_for({f"{PACKAGE}.sampler", *map(module_of, (*SAMPLED.values(), FOLLOWS))})
    return {**modules, "pynvml": pynvml_for(modules.values())}


def modules_for(names: Iterable[str], files: Mapping[str, Path] = {}) -> dict[str, str]:
    """The texts of modules and of what they import that travels, by full name; `files` lie elsewhere."""
    sources: dict[str, str] = {}
    pending = set(names)
    while pending:
        name = pending.pop()
        sources[name] = source_of(files.get(name) or _file_of(name))
        pending.update({_imported(*found) for found in IMPORTED.findall(sources[name])} - set(sources))
        if IMPORTS_COLLECTOR.search(sources[name]) and COLLECTOR not in sources:
            pending.add(COLLECTOR)
    return dict(sorted(sources.items()))


def _imported(module: str, name: str) -> str:
    return module if _file_of(module).is_file() else f"{module}.{name}"


def _file_of(name: str) -> Path:
    if name == COLLECTOR:
        return Path(str(sys.modules["clusterproof"].__file__)).with_name("collector.py")
    return FOLDER.parent.joinpath(*name.removeprefix(ROOMS).split(".")).with_suffix(".py")


def started(runner: str, modules: Mapping[str, str], request: tuple[object, ...]) -> str:
    """The text that lets `runner`, one of the modules, answer a request."""
    short = {_short(name): _short(text) for name, text in modules.items()}
    words = (_short(runner), *request)
    return packed(f"{_loader()}\nstart({_by_name(short)},*{words!r})\n")


@cache
def _loader() -> str:
    return source_of(FOLDER / "loader.py")


def _short(text: str) -> str:
    """A module's name, or its text, with names as they travel: each collector by its own, of whatever kind it is."""
    return COLLECTED.sub(r"evidence.\1", OF_KIND.sub(r"evidence.\1", text)).replace(ROOMS, "")


def _by_name(modules: Mapping[str, str]) -> str:
    """What the modules are by name, in Python's words: as they stand where that can be, for escapes compress badly."""
    similar = sorted(modules.items(), key=lambda module: len(module[1]))  # what is alike is near, so compresses well
    text = "".join(f"{name}\v{text}\f" for name, text in similar)
    if re.search(r"[\r\x01]", text) or not text.count("\f") == text.count("\v") == len(modules):
        return repr(dict(modules))
    text = text.replace(QUOTES, "\x01")
    return f'dict(one.split("\\v",1)for one in r{QUOTES}{text}{QUOTES}.replace("\\1",{QUOTES!r}).split("\\f")[:-1])'


def packed(text: str) -> str:
    """A program's text, compressed, as base64."""
    return b2a_base64(zlib.compress(text.encode(), 9), newline=False).decode()


def unpacked(command: str) -> tuple[str, str, str]:
    """A command by its parts: what stands before a program's compressed text, that text as it was, and the rest."""
    found = TEXT_IN_COMMAND.search(command)
    if not found:
        return command, "", ""
    text = zlib.decompress(a2b_base64(found[0])).decode()
    return command[: found.start()], text, command[found.end() :]


def source_of(file: Path) -> str:
    """The text of a program that travels, without what only its reader needs. Raises ValueError."""
    try:
        return _lean(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file.stem} is not a collector of the probe") from None


@cache
def joined(files: tuple[Path, ...]) -> str:
    """Modules as one text, without what they import from beside them: they travel together. Raises ValueError."""
    return "\n".join(("from __future__ import annotations", *map(_of_its_own, files)))


def _of_its_own(file: Path) -> str:
    source = source_of(file)
    imports = [line for line in ast.parse(source).body if isinstance(line, ast.ImportFrom)]
    ours = [line for line in imports if str(line.module).startswith(("__future__", "clusterproof."))]
    dropped = {number for line in ours for number in range(line.lineno, (line.end_lineno or 0) + 1)}
    return "\n".join(line for number, line in enumerate(source.splitlines(), 1) if number not in dropped)


def _lean(source: str) -> str:
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


def pynvml_for(sources: Iterable[str]) -> str:
    """The part of nvidia-ml-py's module that these programs reach. Raises ModuleNotFoundError."""
    wanted = {word for source in sources if "import pynvml" in source for word in words(source)}
    return _without_spaces(_without_comments(reachable(pynvml_source(), frozenset(wanted))))
