"""`clusterproof init`: writes a starter inventory and policy, mostly commented out."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from shlex import quote

from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE, OneLineParser
from clusterproof.plugins.core.opened import DISK_FULL, path_exists

TEMPLATES = {"cluster.toml": "which nodes, and how to reach them", "clusterproof.toml": "what is expected of them"}


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof init`."""
    parser = OneLineParser(
        prog="clusterproof init",
        description="Writes cluster.toml and clusterproof.toml with comments. Nothing that is there is overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where to (default: here)")
    parser.add_argument(
        "--from-nhc",
        metavar="FILE",
        help="an nhc.conf: print which checks say what each line asks for, and take over what a policy can have",
    )
    return parser


def init(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the text of `clusterproof init [DIR] [--from-nhc FILE]`.

    Raises SystemExit after its help, or a usage error.
    """
    line = parser()
    options = line.parse_args(arguments)
    if not options.folder:
        line.error("DIR is empty")
    if options.from_nhc is None:
        return begin_in(Path(options.folder))
    from clusterproof.plugins.command_line import nhc

    try:
        lines = nhc.read_nhc(Path(options.from_nhc))
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        return BAD_COMMAND_LINE, f"clusterproof init: {options.from_nhc}: {reason}; expected an nhc.conf\n"
    code, written = begin_in(Path(options.folder), nhc.policy_of(lines))
    if code:
        return code, written
    missing = sum(not nhc.is_covered(line) for line in lines)
    count = f"{len(lines)} lines of {options.from_nhc}: {len(lines) - missing} covered, {missing} not\n"
    return code, "".join([*nhc.comparison(lines), "\n", count, written])


def begin_in(folder: Path, policy: str = "") -> tuple[int, str]:
    """Write the files if the folder has none of them, creating the folder; write none if one exists.

    `policy` is the active part of clusterproof.toml.
    """
    there = [name for name in TEMPLATES if path_exists(folder / name)]
    if there:
        what = f"{folder / there[0]} is there already: nothing was written; another folder: clusterproof init DIR"
        return BAD_COMMAND_LINE, f"clusterproof init: {what}\n"
    texts = {name: template(name) for name in TEMPLATES}
    if policy:
        texts["clusterproof.toml"] += f"\n# What nhc.conf asked of every node:\n{policy}"
    writing = folder
    try:
        if not path_exists(folder):
            folder.mkdir()
        for name, text in texts.items():
            writing = folder / name
            with writing.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as problem:
        if problem.errno in DISK_FULL:
            writing.unlink(missing_ok=True)  # half a policy is still a policy
        what = f"{problem.filename or writing}: {problem.strerror}; expected a folder that may be written"
        return BAD_COMMAND_LINE, f"clusterproof init: {what}\n"
    lines = [f"wrote {folder / name}: {purpose}\n" for name, purpose in TEMPLATES.items()]
    cd = "" if folder == Path() else f"cd {quote(str(folder))} && "
    installed = Path(sys.executable).with_name("clusterproof")  # in a checkout it is not on PATH
    program = "clusterproof" if shutil.which("clusterproof") else quote(str(installed))
    return 0, "".join([*lines, f"Put your nodes into cluster.toml, then: {cd}{program} check ./cluster.toml\n"])


def template(name: str) -> str:
    """The text to write to a file."""
    return (Path(__file__).with_name("starter") / name).read_text(encoding="utf-8")
