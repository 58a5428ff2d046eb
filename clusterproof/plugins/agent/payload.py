"""Builds the program that runs on a node: a short shell command that finds a Python, and the probe's source."""

from __future__ import annotations

import ast
import json
import re
import secrets
import sys
from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from clusterproof.plugins.agent.minify import minified
from clusterproof.plugins.agent.nvidia_ml import pynvml_for
from clusterproof.plugins.agent.packing import ARGUMENT, QUOTED, UNPACKED, packed, text_of
from clusterproof.plugins.agent.program import ProbeOptions, Program, module_of
from clusterproof.plugins.core.record import replace

FOLDER = Path(__file__).parent
PLUGINS = "clusterproof.plugins."  # package prefix here; the modules travel without it
PACKAGE = f"{PLUGINS}agent"
NAME = re.compile(r"(\w+)(?: as \w+)?")
IMPORTED = re.compile(rf"^ *from ({re.escape(PLUGINS)}[\w.]+) import *(\([^)]*\)|.+)", re.MULTILINE)
COLLECTED = re.compile(r"clusterproof\.plugins\.evidence\.\w+\.collect_(\w+)")
OF_KIND = re.compile(r"clusterproof\.plugins\.evidence\.(\w+)\.collect\b")
COLLECTOR = "clusterproof.collector"  # the name by which third-party collectors import ours
IMPORTS_COLLECTOR = re.compile(rf"^ *from {re.escape(COLLECTOR)} import", re.MULTILINE)
QUOTES = "'''"

# For any POSIX shell; in single quotes it also passes through csh and fish: no quote, "!" or backslash in it.
SHELL = (
    "n={nonce};s=;r=;t=;PATH=${{PATH:+$PATH:}}/usr/local/bin:/usr/bin:/bin;u=$(id -u);{sudo}{own}"
    "for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 "
    "/usr/bin/python3 /opt/*/bin/python3 /opt/*/*/bin/python3;do c=$p;"
    "case $c,$t in /usr*,*others*);;/usr*)continue;;esac;"
    'p=$(command -v "$p" 2>/dev/null)||continue;'
    'case $u,$s,$c in 0,*|*,s*|*,,/*)o "$p"||continue;;esac;'
    '{fed}$s "$p" -I -S -B -c "{python}" "$n" "$r" begin. {argument};'
    "case $? in 1|2|97|126|127);;*)exit 0;;esac;"
    't="$t $p ($("$p" -V 2>&1))";done;echo "$n:no-python:$t"'
)
TEXT_IN_COMMAND = re.compile(r'(?:(?<= begin\. ")|(?<=printf %s "))[^"]+(?=")')  # as in SHELL
# Sets p to the real path of $1; refuses it if it or a folder above belongs to another user or is writable by others.
# Without coreutils it must be an image, where users of the node cannot put files; this is detected without starting
# a program, which a user who fills the process table could prevent.
OWN = (
    "o(){ command -v stat>/dev/null&&command -v readlink>/dev/null||return 0;"
    'p=$(readlink -f "$1");q=$p;while [ "$q" ];do case $(stat -c %u.%A.%G "$q") in 0.?????-??-*|$u.?????-??-*|'
    '0.d????????t*|0.????????-?.staff|$u.????????-?.$(id -un));;*)t="$t $q (of others)";return 1;;esac;'
    "q=${q%/*};done;};"
)
SUDO = '[ $u = 0 ]||if r=$(sudo -n true </dev/null 2>&1);then s="sudo -n";r=used;else r="refused: $r";fi;'
PYTHON = (
    "import sys;sys.version_info<(3,8) and sys.exit(97);import bz2,struct;"
    f"print(sys.argv[1],sys.argv[3],sep=chr(58),flush=True);{UNPACKED};exec(t)"
)


def program(
    collectors: Iterable[str], options: ProbeOptions, further: Sequence[Path] = (), on_stdin: bool = True
) -> Program:
    """The program that runs these collectors.

    `further` are files of third-party collectors. The source is sent over standard input, or within the command.
    Raises ValueError for a collector that does not exist.
    """
    text = payload(frozenset(collectors), options, tuple(further))
    to_run = started_by_shell(text, new_nonce(), options.sudo, on_stdin)
    return replace(to_run, command=f"{options.in_container} {to_run.command}".lstrip())


