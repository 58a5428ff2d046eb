"""Compares a run with its history: marks what is new, still there or gone, and adds the run at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.result import Measured, Result
from clusterproof.plugins.suite.ending import code_so_far
from clusterproof.plugins.suite.state import EVIDENCE, PAIRWISE, nodes_of, note_full, occasion_of
from clusterproof.reports.history import HistoryError, NodeIdentity, Pair, PastRun, Standing, identities
from clusterproof.reports.history.changes import marked, since_last
from clusterproof.reports.history.past import read_before
from clusterproof.reports.history.store import default_path, require_own_history, write_run
from clusterproof.reports.history.words import lines_since
from clusterproof.reports.run_folder import RUNS

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options


class HistoryReporter:
    """The plugin object. A history that cannot be written is a warning, and changes no verdict."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], path: Path) -> None:
        self.config = config
        self.cluster = cluster
        self.results = results
        self.path = path
        self.began = time.time()
        self.warning = ""
        self.last: PastRun | None = None
        self.before: Mapping[Pair, Standing] = {}
        self.is_compared = False
        try:
            self.last, self.before = read_before(path, cluster.name)
            self.is_compared = True
        except HistoryError as problem:
            self.warning = f"no comparison with the last run: {problem}"

    def marked(self, result: Result) -> Result:
        """A result marked with its change since the last run, if there is one."""
        return marked(result, self.before) if self.last and not self._is_partial(result) else result

    def _is_partial(self, result: Result) -> bool:
        """Whether it is from a few pairs only, which cannot confirm what other runs found."""
        between = self.config.stash.get(PAIRWISE, None)
        if between is None or not between.is_partial:
            return False
        from clusterproof.plugins.evaluation.all_checks import evaluated_by_pairs  # few runs measure pairs

        return result.check in evaluated_by_pairs()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add the run once its exit code is decided."""
        results = [result for result in self.results if not self._is_partial(result)]
        if not any(result.is_evaluated for result in results):
            return
        run = PastRun(
            cluster=self.cluster.name,
            began=self.began,
            ended=time.time(),
            occasion=occasion_of(self.config.option.markexpr),
            exit_code=code_so_far(session),
            version=__version__,
        )
        try:
            if not self.config.option.history:
                require_own_history(self.path)
            outcomes: Any = session.config.pluginmanager.get_plugin("clusterproof-outcomes")
            write_run(self.path, run, results, self._identities(), self._measured(), outcomes.reported)
        except HistoryError as problem:
            note_full(self.config, problem)
            self.warning = f"this run is not in the history: {problem}"

    def _identities(self) -> dict[str, NodeIdentity]:
        return identities(nodes_of(self.config)) if EVIDENCE in self.config.stash else {}

    def _measured(self) -> list[Measured]:
        between = self.config.stash.get(PAIRWISE, None)
        if between is None or between.is_partial:
            return []
        from clusterproof.reports.pairs import measured_between  # few runs measure pairs

        return list(measured_between(between))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print changes, if requested, and problems."""
        for line in self._lines():
            terminalreporter.write_line(line)
        if self.warning:
            terminalreporter.write_line(f"warning: {self.warning}", yellow=True)

    def _lines(self) -> Iterator[str]:
        if self.config.option.since_last and self.results and self.is_compared:
            named = ["--history", self.config.option.history] if self.config.option.history else []
            command = join(["clusterproof", "history", *named, "--cluster", self.cluster.name, "--all"])
            yield from lines_since(self.last, since_last(self.results, self.before), time.time(), command)


def history_of(option: Options, cluster: Cluster, where: Path) -> Path | None:
    """The file that `--history` names, else the one next to the cluster's runs; None if the run keeps none.

    Raises pytest.UsageError if a comparison was requested and there is nothing to compare with.
    """
    if option.history:
        return Path(option.history)
    why_not = _why_not(option, cluster)
    if why_not and option.since_last:
        raise pytest.UsageError(f"--since-last needs --history=FILE: {why_not}")
    return None if why_not else default_path(cluster.name, where / RUNS)


def _why_not(option: Options, cluster: Cluster) -> str:
    if option.no_report:
        return "with --no-report nothing is kept beside the reports"
    if option.report:
        return "with --report this run is not kept beside others"
    if option.redact:
        return "redacted names differ from run to run, and are kept in none"
    kind = CONNECTIONS.get(cluster.connection)
    if kind and not kind.is_live:
        return f"what a {cluster.connection} holds is of another time, and is kept in none unless that is asked for"
    return ""
