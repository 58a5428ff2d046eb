"""Reporters that an option enables, besides the terminal and the report folder: one module for each option.

A module here has the name of its option, and is only imported if the option is used. Its `reporter(config, cluster,
results)` returns the plugin object, or None; `results` grows while the checks run. A report of pytest or pytest-html
that cannot be written does not end the run.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.opened import DISK_FULL
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.suite.state import UNWRITTEN, note_unwritten

if TYPE_CHECKING:
    from clusterproof.plugins.suite.history import HistoryReporter

# Of pytest and pytest-html: their names for the values of `--junitxml` and `--html`.
_OPTIONS = {"junit": "xmlpath", "html": "htmlpath"}
# Pytest calls plugins in reverse order of registration: a bundle contains what the others write, and a gate changes the
# exit code that a notification states.
_LAST = ("notify", "k8s_gate", "bundle")


def reporters(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> Iterator[tuple[str, object]]:
    """The plugin object of each reporter that the command line enables, by name. Raises pytest.UsageError."""
    names = sorted((module.name for module in iter_modules(__path__)), key=lambda name: (_position(name), name))
    for name in names:
        if config.getoption(_OPTIONS.get(name, name), None):
            reporter = import_module(f"{__name__}.{name}").reporter(config, cluster, results)
            if reporter is not None:
                yield name.replace("_", "-"), reporter


def _position(name: str) -> int:
    return _LAST.index(name) if name in _LAST else -1


def history_reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> HistoryReporter | None:
    """The reporter that marks results with their change since the last run, and adds the run to the history.

    Registered before the others, which report changes. Raises pytest.UsageError.
    """
    option = config.option
    if option.collectonly or (option.no_report and not (option.history or option.since_last)):
        return None  # before any import, for a prolog's sake
    from clusterproof.plugins.suite.history import HistoryReporter, history_of

    path = history_of(option, cluster, config.invocation_params.dir)
    return HistoryReporter(config, cluster, results, path) if path else None


_WRITERS = (("_pytest.junitxml", "--junitxml", "xmlpath"), ("pytest_html", "--html", "htmlpath"))


def guard_writers(config: pytest.Config) -> None:
    """Keep a report that cannot be written from ending the run, leaving a partial file, or being announced."""
    for module, option, attribute in _WRITERS:
        path = config.getoption(attribute, None)
        for hooked in _hooked(config.hook.pytest_sessionfinish, module):
            hooked.function = _guarded(config, hooked.function, option, Path(path) if path else None)
        for hooked in _hooked(config.hook.pytest_terminal_summary, module):
            hooked.function = _if_written(config, hooked.function, option)


def _hooked(hook: Any, module: str) -> Iterator[Any]:
    return (hooked for hooked in hook.get_hookimpls() if str(hooked.function.__module__).startswith(module))


def guard_beginning_of_html(config: pytest.Config) -> None:
    """The same for the style sheet that pytest-html writes before the run, so that a wrong path fails early."""
    for hooked in config.hook.pytest_configure.get_hookimpls():
        if str(hooked.function.__module__).startswith("pytest_html"):
            hooked.function = _begun(config, hooked.function)  # type: ignore[misc]


def _guarded(config: pytest.Config, write: Callable[..., Any], option: str, path: Path | None) -> Callable[..., Any]:
    def guarded(*given: Any) -> Any:
        try:
            return write(*given)
        except OSError as problem:
            note_unwritten(config, option, problem)
            if path:
                remove_half(path)
            return None

    return guarded


def remove_half(path: Path) -> None:
    """Remove a partially written regular file: a device, a pipe or a link was there before."""
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def _if_written(config: pytest.Config, say: Callable[..., Any], option: str) -> Callable[..., Any]:
    def say_if_written(*given: Any) -> Any:
        return None if option in config.stash.get(UNWRITTEN, {}) else say(*given)

    return say_if_written


def _begun(config: pytest.Config, begin: Callable[..., Any]) -> Callable[..., Any]:
    def begun(*given: Any) -> Any:
        try:
            return begin(*given)
        except OSError as problem:
            where = problem.filename or config.getoption("htmlpath")
            if problem.errno not in DISK_FULL:
                message = f"--html: {where}: {problem.strerror or problem}; expected a file that may be written"
                raise pytest.UsageError(message) from None
            note_unwritten(config, "--html", problem)
            remove_half(Path(config.getoption("htmlpath")).parent / "assets" / "style.css")
            return None

    return begun
