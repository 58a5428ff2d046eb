"""What the console command shows of a run: the cluster, the findings and the counts; all with `-v`."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from typing import Any

import pytest

_OF_PYTEST = ("rootdir:", "configfile:", "testpaths:", "cachedir:", "plugins:", "metadata:")  # lines of its header
_NOT_COUNTED = ("deselected", "warning")  # what the command line left out; what libraries have to say


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the plain reporter in the place of pytest's own, once that is there."""
    option = config.option
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if type(reporter) is not pytest.TerminalReporter or option.verbose > 0 or option.collectonly:
        return
    option.disable_warnings = True
    config.pluginmanager.unregister(reporter)
    config.pluginmanager.register(PlainReporter(config, sys.stdout), "terminalreporter")


def is_plain(reporter: object) -> bool:
    """Whether this is the reporter of the console command."""
    return isinstance(reporter, PlainReporter)


class PlainReporter(pytest.TerminalReporter):  # type: ignore[misc] # final; pytest has no hooks for what it prints
    """Pytest's own terminal without its header, the count of items and a letter for each test."""

    def __init__(self, config: pytest.Config, file: Any) -> None:
        super().__init__(config, file)
        self._show_progress_info = False
        self._began = time.monotonic()

    @property
    def showheader(self) -> bool:
        """Pytest's own is not shown."""
        return False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Say what is validated, and nothing of pytest."""
        super().pytest_sessionstart(session)
        self._began = time.monotonic()
        if self.verbosity < 0:
            return
        entries = self.config.hook.pytest_report_header(config=self.config, start_path=self.startpath)
        for entry in reversed(entries):
            for line in [entry] if isinstance(entry, str) else entry:
                if not line.startswith(_OF_PYTEST):
                    self.write_line(line)

    def pytest_collection(self) -> None:
        """Say nothing while checks are collected: that takes a moment."""

    def report_collect(self, final: bool = False) -> None:
        """Say nothing of items."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Print no letter for a test."""
        category, _, word = yield
        return category, "", word

    def summary_stats(self) -> None:
        """How many of which verdict, and how long it took."""
        if self.verbosity < -1:
            return
        parts, _ = self.build_summary_stats_line()
        counts = [text for text, _ in parts if not text.rstrip("s").endswith(_NOT_COUNTED)]
        self.write_line(f"{', '.join(counts) or 'no check ran'} in {time.monotonic() - self._began:.1f} s")
