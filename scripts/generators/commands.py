"""Generates shell completions and the man page from the command lines: `scripts/generate`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from clusterproof.plugins.command_line.subcommands import FILES, MAN_PAGE, build_parser
from clusterproof.plugins.core.kinds import KINDS
from clusterproof.plugins.evaluation.all_checks import all_checks, marks_of

FOLDER = Path(__file__).parents[2] / "clusterproof" / "plugins" / "command_line" / "shell"
OF_FILES = ("FILE", "PATH", "X")  # values completed as files or folders, by their names in --help
OF_FOLDERS = ("DIR",)


def completion(shell: str) -> str:
    """One shell's completion script for commands, options, marks, checks and files."""
    parser = build_parser()
    for action in _actions(parser):
        _complete(action)
    return str(shtab.complete(parser, shell=shell))


def man_page() -> str:
    """The man page; it has no date, as it belongs to a version."""
    page = Manpage(build_parser(), format="single-commands-section", _data=MAN_DATA)
    page.date = ""
    page.description = "proves a GPU cluster fit for training"
    return re.sub(r"(?m)^(?='|\./)", r"\\&", str(page))  # roff would read these as requests


MAN_DATA = {"project_name": "clusterproof", "manual_section": 1, "manual_title": "clusterproof"}


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _complete(action: argparse.Action) -> None:
    metavar = str(action.metavar or "")
    if metavar == "MARKS":
        action.choices = sorted({mark for check in all_checks().values() for mark in marks_of(check)})
    elif metavar == "CHECK":
        action.choices = sorted(all_checks())
    elif action.dest == "k":
        action.choices = sorted({check.partition(".")[2] for check in all_checks()})
    elif metavar == "X":
        action.choices = [kind.word or kind.form for kind in KINDS]
    elif metavar.startswith(OF_FOLDERS):
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif metavar.startswith(OF_FILES):
        action.complete = shtab.FILE  # type: ignore[attr-defined]


def documents() -> dict[str, str]:
    """Every file by name."""
    return {**{FILES[shell]: completion(shell) for shell in FILES}, MAN_PAGE: man_page()}


if __name__ == "__main__":
    for name, text in documents().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
