"""A plugin that ends its own run after a number of results; `tests.builders.cuts` loads it."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

BY, AFTER, DISK, LARGE = "CUT_BY", "CUT_AFTER", "CUT_DISK", "CUT_LARGE"
if BY in os.environ:  # nohup and a shell's background ignore these signals for all programs they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    by, after = os.environ[BY], int(os.environ[AFTER])
    is_worker = hasattr(config, "workerinput")
    if os.environ.get(LARGE):
        _make_large(config)
    if by == "worker" and is_worker:
        config.pluginmanager.register(OfWorker(after))
    elif by not in ("worker", "--maxfail") and not is_worker:
        config.pluginmanager.register(OfResults(by, after))


class OfResults:
    """Cuts the run in the process that reports."""

    def __init__(self, by: str, after: int) -> None:
        self.by, self.left = by, after

    @pytest.hookimpl(trylast=True)
    def pytest_cluster_result(self) -> None:
        self.left -= 1
        if self.left == 0 and self.by == "full disk":
            most = Path(os.environ[DISK]).stat().st_size + 10  # bytes: no room for the next line or for a page
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        elif self.left == 0:
            os.kill(os.getpid(), signal.Signals[self.by])


class OfWorker:
    """Kills the first xdist worker that starts this many tests; its replacements live."""

    def __init__(self, after: int) -> None:
        self.left = after

    def pytest_runtest_logstart(self) -> None:
        self.left -= 1
        if self.left == 0 and os.environ["PYTEST_XDIST_WORKER"] == "gw0":
            os.kill(os.getpid(), signal.SIGKILL)


def _make_large(config: pytest.Config) -> None:
    """Have a small run take a large run's code paths: past pytest's hooks, with children that examine nodes ahead."""
    from clusterproof.plugins.suite import outcomes, parallel, run_loop

    run_loop.MANY = outcomes.NO_LETTERS_ABOVE = parallel.MIN_ITEMS = 1
    vars(parallel)["CHECKS"] = config.rootpath
    parallel._processors = lambda: 2