def new_nonce() -> str:
    """A random word that marks an answer."""
    return "cp" + secrets.token_hex(5)


def started_by_shell(text: str, nonce: str, sudo: bool, on_stdin: bool, word: str = "") -> Program:
    """A packed program as a shell command that finds a Python for it.

    `word`, if any, is its last argument: letters of base64 only. A program within the command is passed to Python as an
    argument, or on standard input by the shell if it is too long for one.
    """
    if on_stdin:
        script = _script(nonce, sudo, f"sys.stdin.buffer.read({len(text)})", "", word)
        return Program(f"{QUOTED}{script}'", _encoded(text), nonce)
    script = _script(nonce, sudo, "sys.argv[4].encode()", "", f'"{text}" {word}'.rstrip())
    if len(script) > ARGUMENT - len(QUOTED) - 1:
        script = _script(nonce, sudo, "sys.stdin.buffer.read()", f'printf %s "{text}"|', word)
    return Program(f"{QUOTED}{script}'", b"", nonce)


@cache
def _encoded(text: str) -> bytes:
    """The program's bytes, encoded once for all nodes: a session keeps them as long as it lasts."""
    return text.encode()


def _script(nonce: str, sudo: bool, source: str, fed: str, argument: str) -> str:
    return SHELL.format(
        nonce=nonce,
        sudo=SUDO if sudo else "",
        own=OWN,
        fed=fed,
        python=PYTHON.format(text=source),
        argument=argument,
    )


@cache
def payload(collectors: frozenset[str], options: ProbeOptions, further: tuple[Path, ...] = ()) -> str:
    """The packed source of the probe for these collectors."""
    files = {f"{PACKAGE}.{path.stem}": path for path in further}
    of_others = {path.stem: f"{PACKAGE}.{path.stem}" for path in further}
    named = {collector: of_others.get(collector) or module_of(collector) for collector in collectors}
    modules = modules_for({f"{PACKAGE}.run", *named.values()}, files)
    if any("import pynvml" in source for source in modules.values()):
        modules["pynvml"] = pynvml_for(modules.values())
    request = options.request({collector: _short(module) for collector, module in named.items()})
    return started(f"{PACKAGE}.run", modules, (request,))


SAMPLED = {  # the sampler of each source
    "gpu": "nvml_samples",
    "host": "host_samples",
    "network": "network_samples",
    "lustre": "lustre_samples",
    "mounts": "mounts_samples",
    "processes": "processes_samples",
    "ranks": "ranks_samples",
}
FOLLOWS = "follow"  # the module that follows the kernel log


@cache
def sampler(every_s: float, host_root: str, is_kept_alive: bool = True, mounts: tuple[str, ...] = ()) -> str:
    """The packed source of the program that stays on a node and samples it.

    If `is_kept_alive`, the watcher sends bytes over its input, and it ends when they stop. `mounts` are the mount
    points that the policy expects.
    """
    modules = modules_for({f"{PACKAGE}.sampler", *map(module_of, (*SAMPLED.values(), FOLLOWS))})
    sources = {source: _short(module_of(module)) for source, module in SAMPLED.items()}
    request = (sources, _short(module_of(FOLLOWS)), every_s, host_root, is_kept_alive, mounts)
    return started(f"{PACKAGE}.sampler", {**modules, "pynvml": pynvml_for(modules.values())}, request)


def cursor_word(log_cursor: tuple[str, int, float]) -> str:
    """The last argument of the sampler: the position from which it follows the kernel log."""
    return b2a_base64(json.dumps(log_cursor).encode(), newline=False).decode()


@cache
def modules_of(name: str) -> Mapping[str, str]:
    """The texts of a module and of what it imports that travels."""
    return modules_for([name])


