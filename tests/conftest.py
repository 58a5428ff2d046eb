"""Fixtures of several test files."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.runs import Runs

pytest_plugins = ["pytester"]
sys.path.insert(0, str(Path(__file__).parents[1]))  # whose benches are tested too, as `bench`
for stop in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(stop) is signal.SIG_IGN:  # as under nohup, and what a test starts would inherit that
        signal.signal(stop, signal.SIG_DFL if stop is signal.SIGHUP else signal.default_int_handler)
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # runs of a test's own are no news for the job that runs the tests

# The same examples in each run, and no deadline: what fails says something of the code, not of the machine or of luck.
# `pytest --hypothesis-profile=explore` looks where nobody has looked before.
_LIMITS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _LIMITS, derandomize=True, database=None)
settings.register_profile("explore", _LIMITS, max_examples=1000)
settings.load_profile("repeatable")


@pytest.fixture
def runs(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs of the real plugin over a small recording and small checks of the test's own."""
    return Runs.prepared(pytester, tmp_path_factory.mktemp("packages"), monkeypatch)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a testbed run in one worker: several at once would measure how busy this machine is."""
    with_testbed = {item.path for item in items if "bed" in getattr(item, "fixturenames", ())}
    for item in items:
        if item.path in with_testbed:
            item.add_marker(pytest.mark.xdist_group("testbed"))
