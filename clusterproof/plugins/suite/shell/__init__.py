"""`clusterproof completion SHELL`: the script that completes words, as it was made of the command lines."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.suite import command_lines

FILES = {"bash": "clusterproof.bash", "zsh": "_clusterproof", "fish": "clusterproof.fish"}
MAN_PAGE = "clusterproof.1"


def completion(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the script. Raises SystemExit after its help, or a usage error."""
    shell = command_lines.completion().parse_args(arguments).shell
    return 0, (Path(__file__).parent / FILES[shell]).read_text(encoding="utf-8")
