"""The console script: runs pytest over the packaged checks, from any folder."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

from clusterproof.plugins.command_line.overview import short_help, shortest_help
from clusterproof.plugins.command_line.subcommands import ANSWERED, NAMES, Subcommand, check_parser
from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.escaping import as_job_log
from clusterproof.plugins.core.kinds import KINDS
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE
from clusterproof.plugins.core.opened import in_home, is_folder, path_exists
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.options.argv import joined_options

PACKAGE = Path(__file__).resolve().parents[2]

ALL_OPTIONS = "--help-all"
_VALUED = ("-c", "-k", "-m", "-n", "-o", "-p", "-W")  # of pytest; abbreviations of our options would clash with them
_ALWAYS = (
    "clusterproof.plugins.cluster",
    "clusterproof.plugins.command_line.own_checks",
    "clusterproof.plugins.suite.terminal",
)
_SEARCHED = {
    "PATH": os.defpath,
    "LD_LIBRARY_PATH": "",
}  # and what stands for no folder: an empty PATH is the current one
# Plugins that are only loaded when the command line asks for them.
_ON_REQUEST = {
    "xdist.plugin": ("-n", "--numprocesses", "--dist"),
    "pytest_metadata.plugin": ("--html",),
    "pytest_html.plugin": ("--html", "--self-contained-html"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run `clusterproof`: pytest with the packaged checks and only the plugins that it needs.

    Other plugins are named with `-p` or in PYTEST_PLUGINS; a conftest.py in the working folder is not loaded.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries' deprecation warnings would precede every answer
    _prepare_output()
    _drop_relative_folders()
    if arguments and (why := _no_working_folder()):
        return _print(BAD_COMMAND_LINE, f"clusterproof: the working folder: {why}; expected one to begin in: cd /\n")
    try:
        return _answered(arguments)
    except KeyboardInterrupt:
        return _print(INTERRUPTED, "clusterproof: interrupted\n")


def _prepare_output() -> None:
    """Escape characters that the terminal's encoding lacks, and discard output to streams that a daemon has closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - as long as this process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, as_job_log(stream))


def _drop_relative_folders() -> None:
    """Look for programs and libraries nowhere in the working folder: it may be anybody's."""
    for variable, instead in _SEARCHED.items():
        before = os.environ.get(variable)
        if before is not None:
            absolute = [folder for folder in before.split(os.pathsep) if folder.startswith("/")]
            os.environ[variable] = os.pathsep.join(absolute) or instead


def _no_working_folder() -> str:
    """Why the current folder cannot be read or written; empty if it can."""
    try:
        return "" if os.access(os.getcwd(), os.X_OK) else os.strerror(errno.EACCES)  # noqa: PTH109 - of none that is gone
    except OSError as problem:
        return problem.strerror or str(problem)


def _answered(arguments: list[str]) -> int:
    if not arguments:  # nothing was checked: not a success
        return _print(BAD_COMMAND_LINE, shortest_help(), to_stdout=True)
    mistaken = _mistaken_command(arguments) or _further_word(arguments) or _further_cluster(arguments)
    if mistaken:
        return _print(BAD_COMMAND_LINE, f"clusterproof: {mistaken}\n")
    asks_for_all = arguments == ["help", "check"]
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if arguments[:1] == ["check"]:
        arguments = _as_a_run(arguments[1:])
    arguments = joined_options(arguments)
    if arguments[:1] in (["--version"], ["-V"], ["version"]):
        return _print(0, f"clusterproof {__version__}\n")
    if is_help_request(arguments) and arguments[0] not in (*ANSWERED, "manifest"):
        return _print(0, _help_of_a_run(asks_for_all))
    if arguments[:1] and arguments[0] in ANSWERED:
        return _print(*_answer(ANSWERED[arguments[0]], arguments[1:]))
    if arguments[:1] == ["manifest"]:
        from clusterproof.plugins.command_line.manifest import command_line

        arguments, writer = command_line(arguments[1:], PACKAGE)
        status = _run_pytest(arguments, writer)
        return _print(status, writer.text, to_stdout=True)
    return _run_pytest(arguments)


def _run_pytest(arguments: list[str], *plugins_of_run: object) -> int:
    """Run pytest over the packaged checks, or a site's own, with these arguments, and return its exit code.

    Raises KeyboardInterrupt if a run was interrupted before its summary.
    """
    os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    import pytest  # not earlier: it reads the environment on import

    from clusterproof.plugins.options import mistakes
    from clusterproof.plugins.suite.ending import EarlyInterrupt

    cache = Path(os.environ.get("XDG_CACHE_HOME") or in_home("~/.cache")) / "clusterproof"
    own = ["-c", str(PACKAGE / "pytest.toml"), f"--rootdir={_root_of_own_tests(arguments)}"]
    own += [] if _is_without_cache(arguments) else ["-o", f"cache_dir={cache}"]
    plugins = [word for plugin in (*_ALWAYS, *requested(arguments)) for word in ("-p", plugin)]
    own_arguments = ["--help" if word == ALL_OPTIONS else word for word in arguments]
    early = EarlyInterrupt()
    try:
        status = pytest.main([*own, *plugins, *own_arguments], plugins=[mistakes, early, *plugins_of_run])
    except BrokenPipeError:  # of `--help-all | head`
        _write_nowhere()
        return 0
    if early.is_unsaid:
        raise KeyboardInterrupt
    return int(status)


