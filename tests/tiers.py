"""Which tests run: all but for cases that take turns, the quick ones, or those that meet the operating system."""

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

TESTS = Path(__file__).parent
PRODUCT = TESTS.parent / "clusterproof"
ROOMS = frozenset({"aws", "counterparts"})  # a server of AWS's interfaces, and the programs of others
PROGRAMS = frozenset(
    {"bed", "installed", "moto", "pytester", "run", "runs", "stand", "wheel"}
)  # fixtures that start them
_SAID: pytest.StashKey[list[str]] = pytest.StashKey()  # how much is left out
FEW = 3  # cases of a long test, where there is no `--all`, and with `--quick` of each
STARTING = frozenset({"packaging", "scripts", "untrusted"})  # folders of tests that have no package of their own
MEETS_SYSTEM = re.compile(
    r"^\s*(?:import|from) (?:ctypes|fcntl|grp|mmap|pwd|resource|select|signal|socket|subprocess|tarfile)\b"
    r"|\bos\.(?:open|access|fork|kill|killpg|umask|chown|f?chmod|gete?[ug]id|set\w+)\(",
    re.MULTILINE,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that choose among these tests."""
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
    """Register the marks that the choice reads."""
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
    """Do not even read what an option leaves out as a whole."""
    ignored = yield
    if config.getoption("--quick") and collection_path.name in ROOMS:
        return True
    if config.getoption("--system") and collection_path.suffix == ".py" and TESTS in collection_path.parents:
        return ignored if meets_system(collection_path.parent) else True
    return ignored


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not chosen, and begin with files of long tests, so that no worker ends with one."""
    long = [item for item in items if is_long(item)]
    left_out = set(long) if config.getoption("--quick") else set()
    said = []
    if not config.getoption("--all"):
        waiting = set(out_of_turn(items))
        left_out |= waiting
        in_turn = sum(item.get_closest_marker("in_turn") is not None for item in items)
        said += [f"of {in_turn} cases that take turns {in_turn - len(waiting)} had theirs; --all runs each"] * bool(
            in_turn
        )
        running = (item for item in long if item not in left_out and not is_skipped(item))
        beyond = set(beyond_a_few(running, FEW))
        left_out |= beyond
        said += [f"{len(beyond)} cases of long tests that have more than {FEW} ran not; --all runs each"] * bool(beyond)
    if config.getoption("--system"):
        same = {item for item in items if item.get_closest_marker("any_user")}
        left_out |= same
        said += [f"{len(same)} tests of which another user changes nothing ran not; without --system they do"] * bool(
            same
        )
    if config.getoption("--quick"):
        further = set(beyond_a_few((item for item in items if item not in left_out), FEW))
        left_out |= further
        said += [f"{len(further)} cases of tests that have more than {FEW} ran not; without --quick they do"]
    _say_at_the_end(config, said)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
    files = {item.path for item in long}
    items.sort(key=lambda item: item.path not in files)


def _say_at_the_end(config: pytest.Config, lines: list[str]) -> None:
    config.stash[_SAID] = lines
    if hasattr(config, "workeroutput"):
        config.workeroutput["left out"] = lines


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn of a worker of xdist what it has left out: each leaves out the same."""
    node.config.stash[_SAID] = getattr(node, "workeroutput", {}).get("left out") or node.config.stash.get(_SAID, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how much was left out."""
    for line in config.stash.get(_SAID, []):
        terminalreporter.line(line)


def is_long(item: pytest.Item) -> bool:
    """Whether a test is marked so, or needs a program of others, root, a testbed or a run of pytest."""
    if item.get_closest_marker("long"):
        return True
    needs = any(True for _ in item.iter_markers("skipif"))
    return needs or not ROOMS.isdisjoint(item.path.parts) or not PROGRAMS.isdisjoint(item.fixturenames)  # type: ignore[attr-defined]


@functools.cache
def meets_system(folder: Path) -> bool:
    """Whether the package whose tests these are starts programs, signals them, opens sockets, or locks or guards files.

    What lies deeper and has tests of its own answers for itself.
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
    """What would be repeated with others of the names that take turns; none is chosen that would skip."""
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
    """The cases of tests that have more, but for a few that lie evenly among them."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        kept = {at * len(cases) // few for at in range(few)} if len(cases) > few else range(few)
        yield from (case for at, case in enumerate(cases) if at not in kept)


def each_with_some(rows: Sequence[object], columns: Sequence[object]) -> list[ParameterSet]:
    """Every row with every column, by turns: a test has each row with one of the columns, with `--all` with each."""
    return [
        pytest.param(row, column, marks=pytest.mark.in_turn(str((number + at) % len(columns)), by="test"))
        for number, row in enumerate(rows)
        for at, column in enumerate(columns)
    ]


def is_skipped(item: pytest.Item) -> bool:
    """Whether something that the test needs is missing here."""
    return any(mark.args[0] for mark in item.iter_markers("skipif"))
