"""What pytest makes of verdicts: words and letters, the summary, the exit code; every result kept as it comes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.printable import printable
from clusterproof.plugins.core.result import Result, from_json
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.forms.choose import forms, history_form
from clusterproof.plugins.suite.outlet import Outlet
from clusterproof.plugins.suite.places import topology_of
from clusterproof.plugins.suite.state import (
    PAIRWISE,
    TRAINING_RUN,
    UNWRITTEN,
    catalog_of,
    is_named,
    note_unwritten,
)
from clusterproof.plugins.suite.writers import guard_writers
from clusterproof.reports.results import ResultsFile
from clusterproof.reports.summary import summary
from clusterproof.reports.topology import lines

NONE_HERE = "no check was collected here; clusterproof's own: clusterproof check X, or --pyargs clusterproof.checks"
EXIT_UNCHECKED = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # 5: no check was selected, or none of them applies
EXIT_INCOMPLETE = 6  # nothing failed, and something could not be measured
DEFAULT_REPORTCHARS = "fE"  # pytest's own
QUIET_ABOVE = 2_000  # results from which on none gets a letter

_WORDS: dict[Verdict, tuple[str, str, Any]] = {
    Verdict.PASS: ("passed", ".", "PASSED"),
    Verdict.CONCERN: ("concern", "C", ("CONCERN", {"yellow": True})),
    Verdict.FAIL: ("failed", "F", "FAILED"),
    Verdict.INCOMPLETE: ("incomplete", "I", ("INCOMPLETE", {"purple": True})),
    Verdict.NOT_APPLICABLE: ("not applicable", "-", ("NOT APPLICABLE", {"light": True})),
}


class Outcomes:
    """The plugin object that receives every report of a run, in the process that reports."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.results: list[Result] = []
        self.broken = 0  # failures that are nobody's verdict: a test of another kind, a collection error
        self.is_others = False  # whether a test ran that is about no node
        self.is_large = False
        self.is_empty = False  # whether no test was chosen
        path = config.option.results
        self.history = history_form(config, cluster, self.results)
        self.file = results_file(Path(path)) if path and not config.option.collectonly else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Join the report forms that the command line asks for: by now their own plugins are there."""
        guard_writers(self.config)
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter._tw._file = Outlet(reporter._tw._file)  # noqa: SLF001 - pytest has no option for it
            reporter.startpath = (
                self.config.rootpath
            )  # files as `checks/gpu/test_memory.py`, wherever that is installed
        if self.history:
            self.config.pluginmanager.register(self.history, "clusterproof-history")
        for name, form in forms(self.config, self.cluster, self.results):
            self.config.pluginmanager.register(form, f"clusterproof-{name}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Of a large cluster the findings say more than pages of letters."""
        self.is_empty = not session.items
        self.is_large = len(session.items) > QUIET_ABOVE and self.config.get_verbosity() <= 0
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.is_large and reporter:
            reporter.showfspath = False  # a line for each file, with nothing behind it

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> Any:
        """Each verdict's own category, letter and word."""
        result = result_of(report)
        if result is None:
            return None
        category, letter, word = _WORDS[result.verdict]
        return (category, "", "") if self.is_large else (category, letter, word)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep every result, on disk at once where a file was asked for."""
        result = result_of(report)
        if result is None:
            self.broken += report.failed
            self.is_others = self.is_others or report.when == "call"
            return
        self.keep(report, result)

    def category(self, result: Result) -> str:
        """The word under which pytest's terminal counts a result."""
        return _WORDS[result.verdict][0]

    def keep(self, report: Any, result: Result) -> None:
        """Keep a result, and let everybody know who asked for it."""
        result = self.history.marked(result) if self.history else result
        report.clusterproof = result
        self.results.append(result)
        self._write(result)
        self.config.hook.pytest_cluster_result(config=self.config, result=result)

    def _write(self, result: Result) -> None:
        if self.file is None:
            return
        try:
            self.file.write(result)
        except OSError as problem:
            self.file = None
            note_unwritten(self.config, "--results", problem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a mark that is misspelt before pytest looks for it."""
        if self.config.option.markexpr:
            from clusterproof.plugins.suite.unmatched import refuse_misspelt_mark

            refuse_misspelt_mark(self.config, items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is a failure of its own."""
        self.broken += report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Close the file, leave the summary to us where every failure is a verdict, and decide the exit code."""
        if self.file:
            self.file.close()
        if not self.broken:
            self._silence_pytests_own_summary()
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = self.exit_code(int(session.exitstatus))

    def _silence_pytests_own_summary(self) -> None:
        """Ours says the same in fewer lines, and pytest's is quadratic in failures; who asks for it by `-r` gets it."""
        self.config.option.tbstyle = "no"
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter and self.config.option.reportchars == DEFAULT_REPORTCHARS:
            reporter.reportchars = ""

    def exit_code(self, of_pytest: int) -> int:
        """0 nothing failed, 1 a failure, 6 nothing failed but something is incomplete; policies may change that.

        5 where no check applies: what was not checked is not fit.
        """
        if not self.results:
            return of_pytest
        counts = Counter(result.verdict for result in self.results)
        option = self.config.option
        if self.broken or counts[Verdict.FAIL]:
            return 1
        if counts[Verdict.CONCERN] and option.concerns == "fail":
            return 1
        if counts[Verdict.INCOMPLETE] and option.incomplete != "ignore":
            return 1 if option.incomplete == "fail" else EXIT_INCOMPLETE
        is_checked = self.is_others or counts.keys() != {Verdict.NOT_APPLICABLE}
        return 0 if is_checked else EXIT_UNCHECKED

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the findings."""
        for option, words in self.config.stash.get(UNWRITTEN, {}).items():
            terminalreporter.write_line(f"warning: {option} is not whole: {printable(words)}", yellow=True)
        if not self.results:
            self._note_empty(terminalreporter)
            return
        terminalreporter.section(self.cluster.name, sep="=")
        width, is_verbose = self.config.get_terminal_writer().fullwidth, self.config.get_verbosity() > 0
        for line in summary(self.results, catalog_of(self.config), width, is_verbose):
            terminalreporter.write_line(line.text, **line.markup)
        places = topology_of(self.config)
        for text in lines(places) if places else ():
            terminalreporter.write_line(text)
        self._note_pairs(terminalreporter)

    def _note_empty(self, terminalreporter: pytest.TerminalReporter) -> None:
        if is_named(self.config.option.markexpr, "run") and TRAINING_RUN not in self.config.stash:
            words = "-m run evaluates a training run, and none is named; expected --run PATH"
            terminalreporter.write_line(words, yellow=True)
        keyword, deselected = self.config.option.keyword, terminalreporter.stats.get("deselected")
        if self.is_empty and not (deselected or self.broken):
            terminalreporter.write_line(NONE_HERE, yellow=True)
        if keyword and self.is_empty and deselected:
            from clusterproof.plugins.suite.unmatched import nothing_chosen  # most runs choose something

            terminalreporter.write_line(printable(nothing_chosen(keyword, self.cluster)), yellow=True)

    def _note_pairs(self, terminalreporter: pytest.TerminalReporter) -> None:
        between = self.config.stash.get(PAIRWISE, None)
        if between is None:
            return
        from clusterproof.reports.pairs import lines_of_pairs  # few runs measure pairs

        for text in lines_of_pairs(between, self.config.get_terminal_writer().fullwidth):
            terminalreporter.write_line(text)


def results_file(path: Path) -> ResultsFile:
    """The file of `--results`. Raises pytest.UsageError where it cannot be made."""
    try:
        return ResultsFile(path)
    except OSError as problem:
        words = f"--results: {problem.filename or path}: {problem.strerror}; expected a file that may be written"
        raise pytest.UsageError(words) from None


def result_of(report: object) -> Result | None:
    """The result that a report carries, if it is about a node."""
    carried = getattr(report, "clusterproof", None)
    return from_json(carried) if isinstance(carried, dict) else carried
