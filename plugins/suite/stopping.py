"""Signals that end a run: the first stops it, and then what was evaluated is reported, whoever presses again."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest

AT_ONCE_FROM = 3  # signals, and the process goes at once
INTERRUPTED = 2
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """The plugin object that handles signals from the start of the session until pytest is done."""

    def __init__(self, config: pytest.Config) -> None:
        self.signals = 0
        self.is_finishing = False
        self.before: dict[int, Any] = {}
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Listen, before the first node is asked."""
        if threading.current_thread() is not threading.main_thread():
            return  # only there may it be said what a signal does
        for number in _ENDS:
            is_left = signal.getsignal(number) is signal.SIG_IGN  # as by nohup
            if not is_left and not (self.config.option.usepdb and number is signal.SIGINT):
                self.before[number] = signal.signal(number, self.handle)

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """End the run as Ctrl-C does; once it ends, only say that reports are written; give up at the next signal."""
        self.signals += 1
        if self.signals >= AT_ONCE_FROM:
            os._exit(INTERRUPTED)
        if self.signals == 1 and not self.is_finishing:
            raise KeyboardInterrupt(signal.Signals(number).name)
        os.write(2, b"\nwriting what was evaluated; press again to leave without it\n")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Any:
        """From now on nothing more is evaluated: the reports are allowed to finish."""
        self.is_finishing = True
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave signals to who had them."""
        sys.stdout.flush()
        for number, handler in self.before.items():
            signal.signal(number, handler)
