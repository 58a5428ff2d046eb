"""Fixtures of several test files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from clusterproof.plugins.suite.routing import mark_lines
from tests.builders.runs import Runs, load_suite
from tests.builders.wheel import ROOT, Installed, environment_with, wheel_of

pytest_plugins = ["pytester"]
ROOMS = frozenset({"aws", "counterparts"})  # a server of AWS's interfaces, and the programs of others
PROGRAMS = frozenset(
    {"bed", "installed", "moto", "pytester", "run", "runs", "stand", "wheel"}
)  # fixtures that start them
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
settings.register_profile("quick", _LIMITS, derandomize=True, database=None, max_examples=10)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Know the suite's marks: tests import its checks without a cluster."""
    for line in mark_lines():
        config.addinivalue_line("markers", line)
    config.addinivalue_line("markers", "long: takes seconds, and `--quick` leaves it out")
    if config.getoption("--quick"):
        settings.load_profile("quick")


@pytest.fixture(scope="session")
def suite() -> None:
    """The modules of the suite, once for all runs in this process."""
    load_suite()


@pytest.fixture
def runs(
    suite: None, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Runs:
    """Runs of the real plugin over a small recording and small checks of the test's own."""
    return Runs.prepared(pytester, tmp_path_factory.mktemp("packages"), monkeypatch)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return wheel_of(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment in which the wheel is installed, and nothing leads to this checkout."""
    return environment_with(wheel, tmp_path_factory.mktemp("installed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what chooses among these tests."""
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no other program and are short; fewer examples"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep tests as they were compiled, whatever the environment says: else each worker does it anew in each run."""
    told, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = told


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--quick` leaves out."""
    if not config.getoption("--quick"):
        return
    config.hook.pytest_deselected(items=[item for item in items if is_long(item)])
    items[:] = [item for item in items if not is_long(item)]


def is_long(item: pytest.Item) -> bool:
    """Whether a test is marked so, or needs a program of others, root, a testbed or a run of pytest."""
    if item.get_closest_marker("long"):
        return True
    needs = any(True for _ in item.iter_markers("skipif"))
    return needs or not ROOMS.isdisjoint(item.path.parts) or not PROGRAMS.isdisjoint(item.fixturenames)  # type: ignore[attr-defined]
