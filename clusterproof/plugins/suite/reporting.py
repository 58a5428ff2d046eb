"""`--report`: stores a run's results as they arrive, and writes its reports at the end."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.opened import path_exists
from clusterproof.plugins.evaluation.index import Stale, read_index
from clusterproof.plugins.suite.ending import code_so_far
from clusterproof.plugins.suite.items import route_of
from clusterproof.plugins.suite.outcomes import Outcomes
from clusterproof.plugins.suite.state import PAIRWISE, TRAINING_RUN, catalog_of, cluster_of, note_full, policy_of
from clusterproof.reports.results import ResultsFile
from clusterproof.reports.run_folder import PAGE, RUNS

if TYPE_CHECKING:
    from clusterproof.plugins.evaluation.index import Entry
    from clusterproof.reports.history import Past
    from clusterproof.reports.run import Run


class Reporting:
    """The plugin that writes the report folder. Problems are one line each; they never fail a run."""

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        self.config = config
        self.outcomes = outcomes
        self.began = datetime.now(timezone.utc)
        self.where = config.invocation_params.dir
        self.folder: Path | None = None
        self.results: ResultsFile | None = None
        self.left_out: dict[str, str] = {}
        self.problem = ""
        self.is_written = False
        self.of_runs = ""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Record what the command line deselects."""
        for item in items:
            about = route_of(item)
            if about:
                self.left_out.setdefault(about.check, about.title)

    def pytest_cluster_result(self) -> None:
        """Store a verdict on disk at once; the first one creates the folder."""
        if self.problem:
            return
        try:
            if self.results is None:
                self.results = ResultsFile(self.made_folder() / _RESULTS, is_named=False)
            self.results.write_rest(self.outcomes.results)
        except OSError as problem:
            self._failed(problem)

    def made_folder(self) -> Path:
        """Create the folder of this run's reports if needed. Raises OSError."""
        if self.folder is None:
            from clusterproof.reports.run_folder import folder_of_its_own

            named = self.config.option.report
            self.folder = (
                self.where / named if named else folder_of_its_own(self.where, self.outcomes.cluster.name, self.began)
            )
        return self.folder

    @property
    def page(self) -> str:
        """Where the page will be: below `--report-url`, else a local path; empty if there is none, or if redacted."""
        if self.folder is None or self.problem:
            return ""
        base = self.config.option.report_url
        if not base:
            return "" if self.config.option.redact else f"{os.uname().nodename}:{self.folder / PAGE}"
        within = "" if self.config.option.report else f"{self.folder.relative_to(self.where / RUNS).as_posix()}/"
        return f"{base.rstrip('/')}/{quote(within)}{PAGE}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports of what was evaluated, also for an interrupted run."""
        if self.outcomes.results:
            self.pytest_cluster_result()  # a signal may have interrupted the last write
        if self.folder is None:
            return
        from clusterproof.reports.formats import write_report
        from clusterproof.reports.run_folder import point_latest

        try:
            if self.results:
                self.results.close()
            write_report(self.folder, self._run(code_so_far(session)))
            self.is_written = not self.problem
            if not self.config.option.report:
                point_latest(self.where, self.folder)
                self.of_runs = self._older_runs()
        except Exception as problem:  # a failing report affects no verdict
            self._failed(problem)

    def _older_runs(self) -> str:
        """What happened to reports of older runs, or their total size."""
        assert self.folder
        try:
            return _kept(self.config.option.keep, self.folder)
        except OSError as problem:  # this run's report is unaffected
            return f" (older runs: {problem.filename}: {problem.strerror})"

    def _run(self, exit_code: int) -> Run:
        from clusterproof.plugins.evaluation.all_checks import evaluated_by_pairs
        from clusterproof.plugins.options.argv import command_of
        from clusterproof.reports.run import Run

        history = self.outcomes.history
        evaluated = {result.check for result in self.outcomes.results}
        return Run(
            facts=cluster_of(self.config),
            results=self.outcomes.reported,
            began=self.began,
            seconds=(datetime.now(timezone.utc) - self.began).total_seconds(),
            exit_code=exit_code,
            compared=_compared(evaluated) if TRAINING_RUN in self.config.stash else {},
            junit_cases=self.config.option.junit_cases,
            sources={} if self.config.getini("junit_family") == "xunit2" else self._sources(),
            command=command_of(self.config),
            left_out={check: title for check, title in self.left_out.items() if check not in evaluated},
            evaluated_by_pairs=evaluated_by_pairs() if PAIRWISE in self.config.stash else frozenset(),
            between=self.config.stash.get(PAIRWISE, None),
            past=self._past(),
            site=policy_of(self.config).site,
            training=self.config.stash.get(TRAINING_RUN, None),
            last_began=history.last.began if history and history.last else None,
            before=history.before if history else {},
            is_redacted=bool(self.config.option.redact),
            inventory=self.outcomes.cluster,
        )

    def _sources(self) -> dict[str, tuple[str, int]]:
        """File and line of each check, relative to its repository; with `--redact` only for packaged ones."""
        try:
            index = read_index()
        except Stale:
            index = {}
        places = self.outcomes.places.items()
        sources = {check: source_of(path, line, index.get(check)) for check, (path, line) in places}
        shown = _PACKAGED if self.config.option.redact else ""
        return {check: source for check, source in sources.items() if source[0] and source[0].startswith(shown)}

    def _past(self) -> Past | None:
        """This run and earlier ones; None if the history is unreadable, which is reported separately."""
        from clusterproof.reports.document.trend import MAX_RUNS
        from clusterproof.reports.history import HistoryError
        from clusterproof.reports.history.past import read_past

        history = self.outcomes.history
        if history is None or not path_exists(history.path):
            return None
        try:
            return read_past(history.path, self.outcomes.cluster.name, MAX_RUNS)
        except HistoryError:
            return None

    def _failed(self, problem: Exception) -> None:
        note_full(self.config, problem)
        if self.problem:
            return  # the first line says what is wrong
        if isinstance(problem, OSError) and problem.filename:
            self.problem = f"{problem.filename}: {problem.strerror or problem}"
        else:
            self.problem = str(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the reports are, or why there are none."""
        if self.problem:
            warning = f"no report, or not all of it: {printable(self.problem)}"
            terminalreporter.write_line(f"{warning} ({_WAYS_OUT})", yellow=True)
        elif self.is_written and self.folder:
            page = self.folder / PAGE
            shown = page.relative_to(self.where) if page.is_relative_to(self.where) else page
            terminalreporter.write_line(f"report: {printable(str(shown))}{self.of_runs}")
            self._annotate(terminalreporter)

    def _annotate(self, terminalreporter: pytest.TerminalReporter) -> None:
        from clusterproof.reports.formats.markdown import annotation_lines, are_annotations_read

        if are_annotations_read():
            log: Any = terminalreporter._tw._file  # noqa: SLF001 - a JobLog's, as commands are read
            with log.commands():
                for line in annotation_lines(self.outcomes.reported, catalog_of(self.config)):
                    terminalreporter.write_line(line)


def source_of(path: str, line: int, entry: Entry | None) -> tuple[str, int]:
    """The location of a check, with lines counted from 1, from pytest's file name and the index.

    Pytest names a packaged file relative to the folder on the command line, or through a link of the checkout.
    """
    file = f"{entry['module'].replace('.', '/')}.py" if entry and entry["line"] == line else ""
    return (file if file.endswith(path) else path), line + 1


def _compared(evaluated: Collection[str]) -> dict[str, list[str]]:
    """The names of the thresholds that a training run's rules compare with."""
    from clusterproof.plugins.evaluation.all_checks import all_checks
    from clusterproof.plugins.evaluation.rules import thresholds_of

    rules = {name: check for name, check in all_checks().items() if check.is_of_run and name in evaluated}
    return {name: thresholds_of(check.function) for name, check in rules.items()}


def _kept(keep: int | None, folder: Path) -> str:
    """Remove older runs according to `--keep`; returns what to print about them or their size. Raises OSError."""
    from clusterproof.reports.run_folder import remove_all_but, sibling_runs, size_bytes

    if keep is not None:
        removed = remove_all_but(keep, folder)
        return f" (removed {number_of(removed, 'older run')})" if removed else ""
    runs = sibling_runs(folder)
    held_bytes = size_bytes(runs)
    if held_bytes < MUCH_BYTES:
        return ""
    held = f"{number_of(len(runs), 'run')} of this cluster hold {held_bytes / 1e9:.1f} GB"
    return f" ({held}; --keep {KEPT_RUNS} removes older ones)"


MUCH_BYTES = 1_000_000_000
KEPT_RUNS = 20
_RESULTS = "results.jsonl"
_PACKAGED = "clusterproof/"  # prefix of a packaged check's file
_WAYS_OUT = "--report DIR writes elsewhere, --no-report not at all"