def _root_of_own_tests(arguments: Sequence[str]) -> Path:
    """The root for test files: the current folder if files are named, else the package.

    Not in `own_checks`: pytest warns of a plugin that was imported before it.
    """
    named = list(_named(arguments))
    is_packaged = "--pyargs" in arguments or any(PACKAGE in (path, *path.parents) for path in named)
    return PACKAGE if is_packaged or not named else Path.cwd()


def _named(arguments: Sequence[str]) -> Iterator[Path]:
    """The test files and folders on a command line."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        path = Path(word.partition("::")[0])
        if before not in _VALUED and not word.startswith("-") and (path.suffix == ".py" or is_folder(path)):
            yield path.resolve()


def _help_of_a_run(is_whole: bool) -> str:
    """A screen of help; or every option of the suite, for `clusterproof help check`."""
    return check_parser().format_help() if is_whole else short_help()


def _as_a_run(arguments: list[str]) -> list[str]:
    """Convert the arguments of `clusterproof check X …` to pytest's: the first word is the cluster."""
    is_named = any(word.partition("=")[0] == "--cluster" for word in arguments)
    if is_named or is_help_request(arguments) or not arguments or arguments[0].startswith("-"):
        return arguments
    return ["--cluster", *arguments]


def _answer(subcommand: Subcommand, arguments: list[str]) -> tuple[int, str]:
    """Exit code and text of a subcommand that runs no pytest. Raises SystemExit after its help, or a usage error."""
    try:
        return subcommand.answer(arguments)
    except SystemExit as end:
        raise SystemExit(BAD_COMMAND_LINE if end.code else 0) from None


def _mistaken_command(arguments: list[str]) -> str:
    """The command that a mistyped first word probably means; empty if it is valid as it is, or none is close."""
    word = arguments[0] if arguments else "-"
    if word == "help" and len(arguments) > 1:
        word = arguments[1]
        return "" if word in NAMES else f"no command is called {word!r:.80}{nearest(word, NAMES) or _LISTED}"
    if word.startswith("-") or word in NAMES or path_exists(word.partition("::")[0]):
        return ""
    if any(word == kind.word or (kind.word.endswith(":") and word.startswith(kind.word)) for kind in KINDS):
        return f"{word!r:.80} is a cluster; expected clusterproof check {quote(word[:80])}"
    near = nearest(word, NAMES)
    if not near and any(sign in word for sign in "./:["):
        return ""
    return f"no command is called {word!r:.80}{near or _LISTED}"


INTERRUPTED = 2  # as in pytest
_OF_VERDICTS = (0, 1, 10)  # exit codes of successful answers
_LISTED = "; clusterproof --help lists them"


def _further_word(arguments: list[str]) -> str:
    """The excess argument of a command that takes none or one."""
    most = {"version": 1, "--version": 1, "-V": 1, "help": 2}.get(arguments[0], len(arguments))
    taken = " ".join(arguments[:most])
    return f"unexpected argument {arguments[most]!r:.80}; expected nothing after {taken}" if arguments[most:] else ""


def _further_cluster(arguments: list[str]) -> str:
    """The error for a word behind X in `clusterproof check X WORD` that is neither an option nor a file."""
    if arguments[:1] != ["check"] or len(arguments) < 3 or arguments[1].startswith("-"):
        return ""
    cluster, word = arguments[1:3]
    path = word.partition("::")[0]
    named = next((word for word in arguments[2:] if word.partition("=")[0] == "--cluster"), "")
    if named and not (cluster.endswith(".py") or path_exists(cluster.partition("::")[0])):
        return f"{cluster!r:.80} and --cluster name two clusters; expected one"
    if word.startswith("-") or path.endswith(".py") or "/" in path or path_exists(path):
        return ""
    both = f"{cluster},{word.removeprefix('ssh:')}" if cluster.startswith("ssh:") else "'ssh:gpu[001-004]'"
    return f"{word!r:.80} is neither an option nor a file of checks; expected one X, such as {both:.120}"


def _is_without_cache(arguments: list[str]) -> bool:
    """Whether pytest's cache plugin, which defines the setting of its folder, is disabled."""
    options = (*arguments, *os.environ.get("PYTEST_ADDOPTS", "").split())
    return any(option.removeprefix("-p") == "no:cacheprovider" for option in options)


def _print(status: int, text: str, *, to_stdout: bool = False) -> int:
    """Print a command's answer, or its error. A pipe closed early, as by `head`, is no error.

    An error may quote another user's file, so it is escaped.
    """
    is_answer = to_stdout or status in _OF_VERDICTS
    try:
        if is_answer:
            print(text, end="", flush=True)
        else:
            print(printable(text, len(text)), end="", file=sys.stderr, flush=True)
    except BrokenPipeError:
        _write_nowhere()
    except OSError as problem:
        _write_nowhere()
        if not text:  # it has printed everything already
            return status
        with suppress(OSError):
            sys.stderr.write(f"clusterproof: the answer could not be written: {problem.strerror}\n")
        return INTERRUPTED
    return status


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def requested(arguments: list[str]) -> list[str]:
    """The plugins that a command line needs; all of them for `--help-all`."""
    flags_given = {argument.split("=")[0] for argument in arguments}
    short = any(argument.startswith("-n") and argument[2:].isalnum() for argument in arguments)
    return [
        plugin
        for plugin, flags in _ON_REQUEST.items()
        if ALL_OPTIONS in arguments or not flags_given.isdisjoint(flags) or (short and "-n" in flags)
    ]


def is_help_request(arguments: list[str]) -> bool:
    """Whether the command line asks for help."""
    return not {"-h", "--help"}.isdisjoint(arguments)
