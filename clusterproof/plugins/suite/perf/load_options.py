"""The options for load, and which load a run, including third-party tests, needs on its nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core.marks import marks_of_pytest
from clusterproof.plugins.core.opened import path_exists
from clusterproof.plugins.evaluation.check import check_of, is_light
from clusterproof.plugins.evaluation.needs import CHECKS, PAIRWISE, needs_of, node_collectors
from clusterproof.plugins.options.perf_validate import check_loads, timeouts
from clusterproof.plugins.suite.selection import collectors_of
from clusterproof.plugins.suite.state import is_named

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.load.options import LoadOptions
    from clusterproof.plugins.options.parsed import Options

ANYWHERE = Path("/")


def check_load_options(option: Options) -> None:
    """Reject invalid combinations, in any run. Raises pytest.UsageError."""
    check_loads(option)
    if option.dcgm_parameters or option.stress_s or option.load_timeout:
        from clusterproof.plugins.benchmarks.load.options import require_time

        seconds = timeouts(option.load_timeout)
        try:
            require_time(option.dcgm_level, option.dcgm_parameters, option.stress_s, option.exact_s, seconds)
        except ValueError as why:
            raise pytest.UsageError(str(why)) from None


def load_options(option: Options) -> LoadOptions:
    """The load options of a run. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.load.options import LoadOptions  # few runs load anything

    check_load_options(option)
    return LoadOptions(
        host_root=option.host_root,
        sudo=option.sudo,
        dcgm_level=option.dcgm_level,
        dcgm_parameters=option.dcgm_parameters,
        seconds=timeouts(option.load_timeout),
        folders=option.load_path,
        torch_python=option.torch_python,
        exact_s=option.exact_s,
        stress_s=option.stress_s,
        fs_folder=option.fs_bandwidth,
        fs_mib=option.fs_size,
        fs_at_once=option.fs_at_once,
    )


def collectors_to_load(items: Iterable[pytest.Item], option: Options) -> frozenset[str]:
    """The collectors that load the hardware and that selected tests need: none if `-m` does not name perf."""
    if not is_named(option.markexpr, "perf"):
        return frozenset()
    wanted = (collectors_of(item) for item in items if item.get_closest_marker("perf"))
    return load_options(option).requested(frozenset[str]().union(*wanted))


def paths_named(config: pytest.Config) -> list[Path]:
    """The folders and files whose tests the command line names; for package names (`--pyargs`), any."""
    named = [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]
    return [path if path_exists(path) else ANYWHERE for path in named]


def collectors_named(option: Options, paths: Collection[Path], others: Iterable[Test] = ()) -> frozenset[str]:
    """The load collectors that the tests selected by the command line need, packaged or in `others`.

    With xdist, nodes are asked before tests are collected: so the selection only uses paths, `-m` and `-k`.
    """
    wanted = (test.collectors for test in _selected(option, paths, others))
    return load_options(option).requested(frozenset[str]().union(*wanted))


def pairs_are_needed(option: Options, paths: Collection[Path], others: Iterable[Test]) -> bool:
    """Whether a test selected by the command line needs measurements of pairs."""
    return any(test.needs_pairs for test in _selected(option, paths, others))


def others_named(config: pytest.Config) -> list[Test]:
    """The third-party tests that the command line names, if it asks for load at all."""
    if not is_named(config.option.markexpr, "perf"):
        return []

    return others(config, paths_named(config))


def _selected(option: Options, paths: Collection[Path], others: Iterable[Test]) -> list[Test]:
    """The load tests that the command line selects, using only paths, `-m` and `-k`."""
    if not is_named(option.markexpr, "perf"):
        return []
    from _pytest.mark.expression import Expression  # pytest has no public API for -m and -k expressions

    def says_yes(expression: str, holds: Callable[[str], bool]) -> bool:
        def matches(word: str, /, **_details: str | int | bool | None) -> bool:
            return holds(word)

        return not expression or Expression.compile(expression).evaluate(matches)

    def is_selected(test: Test) -> bool:
        by_mark = says_yes(option.markexpr, lambda word: word in test.marks)
        return "perf" in test.marks and by_mark and says_yes(option.keyword, lambda word: word.lower() in test.words)

    packaged = [test for test in _packaged() if any(test.file.is_relative_to(path) for path in paths)]
    return [test for test in (*packaged, *others) if is_selected(test)]


def _packaged() -> Iterator[Test]:
    from clusterproof.plugins.evaluation.all_checks import all_checks, marks_of

    for check in all_checks().values():
        text = f"{check.path} {check.function.__name__}".lower()
        yield Test(text, marks_of(check), Path(check.path).resolve(), check.collectors, check.needs_pairs)


@dataclass(frozen=True, slots=True)
class Test:
    """A test, and what is known about it without collecting it."""

    __test__ = False

    words: str  # the names that `-k` matches
    marks: frozenset[str]
    file: Path
    collectors: frozenset[str]
    needs_pairs: bool


def others(config: pytest.Config, paths: Iterable[Path]) -> list[Test]:
    """The third-party tests in these files and folders that are about nodes.

    A file that cannot be imported has none: the error is reported when it is collected.
    """
    return [test for file in dict.fromkeys(_files(config, paths)) for test in _of_file(config, file)]


def _files(config: pytest.Config, paths: Iterable[Path]) -> Iterator[Path]:
    patterns, passed_over = config.getini("python_files"), config.getini("norecursedirs")
    for path in paths:
        if path.is_file():
            yield path
        elif path != path.parent and path.is_dir() and not CHECKS.is_relative_to(path):
            for file in sorted(path.rglob("*.py")):
                folders = file.relative_to(path).parts[:-1]
                is_test = any(fnmatch(file.name, pattern) for pattern in patterns)
                if is_test and not any(fnmatch(folder, pattern) for folder in folders for pattern in passed_over):
                    yield file


def _of_file(config: pytest.Config, file: Path) -> Iterator[Test]:
    if file.is_relative_to(CHECKS):
        return
    from _pytest.pathlib import ImportMode, import_path  # the way pytest itself will import it

    try:
        module = import_path(file, mode=ImportMode.importlib, root=config.rootpath, consider_namespace_packages=False)
    except (Exception, pytest.skip.Exception, SystemExit):
        return
    for name, function, marks in _functions(module):
        collectors, needs_pairs = _needs(function, marks)
        yield Test(f"{file} {name}".lower(), frozenset(mark.name for mark in marks), file, collectors, needs_pairs)


def _functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any], list[pytest.Mark]]]:
    """The test functions of a module and of its classes, with their names and marks."""
    holders: list[tuple[object, str]] = [(module, "")]
    holders += [
        (held, name) for name, held in vars(module).items() if inspect.isclass(held) and name.startswith("Test")
    ]
    of_module = marks_of_pytest(module)
    for holder, prefix in holders:
        for name, function in vars(holder).items():
            if inspect.isfunction(function) and name.startswith("test"):
                marks = [*marks_of_pytest(function), *(marks_of_pytest(holder) if prefix else []), *of_module]
                yield f"{prefix} {name}", function, marks


def _needs(function: Callable[..., Any], marks: list[pytest.Mark]) -> tuple[frozenset[str], bool]:
    """The evidence collectors that a test needs, and whether it needs measurements of pairs."""
    if is_light(function):
        check = check_of(function, marks)
        return check.collectors, check.needs_pairs
    parameters = inspect.signature(function).parameters
    needs = needs_of(function.__name__, "node", function) if "node" in parameters else frozenset()
    return needs & node_collectors(), PAIRWISE in parameters or PAIRWISE in needs
