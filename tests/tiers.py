"""Selects the tests to run: by default one case of those that take turns; `--quick`, `--system`, `--all` change it."""

from __future__ import annotations

import functools
import re
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

TESTS = Path(__file__).parent
PRODUCT = TESTS.parent / "clusterproof"
LONG_FOLDERS = frozenset({"aws", "counterparts"})  # a fake AWS server, and third-party programs
ONE_SERVER = re.compile(r"tests/(?:aws|kubernetes(?P<perf>/perf)?)/")  # with servers that take long to start
HALVES = 2  # of such a folder, each with servers of its own; three kubelets for measurements are started only once
PROGRAMS = frozenset(
    {"bed", "installed", "moto", "pytester", "run", "runs", "stand", "wheel"}
)  # fixtures that start programs
_SUMMARY_LINES: pytest.StashKey[list[str]] = pytest.StashKey()  # how many tests were left out, and why
FEW = 3  # cases of each long test without `--all`, and of each test with `--quick`
STARTING = frozenset({"packaging", "scripts", "untrusted"})  # test folders without a package of their own
MEETS_SYSTEM = re.compile(
    r"^\s*(?:import|from) (?:ctypes|fcntl|grp|mmap|pwd|resource|select|signal|socket|subprocess|tarfile)\b"
    r"|\bos\.(?:open|access|fork|kill|killpg|umask|chown|f?chmod|gete?[ug]id|set\w+)\(",
    re.MULTILINE,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that select tests."""
    group = parser.getgroup("tiers")
    group.addoption(
        "--quick",
        action="store_true",
        help=f"only tests that start no other program, of each at most {FEW} cases; fewer examples",
    )
    group.addoption(
        "--system",
        action="store_true",
        help="only tests of packages that start programs, signal them, open sockets, or lock or guard files: what"
        " another user or another build of Python may change",
    )
    group.addoption(
        "--all",
        action="store_true",
        help="every case of long tests, and of tests whose cases otherwise take turns",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks that the selection reads."""
    config.addinivalue_line("markers", "long: takes a tenth of a second or more, and `--quick` leaves it out")
    config.addinivalue_line(
        "markers",
        'in_turn(name, by="file"): a file, or by="test" each test, has one of its names, and with `--all` each',
    )
    config.addinivalue_line("markers", "any_user: another user or build of Python changes nothing; not in `--system`")
    if config.getoption("--quick"):
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Generator[None, bool | None, bool | None]:
    """Do not collect folders that an option leaves out entirely."""
    ignored = yield
    if config.getoption("--quick") and collection_path.name in LONG_FOLDERS:
        return True
    if config.getoption("--system") and collection_path.suffix == ".py" and TESTS in collection_path.parents:
        return ignored if meets_system(collection_path.parent) else True
    return ignored


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests, and run files with long tests first so that no worker is left with one at the end."""
    long = [item for item in items if is_long(item)]
    left_out = set(long) if config.getoption("--quick") else set()
    lines = []
    if not config.getoption("--all"):
        waiting = set(out_of_turn(items))
        left_out |= waiting
        in_turn = sum(item.get_closest_marker("in_turn") is not None for item in items)
        if in_turn:
            lines.append(f"{in_turn - len(waiting)} of {in_turn} cases that take turns ran; --all runs each")
        running = (item for item in long if item not in left_out and not is_skipped(item))
        beyond = set(beyond_a_few(running, FEW))
        left_out |= beyond
        if beyond:
            lines.append(f"{len(beyond)} cases of long tests that have more than {FEW} did not run; --all runs each")
    if config.getoption("--system"):
        same = {item for item in items if item.get_closest_marker("any_user")}
        left_out |= same
        if same:
            lines.append(f"{len(same)} tests that another user cannot affect did not run; without --system they do")
    if config.getoption("--quick"):
        further = set(beyond_a_few((item for item in items if item not in left_out), FEW))
        left_out |= further
        lines.append(f"{len(further)} cases of tests that have more than {FEW} did not run; without --quick they do")
    _keep_for_summary(config, lines)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    files = {item.path for item in long}
    items.sort(key=lambda item: item.path not in files)


def _keep_for_summary(config: pytest.Config, lines: list[str]) -> None:
    config.stash[_SUMMARY_LINES] = lines
    if hasattr(config, "workeroutput"):
        config.workeroutput["left out"] = lines


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what an xdist worker left out; every worker leaves out the same."""
    lines = getattr(node, "workeroutput", {}).get("left out")
    node.config.stash[_SUMMARY_LINES] = lines or node.config.stash.get(_SUMMARY_LINES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report how many tests were left out."""
    for line in config.stash.get(_SUMMARY_LINES, []):
        terminalreporter.line(line)


def is_long(item: pytest.Item) -> bool:
    """Whether a test is marked long, or needs a third-party program, root, a testbed or a run of pytest."""
    if item.get_closest_marker("long"):
        return True
    needs = any(True for _ in item.iter_markers("skipif"))
    return needs or not LONG_FOLDERS.isdisjoint(item.path.parts) or not PROGRAMS.isdisjoint(item.fixturenames)  # type: ignore[attr-defined]


class ByServer(LoadFileScheduling):  # type: ignore[misc]
    """Each file to one worker, and a folder whose tests share servers, or half of it: more would start them again."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        folder = ONE_SERVER.match(file)
        if not folder:
            return file
        return folder[0] if folder["perf"] else f"{folder[0]} {zlib.crc32(file.encode()) % HALVES}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer | None:
    """Schedule by file and server."""
    return ByServer(config, log) if config.getoption("dist") == "loadfile" else None


@functools.cache
def meets_system(folder: Path) -> bool:
    """Whether the package tested in this folder starts programs, signals them, opens sockets, or locks or guards files.

    Subpackages with a test folder of their own are judged separately.
    """
    path = folder.relative_to(TESTS)
    if path.parts and path.parts[0] in STARTING:
        return True
    packages = [base / path for base in (PRODUCT, PRODUCT / "plugins") if path.parts and (base / path).is_dir()]
    return any(
        MEETS_SYSTEM.search(file.read_text(encoding="utf-8"))
        for package in packages
        for file in package.rglob("*.py")
        if not _has_tests_of_its_own(file.parent, package, folder)
    )


def _has_tests_of_its_own(inner: Path, package: Path, folder: Path) -> bool:
    return any((folder / part).is_dir() for part in inner.relative_to(package).parts[:1])


def out_of_turn(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that would repeat a test under another name; a name whose cases would all skip is never chosen."""
    groups: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if mark := item.get_closest_marker("in_turn"):
            end = {"file": "::", "test": "["}[mark.kwargs.get("by", "file")]
            groups[item.nodeid.partition(end)[0]][mark.args[0]].append(item)
    for path, named in groups.items():
        running = sorted(name for name, cases in named.items() if not all(map(is_skipped, cases)))
        chosen = running[zlib.crc32(path.encode()) % len(running)] if running else ""
        yield from (case for name in running if name != chosen for case in named[name])


def beyond_a_few(items: Iterable[pytest.Item], few: int) -> Iterator[pytest.Item]:
    """The cases beyond `few` of each test; those kept are spread evenly."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        kept = {at * len(cases) // few for at in range(few)} if len(cases) > few else range(few)
        yield from (case for at, case in enumerate(cases) if at not in kept)


def each_with_some(rows: Sequence[object], columns: Sequence[object]) -> list[ParameterSet]:
    """Every row with every column, in turn: a test runs each row with one column, or with `--all` with each."""
    return [
        pytest.param(row, column, marks=pytest.mark.in_turn(str((number + at) % len(columns)), by="test"))
        for number, row in enumerate(rows)
        for at, column in enumerate(columns)
    ]


def is_skipped(item: pytest.Item) -> bool:
    """Whether this machine lacks something that the test needs."""
    return any(mark.args[0] for mark in item.iter_markers("skipif"))
