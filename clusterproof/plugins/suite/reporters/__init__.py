"""Where the results of a run go, besides the terminal and the folder of its report: a module for each option.

A module here is found by its name, which is that of the option that asks for it; without the option it is not imported.
Its `reporter(config, cluster, results)` is the plugin object that pytest calls, or None; `results` grows while the
checks run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result

if TYPE_CHECKING:
    from clusterproof.plugins.suite.history import HistoryReporter

# Of pytest and of pytest-html: what they call the values of `--junitxml` and `--html`.
_OPTIONS = {"junit": "xmlpath", "html": "htmlpath"}
# Pytest calls first what joins last: a bundle has what the others write, and a gate changes the exit code that a
# notification says.
_LAST = ("notify", "k8s_gate", "bundle")


def reporters(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> Iterator[tuple[str, object]]:
    """The plugin object of each that the command line asks for, by name. Raises pytest.UsageError."""
    names = sorted((module.name for module in iter_modules(__path__)), key=lambda name: (_position(name), name))
    for name in names:
        if config.getoption(_OPTIONS.get(name, name), None):
            reporter = import_module(f"{__name__}.{name}").reporter(config, cluster, results)
            if reporter is not None:
                yield name.replace("_", "-"), reporter


def _position(name: str) -> int:
    return _LAST.index(name) if name in _LAST else -1


def history_reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> HistoryReporter | None:
    """What says of every result what it is since the last run, and adds the run to the history.

    It joins before the others, which say what changed. Raises pytest.UsageError.
    """
    option = config.option
    if option.collectonly or (option.no_report and not (option.history or option.since_last)):
        return None  # before anything is imported: a prolog is of this kind
    from clusterproof.plugins.suite.history import HistoryReporter, history_of

    path = history_of(option, cluster, config.invocation_params.dir)
    return HistoryReporter(config, cluster, results, path) if path else None
