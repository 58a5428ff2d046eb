"""The console script: pytest over the packaged checks, from any folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from clusterproof import __version__
from clusterproof.plugins.suite.two_words import joined

PACKAGE = Path(__file__).resolve().parents[2]

EXIT_CODES = """\
exit codes:
  0  nothing failed
  1  a check failed
  2  interrupted; what was formed until then is reported
  3  internal error
  4  bad command line or inventory
  5  nothing was checked: no check was selected, or none applies
  6  nothing failed, but something could not be measured (see --incomplete)"""

_ALWAYS = ("clusterproof.plugins.cluster", "clusterproof.plugins.suite.packaged")
# Plugins that are worth their start-up time only when the command line asks for them.
_ON_REQUEST = {
    "xdist.plugin": ("-n", "--numprocesses", "--dist"),
    "pytest_metadata.plugin": ("--html",),
    "pytest_html.plugin": ("--html", "--self-contained-html"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run `clusterproof`: the same pytest, the packaged checks, and no other plugin than those it needs.

    A plugin of one's own is named with `-p` or in PYTEST_PLUGINS.
    """
    arguments = joined(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"clusterproof {__version__}")
        return 0
    if arguments[:1] == ["history"]:
        return _history(arguments[1:])
    plugins_of_run: list[object] = []
    if arguments[:1] == ["manifest"]:
        from clusterproof.plugins.suite.manifest_command import command_line

        arguments, writer = command_line(arguments[1:], PACKAGE)
        plugins_of_run.append(writer)
    os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    import pytest  # only now: it reads the environment when it is imported

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clusterproof"
    own = ["-c", str(PACKAGE / "pytest.toml"), f"--rootdir={PACKAGE}", "-o", f"cache_dir={cache}"]
    plugins = [word for plugin in (*_ALWAYS, *requested(arguments)) for word in ("-p", plugin)]
    status = pytest.main([*own, *plugins, *arguments], plugins=plugins_of_run)
    if wants_help(arguments):
        print(EXIT_CODES)
    return int(status)


def _history(arguments: list[str]) -> int:
    """`clusterproof history`: no run, and so no pytest. A pipe that is closed early, as by `head`, is no error."""
    from clusterproof.reports.history.command import history

    status, text = history(arguments)
    try:
        print(text, end="", file=sys.stderr if status else sys.stdout, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def requested(arguments: list[str]) -> list[str]:
    """The plugins that a command line asks for; all of them for `--help`."""
    words = {argument.split("=")[0] for argument in arguments}
    short = any(argument.startswith("-n") and argument[2:].isalnum() for argument in arguments)
    return [
        plugin
        for plugin, flags in _ON_REQUEST.items()
        if wants_help(arguments) or not words.isdisjoint(flags) or (short and "-n" in flags)
    ]


def wants_help(arguments: list[str]) -> bool:
    """Whether the command line asks for help."""
    return not {"-h", "--help"}.isdisjoint(arguments)
