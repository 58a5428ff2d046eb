"""Tries mutants on the tests that run their lines, each in a separate process.

Tests that start programs are left out: the cases cover what they see of a check.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.cases import Lines, cpu_limit, forget_catalogue, traced
from tests.mutants.evaluated import TESTS
from tests.mutants.mutations import Mutant, files_of, installed, live_functions

FILES = (  # tests of checks, facts, the catalogue, and a gate's state
    "aws/test_fsx_facts.py",
    "benchmarks/load/test_stress.py",
    "benchmarks/meters/test_baseline.py",
    "captures/test_disks.py",
    "captures/test_faults.py",
    "captures/test_memory_errors.py",
    "captures/test_nvidia_smi.py",
    "catalog/test_*.py",
    "checks/**/test_*.py",
    "evidence/**/test_*facts.py",
    "evidence/kernel_log/test_*.py",
    "evidence/network/test_libfabric.py",
    "evidence/software/test_*.py",
    "evidence/test_instance_metadata.py",
    "evidence/test_neuron.py",
    "evidence/test_parse_devices.py",
    "evidence/test_pci.py",
    "manifest/test_*.py",
    "policy/test_*.py",
    "suite/test_refresh_catalog.py",
    "training_run/test_*.py",
    "transport/test_kubernetes_report_cache.py",
    "untrusted/test_left_out.py",
)
OTHER_PROGRAMS = frozenset(
    {"answered", "bed", "demo", "installed", "pytester", "runs", "service", "wheel"}
)  # are fixtures
_started: list[str] = []  # programs that tests in this process started
_trials: list[_Trials] = []  # the one that this process's parent uses


def killers(root: Path, package: Path, mutants: Sequence[Mutant], patterns: Iterable[str]) -> tuple[list[str], int]:
    """For each mutant, the first test of some files that fails with it, or empty; and how many tests were tried.

    Raises RuntimeError if the tests cannot be tried.
    """
    trials = _Trials(package, mutants)
    files = [str(file) for file in _files(root, patterns)]
    ended = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", "--no-summary", "--all", *files], plugins=[trials])
    if ended is not pytest.ExitCode.OK:
        raise RuntimeError(f"the tests could not be tried: {ended!r}")
    return trials.found, len(trials.ran)


def _files(root: Path, patterns: Iterable[str]) -> list[Path]:
    return [file for file in files_of(root / "tests", patterns) if str(file.relative_to(root)) not in TESTS]


class _Trials:
    """A pytest plugin that replaces the run of the tests by one for each mutant, of the tests that can fail for it."""

    def __init__(self, package: Path, mutants: Sequence[Mutant]) -> None:
        self.package = package
        self.mutants = mutants
        self.found: list[str] = []
        self.ran: list[tuple[float, pytest.Item, Lines]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests whose fixtures start other programs, and those with hundreds of examples."""
        items[:] = [
            item
            for item in items
            if isinstance(item, pytest.Function)
            and OTHER_PROGRAMS.isdisjoint(set(item.fixturenames) - _parameters(item))
            and not getattr(item.function, "is_hypothesis_test", False)
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record the lines of each test that starts no program; then try the mutants, the quickest tests first."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} files of tests cannot be read")
        sys.addaudithook(lambda event, _: _started.append(event) if event == "subprocess.Popen" else None)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            began, before = time.monotonic(), len(_started)
            forget_catalogue()
            with traced(str(self.package)) as lines:
                passed = _passes(item, following)
            if passed and lines and len(_started) == before:
                self.ran.append((time.monotonic() - began, item, frozenset(lines)))
        self.live = live_functions(self.package)
        self.ran = [self.ran[number] for number in self._steady()]
        _trials[:] = [self]
        with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as workers:
            self.found = workers.map(_killer, range(len(self.mutants)), chunksize=1)
        return True

    def _steady(self) -> list[int]:
        """Tests that run mutants' lines and pass once more without a mutant, quickest first."""
        touched = {(mutant.place[0], line) for mutant in self.mutants for line in mutant.lines}
        self.ran = sorted((ran for ran in self.ran if ran[2] & touched), key=lambda ran: ran[0])
        _trials[:] = [self]
        with multiprocessing.get_context("fork").Pool(1) as worker:
            return worker.apply(_passing)

    def passing(self, chosen: Sequence[pytest.Item]) -> Iterator[bool]:
        """Which of these tests pass."""
        for item, following in zip(chosen, [*chosen[1:], None], strict=False):
            item._initrequest()  # type: ignore[attr-defined]  # it has run before
            with cpu_limit():
                yield _passes(item, following)

    def killer(self, mutant: Mutant) -> str:
        """The first test that fails with the mutant, or empty."""
        touched = {(mutant.place[0], line) for line in mutant.lines}
        items = [item for _, item, lines in self.ran if touched & lines]
        with installed(mutant, self.live):
            forget_catalogue(with_files=True)
            passing = zip(items, self.passing(items), strict=False)
            return next((item.nodeid for item, passed in passing if not passed), "")


def _parameters(item: pytest.Function) -> set[str]:
    """Names that are no fixtures, though pytest counts them as such."""
    return set(item.callspec.params) if hasattr(item, "callspec") else set()


def _killer(number: int) -> str:
    return _trials[0].killer(_trials[0].mutants[number])


def _passing() -> list[int]:
    items = [item for _, item, _ in _trials[0].ran]
    return [number for number, passed in enumerate(_trials[0].passing(items)) if passed]


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))