def modules_for(names: Iterable[str], files: Mapping[str, Path] = {}) -> dict[str, str]:
    """Sources of modules and of their imports that travel, by full name; `files` are located elsewhere."""
    sources: dict[str, str] = {}
    pending = set(names)
    while pending:
        name = pending.pop()
        sources[name] = source_of(files.get(name) or _file_of(name))
        imported = {
            (module, imported_name)
            for module, names in IMPORTED.findall(sources[name])
            for imported_name in NAME.findall(names)
        }
        pending.update({_imported(*reference) for reference in imported} - set(sources))
        if IMPORTS_COLLECTOR.search(sources[name]) and COLLECTOR not in sources:
            pending.add(COLLECTOR)
    return dict(sorted(sources.items()))


def _imported(module: str, name: str) -> str:
    return module if _file_of(module).is_file() else f"{module}.{name}"


def _file_of(name: str) -> Path:
    if name == COLLECTOR:
        return Path(str(sys.modules["clusterproof"].__file__)).with_name("collector.py")
    return FOLDER.parent.joinpath(*name.removeprefix(PLUGINS).split(".")).with_suffix(".py")


def started(runner: str, modules: Mapping[str, str], request: tuple[object, ...]) -> str:
    """Source that starts `runner`, one of the modules, with a request."""
    short = {_short(name): _short(text) for name, text in modules.items()}
    arguments = (_short(runner), *request)
    return packed(f"{_loader()}\nstart({_by_name(short)},*{arguments!r})\n")


@cache
def _loader() -> str:
    return source_of(FOLDER / "loader.py")


def _short(text: str) -> str:
    """Shorten a module's name, or the names in its source: each collector travels under its own name alone."""
    return COLLECTED.sub(r"evidence.\1", OF_KIND.sub(r"evidence.\1", text)).replace(PLUGINS, "")


def _by_name(modules: Mapping[str, str]) -> str:
    """A dict literal of module sources, as raw strings where possible because escapes compress badly."""
    similar = sorted(modules.items(), key=lambda module: len(module[1]))  # similar neighbours compress well
    text = "".join(f"{name}\v{text}\f" for name, text in similar)
    if re.search(r"[\r\x01]", text) or not text.count("\f") == text.count("\v") == len(modules):
        return repr(dict(modules))
    text = text.replace(QUOTES, "\x01")
    return f'dict(one.split("\\v",1)for one in r{QUOTES}{text}{QUOTES}.replace("\\1",{QUOTES!r}).split("\\f")[:-1])'


def unpacked(command: str) -> tuple[str, str, str]:
    """Split a command into what precedes the packed program, the unpacked program, and the rest."""
    program = TEXT_IN_COMMAND.search(command)
    if not program:
        return command, "", ""
    return command[: program.start()], text_of(program[0]), command[program.end() :]


def source_of(file: Path) -> str:
    """The minified source of a program that travels. Raises ValueError."""
    try:
        return minified(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file.stem} is not a collector of the probe") from None


@cache
def joined(files: tuple[Path, ...]) -> str:
    """Join modules into one source, without their imports of each other. Raises ValueError if one is missing."""
    together = frozenset(file.stem for file in files)
    return "\n".join(("from __future__ import annotations", *(_of_its_own(file, together) for file in files)))


def calling_main(files: tuple[Path, ...], request: object) -> str:
    """The packed source of these modules joined, which answers a request by the `main` of the last one."""
    return packed(f"{joined(files)}\nmain({request!r}, *sys.argv[1:3])\n")


def _of_its_own(file: Path, together: frozenset[str]) -> str:
    source = source_of(file)
    imports = [line for line in ast.parse(source).body if isinstance(line, ast.ImportFrom)]
    ours = [line for line in imports if str(line.module).startswith(("__future__", "clusterproof."))]
    missing = {str(line.module).rpartition(".")[2] for line in ours} - together - {"__future__"}
    if missing:
        raise ValueError(f"{file.name} imports {', '.join(sorted(missing))}; expected it to travel along")
    dropped = {number for line in ours for number in range(line.lineno, (line.end_lineno or 0) + 1)}
    return "\n".join(line for number, line in enumerate(source.splitlines(), 1) if number not in dropped)
