"""Translates verdicts for pytest: words and letters, summary, exit code; stores every result as it arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.escaping import as_job_log
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.ending import (
    BY_VERDICTS,
    FailSafeStream,
    code_so_far,
    exit_code,
    exit_code_of_cut,
    is_by_failures,
    why_it_ended,
)
from clusterproof.plugins.suite.report import ENDED, carried_result, is_of_lost_worker
from clusterproof.plugins.suite.reporters import guard_writers, history_reporter, reporters
from clusterproof.plugins.suite.state import (
    PAIRWISE,
    TRAINING_RUN,
    UNWRITTEN,
    catalog_of,
    is_named,
    nodes_of,
    note_unwritten,
    tell_plugins,
    topology_of,
)
from clusterproof.plugins.suite.terminal import Evaluating, is_plain
from clusterproof.reports import with_broken
from clusterproof.reports.results import ResultsFile
from clusterproof.reports.summary import summary
from clusterproof.reports.topology import lines

NONE_HERE = (
    "no check was collected here; clusterproof's own: clusterproof check X, clusterproof --run PATH, "
    "or --pyargs clusterproof.checks"
)
DEFAULT_REPORTCHARS = "fE"  # pytest's own
NO_LETTERS_ABOVE = 2_000  # number of results above which none gets a letter

_WORDS: dict[Verdict, tuple[str, str, Any]] = {
    Verdict.PASS: ("passed", ".", "PASSED"),
    Verdict.CONCERN: ("concern", "C", ("CONCERN", {"yellow": True})),
    Verdict.FAIL: ("failed", "F", "FAILED"),
    Verdict.INCOMPLETE: ("incomplete", "I", ("INCOMPLETE", {"purple": True})),
    Verdict.NOT_APPLICABLE: ("not applicable", "-", ("NOT APPLICABLE", {"light": True})),
}


class Outcomes:
    """Plugin that receives every report of a run, in the process that reports."""

    def __init__(self, config: pytest.Config, cluster: Cluster) -> None:
        self.config = config
        self.cluster = cluster
        self.results: list[Result] = []
        self.places: dict[str, tuple[str, int]] = {}  # file and line of each check, as pytest reports them
        self.ended: list[tuple[str, str]] = []  # without a verdict, by check and node
        self.raised: BaseException | None = None  # the exception that interrupted pytest
        self.is_cut = False  # whether something was selected but not evaluated
        self.lost: list[str] = []  # tests whose xdist worker crashed, as xdist reports them
        self.broken = 0  # failures without a verdict: another kind of test, a collection error
        self.is_others = False  # whether a test ran that is not about a node
        self.is_large = False
        self.is_silent = False  # whether no letters are printed
        self.evaluating: Evaluating | None = None
        self.output: FailSafeStream | None = None  # the terminal's
        self.is_empty = False  # whether no test was selected
        path = config.option.results
        self.history = history_reporter(config, cluster, self.results)
        self.file = results_file(Path(path)) if path and not config.option.collectonly else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Register the reporters that the command line asks for: their own plugins are loaded by now.

        Raises pytest.UsageError.
        """
        if self.config.option.markexpr or self.config.option.keyword:
            from clusterproof.plugins.suite.selection import refuse_wrong_words

            refuse_wrong_words(self.config)
        guard_writers(self.config)
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            log = as_job_log(reporter._tw._file)  # noqa: SLF001 - pytest has no option for it
            self.output = reporter._tw._file = FailSafeStream(log)  # noqa: SLF001
            reporter.startpath = self.config.rootpath  # shown as `checks/gpu/test_memory.py`
        if self.history:
            self.config.pluginmanager.register(self.history, "clusterproof-history")
        for name, joining in reporters(self.config, self.cluster, self.results):
            self.config.pluginmanager.register(joining, f"clusterproof-{name}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """For a large cluster, print findings instead of pages of letters."""
        self.is_empty = not session.items
        self._show_progress(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """The same where workers collect, once the first one has."""
        if self.evaluating is None:
            self._show_progress(len(ids))

    def _show_progress(self, checks: int) -> None:
        self.is_large = checks > NO_LETTERS_ABOVE and self.config.get_verbosity() <= 0
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        self.is_silent = self.is_large or is_plain(reporter)
        if self.is_silent and reporter:
            reporter.showfspath = False  # it would print a line for each file, with nothing behind it
            if reporter.isatty and self.config.option.verbose >= 0 and not self.config.option.collectonly:
                self.evaluating = Evaluating(reporter, checks, len(self.cluster.targets))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> Any:
        """The category, letter and word of each verdict."""
        result = carried_result(report)
        if is_of_lost_worker(report):
            return "interrupted", "" if self.is_silent else "I", ("INTERRUPTED", {"purple": True})
        if result is None:
            return None
        category, letter, word = _WORDS[result.verdict]
        return (category, "", "") if self.is_silent else (category, letter, word)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep every result, and write it to disk at once if a file was requested."""
        result = carried_result(report)
        if is_of_lost_worker(report):
            self.lost.append(printable(str(report.longrepr)))
            return
        if result is None:
            self.broken += report.failed
            self.is_others = self.is_others or report.when == "call"
            self.ended += [tuple(ended)] if (ended := getattr(report, ENDED, None)) else []
            return
        self.keep(report, result)

    @property
    def reported(self) -> list[Result]:
        """The results for people: verdicts, and tests that broke."""
        return with_broken(self.results, self.broken, self.cluster.name)

    def category(self, result: Result) -> str:
        """The category in which pytest's terminal counts a result."""
        return _WORDS[result.verdict][0]

    def keep(self, report: Any, result: Result) -> None:
        """Keep a result, and pass it to the plugins that want it."""
        result = self.history.marked(result) if self.history else result
        report.clusterproof = result
        if result.check not in self.places:
            path, line, _ = report.location
            self.places[result.check] = path, line or 0
        self._add(result)

    def _add(self, result: Result) -> None:
        self.results.append(result)
        if self.evaluating:
            self.evaluating.count()
        self._write()
        tell_plugins(self.config, result)

    def _write(self) -> None:
        """Write what is missing in the file: one result, and any that a signal interrupted."""
        if self.file is None:
            return
        try:
            self.file.write_rest(self.results)
        except OSError as problem:
            self.file = None
            note_unwritten(self.config, "--results", problem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Reject a misspelt mark before pytest looks for it."""
        if self.config.option.markexpr:
            from clusterproof.plugins.suite.selection import refuse_misspelt_mark

            refuse_misspelt_mark(self.config, items)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that cannot be collected as a failure."""
        self.broken += report.failed

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record what interrupted the run: a signal, or pytest itself."""
        self.raised = excinfo.value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Add unevaluated checks, suppress pytest's summary if all failures are verdicts, decide the exit code.

        Reports are written after this; a full disk that affects one of them is known when they end.
        """
        if self.evaluating:
            self.evaluating.end()
            self.evaluating = None
        self._add_unevaluated(session)
        self._write()
        if self.file:
            self.file.close()
        if not self.broken:
            self._silence_pytests_own_summary()
        session.exitstatus = self._exit_status(session)
        yield
        if self.output:
            self.output.end(self.config)
        session.exitstatus = code_so_far(session)

    def _add_unevaluated(self, session: pytest.Session) -> None:
        if self.config.option.collectonly or (not self.results and session.exitstatus == pytest.ExitCode.OK):
            return  # it does not evaluate, like `clusterproof manifest`
        run: Any = self.config.pluginmanager.get_plugin("clusterproof-session")
        ended = Counter([*((result.check, result.node) for result in self.results), *self.ended])
        for result in run.unevaluated(session, ended, why_it_ended(session, self.raised)):
            self.is_cut = True
            self._add(result)

    def _exit_status(self, session: pytest.Session) -> int | pytest.ExitCode:
        by_failures = is_by_failures(session, self.raised)
        if not (by_failures or session.exitstatus in BY_VERDICTS) or not self.results:
            return session.exitstatus
        verdicts = Counter(result.verdict for result in self.results)
        code = exit_code(verdicts, self.config.option, broken=self.broken, is_others=self.is_others)
        if self.is_cut or self.lost:
            code = exit_code_of_cut(code, by_failures=by_failures and not self.lost)
        return code

    def _silence_pytests_own_summary(self) -> None:
        """Ours says the same in fewer lines, and pytest's is quadratic in failures; `-r` still shows it."""
        self.config.option.tbstyle = "no"
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter and self.config.option.reportchars == DEFAULT_REPORTCHARS:
            reporter.reportchars = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the findings."""
        for option, problem in self.config.stash.get(UNWRITTEN, {}).items():
            terminalreporter.write_line(f"warning: {option} is not whole: {printable(problem)}", yellow=True)
        for problem in self.lost:
            terminalreporter.write_line(problem, purple=True)
        if not self.results:
            self._note_empty(terminalreporter)
            return
        if not is_plain(terminalreporter):
            terminalreporter.section(self.cluster.name, sep="=")
        width, is_verbose = self.config.get_terminal_writer().fullwidth, self.config.get_verbosity() > 0
        cluster = None if self.config.option.redact else self.cluster
        for line in summary(self.reported, catalog_of(self.config), width, is_verbose, cluster):
            terminalreporter.write_line(line.text, **line.markup)
        for text in lines(places) if (places := topology_of(self.config)) else ():
            terminalreporter.write_line(text)
        self._note_measurements(terminalreporter)

    def _note_empty(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.raised:
            terminalreporter.write_line("INTERRUPTED before any check was chosen", bold=True)
            return
        if is_named(self.config.option.markexpr, "run") and TRAINING_RUN not in self.config.stash:
            problem = "-m run evaluates a training run, and none is named; expected --run PATH"
            terminalreporter.write_line(problem, yellow=True)
        keyword, deselected = self.config.option.keyword, terminalreporter.stats.get("deselected")
        if self.is_empty and not (deselected or self.broken):
            terminalreporter.write_line(NONE_HERE, yellow=True)
        if keyword and self.is_empty and deselected:
            from clusterproof.plugins.suite.selection import nothing_chosen  # most runs select something

            terminalreporter.write_line(printable(nothing_chosen(keyword, self.cluster)), yellow=True)

    def _note_measurements(self, terminalreporter: pytest.TerminalReporter) -> None:
        of_nodes = nodes_of(self.config) if is_named(self.config.option.markexpr, "perf") else {}
        between = self.config.stash.get(PAIRWISE, None)
        if of_nodes or between is not None:
            from clusterproof.reports.measurements import lines_of_measurements  # few runs measure anything

            for text in lines_of_measurements(of_nodes, between, self.config.get_terminal_writer().fullwidth):
                terminalreporter.write_line(text)


def results_file(path: Path) -> ResultsFile:
    """The file of `--results`. Raises pytest.UsageError if it cannot be created."""
    try:
        return ResultsFile(path)
    except OSError as problem:
        unwritable = f"--results: {problem.filename or path}: {problem.strerror}; expected a file that may be written"
        raise pytest.UsageError(unwritable) from None
