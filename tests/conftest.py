"""Fixtures that several test folders use."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import requests  # noqa: F401 - a run in this process that loads it leaves half of http.cookiejar behind for the next
from hypothesis import HealthCheck, settings

from clusterproof.plugins.evaluation.routing import mark_lines
from tests.builders.runs import WITHOUT_HYPOTHESIS, Runs, load_suite
from tests.builders.wheel import ROOT, Installed, clone_of, environment_with, wheel_of

pytest_plugins = ["pytester", "tests.tiers"]
sys.path.insert(0, str(Path(__file__).parents[1]))  # so that tests can import `bench`
for stop in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(stop) is signal.SIG_IGN:  # as under nohup; the programs that tests start would inherit it
        signal.signal(stop, signal.SIG_DFL if stop is signal.SIGHUP else signal.default_int_handler)
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # runs that tests start must not write to the CI job's summary

# The same examples in every run and no deadline: a failure comes from the code, never from the machine or chance.
# `pytest --hypothesis-profile=explore` tries new examples.
_LIMITS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _LIMITS, derandomize=True, database=None)
settings.register_profile("explore", _LIMITS, max_examples=1000)
settings.register_profile("quick", _LIMITS, derandomize=True, database=None, max_examples=10)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's marks, because tests import its checks without a cluster."""
    for line in mark_lines():
        config.addinivalue_line("markers", line)


@pytest.fixture(scope="session", autouse=True)
def without_hypothesis() -> None:
    """Turn off hypothesis's plugin in the runs that tests start: loading it takes half of their start-up time."""
    os.environ["PYTEST_ADDOPTS"] = WITHOUT_HYPOTHESIS


@pytest.fixture(autouse=True)
def plugins_of_the_next_test() -> Iterator[None]:
    """Restore plugin autoloading, which the command turns off, after a test that calls the command in this process."""
    name = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
    before = os.environ.get(name)
    yield
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


@pytest.fixture(scope="session")
def suite() -> None:
    """Load the suite's modules once for all runs in this process."""
    load_suite()


@pytest.fixture
def runs(
    suite: None, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Runs:
    """Run the real plugin over a small recording and the test's own small checks."""
    return Runs.prepared(pytester, tmp_path_factory.mktemp("packages"), monkeypatch)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built once for all workers."""
    with of_all_workers(tmp_path_factory, "wheel") as (folder, is_made):
        return (
            next((folder / "wheels").iterdir())
            if is_made
            else wheel_of(clone_of(ROOT, folder / "source"), folder / "wheels")
        )


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel installed and no path to this checkout, made once for all workers."""
    with of_all_workers(tmp_path_factory, "installed") as (folder, is_made):
        return Installed(folder) if is_made else environment_with(wheel, folder)


@contextlib.contextmanager
def of_all_workers(made: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """Lock a folder that all workers share, for one worker at a time; also yields whether it is already filled."""
    base = made.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (base / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_made = os.fstat(lock.fileno()).st_size > 0
        yield base / name, is_made
        lock.write("" if is_made else "made\n")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep compiled tests, whatever the environment says; otherwise every worker compiles them again in each run.

    The half million objects of all tests live as long as the run, so the garbage collector need not scan them again.
    """
    saved, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = saved
        gc.freeze()
        gc.enable()
