"""How a run ends: signals, early ends, exit codes, and output that can no longer be written."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from clusterproof.plugins.core.opened import DISK_FULL
from clusterproof.plugins.core.verdict import EXIT_FAILED, EXIT_INCOMPLETE, Verdict
from clusterproof.plugins.suite.state import FULL, note_full

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options


EXIT_AT_SIGNAL = 3  # signals, after which the process exits at once
INTERRUPTED = 2
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NAMES = tuple(number.name for number in _ENDS)


class Signals:
    """Plugin that handles signals from the start of the session until pytest is done."""

    def __init__(self, config: pytest.Config) -> None:
        self.signals = 0
        self.is_finishing = False
        self.before: dict[int, Any] = {}
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Install the handlers before the first node is asked."""
        if threading.current_thread() is not threading.main_thread():
            return  # signal handlers can only be set in the main thread
        for number in _ENDS:
            is_left = signal.getsignal(number) is signal.SIG_IGN  # ignored, as under nohup
            if not is_left and not (self.config.option.usepdb and number is signal.SIGINT):
                self.before[number] = signal.signal(number, self.handle)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """End the run as Ctrl-C does; while it ends, say that reports are being written; exit at the next signal.

        Raises KeyboardInterrupt.
        """
        self.signals += 1
        if self.signals >= EXIT_AT_SIGNAL:
            os._exit(INTERRUPTED)
        if self.signals == 1 and not self.is_finishing:
            raise KeyboardInterrupt(signal.Signals(number).name)
        os.write(2, b"\nwriting what was evaluated; press again to leave without it\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Any:
        """From now on nothing more is evaluated, and the reports may finish."""
        self.is_finishing = True
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Restore the previous handlers."""
        sys.stdout.flush()
        for number, handler in self.before.items():
            signal.signal(number, handler)


class EarlyInterrupt:
    """Whether Ctrl-C ended a run before its summary could say so, for example while the cluster was looked up."""

    def __init__(self) -> None:
        self.is_unsaid = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record it; pytest itself reports other reasons."""
        self.is_unsaid = is_by_signal(excinfo.value)

    def pytest_sessionfinish(self) -> None:
        """The summary reports it."""
        self.is_unsaid = False


def why_it_ended(session: pytest.Session, raised: BaseException | None) -> str:
    """Why a run ended before all its checks did; `raised` is the exception that interrupted pytest."""
    if is_by_signal(raised):
        return f"{raised if str(raised) in _NAMES else 'KeyboardInterrupt'} ended the run"
    if session.shouldfail:
        return "-x or --maxfail ended the run"
    if session.exitstatus == pytest.ExitCode.INTERNAL_ERROR:
        return "an internal error ended the run"
    if raised or session.shouldstop:
        return "pytest ended the run"
    has_workers = session.config.pluginmanager.hasplugin("dsession")
    return "its worker process was lost" if has_workers else "it ended without a report"


def is_by_signal(raised: BaseException | None) -> bool:
    """Whether Ctrl-C or another signal interrupted the run, rather than pytest itself."""
    return type(raised) is KeyboardInterrupt


EXIT_UNCHECKED = int(pytest.ExitCode.NO_TESTS_COLLECTED)  # 5: no check was selected, or none of them applies
EXIT_UNWRITTEN = 11  # `--k8s-gate` could not write everything
BY_VERDICTS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def is_by_failures(session: pytest.Session, raised: BaseException | None) -> bool:
    """Whether `-x` or `--maxfail` ended the run: then verdicts decide the code, even if xdist reports otherwise."""
    is_by_verdict = session.exitstatus in (*BY_VERDICTS, pytest.ExitCode.INTERRUPTED)
    return is_by_verdict and bool(session.shouldfail) and not is_by_signal(raised)


def exit_code(verdicts: Counter[Verdict], option: Options, *, broken: int, is_others: bool) -> int:
    """0 nothing failed, 1 a failure, 10 nothing failed but something is incomplete; policies may change that.

    5 if no check applies: what was not checked is not fit.
    """
    if broken or verdicts[Verdict.FAIL]:
        return EXIT_FAILED
    if verdicts[Verdict.CONCERN] and option.concerns == "fail":
        return EXIT_FAILED
    if verdicts[Verdict.INCOMPLETE] and option.incomplete != "ignore":
        return EXIT_FAILED if option.incomplete == "fail" else EXIT_INCOMPLETE
    is_checked = is_others or verdicts.keys() != {Verdict.NOT_APPLICABLE}
    return 0 if is_checked else EXIT_UNCHECKED


def code_so_far(session: pytest.Session) -> int:
    """The exit code so far; an error if a full disk kept a report from being written."""
    is_full = FULL in session.config.stash and session.exitstatus != pytest.ExitCode.INTERNAL_ERROR
    return INTERRUPTED if is_full else int(session.exitstatus)


def exit_code_of_cut(code: int, *, by_failures: bool) -> int:
    """The exit code of an interrupted run: never success, whatever policies ignore."""
    if not by_failures:
        return INTERRUPTED
    return code if code in (EXIT_FAILED, EXIT_INCOMPLETE) else EXIT_FAILED


class FailSafeStream:
    """A text stream that discards output once the underlying stream fails, and otherwise passes everything on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.problem: OSError | None = None  # a full disk; a reader that went away is no problem

    def write(self, text: str) -> int:
        """Write, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as problem:
            self._fall_silent(problem)
            return len(text)

    def flush(self) -> None:
        """Flush, or discard what is left."""
        try:
            self._stream.flush()
        except OSError as problem:
            self._fall_silent(problem)

    def _fall_silent(self, problem: OSError) -> None:
        """Redirect the descriptor to /dev/null: otherwise Python complains about buffered output at exit."""
        if problem.errno in DISK_FULL:
            self.problem = problem
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)

    def end(self, config: pytest.Config) -> None:
        """Report on standard error that a full disk cut the output, which makes the run fail."""
        self.flush()
        if self.problem:
            note_full(config, self.problem)
            with suppress(OSError):
                sys.stderr.write(f"clusterproof: the answer could not be written: {self.problem.strerror}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
