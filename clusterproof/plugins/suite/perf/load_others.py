"""Tests of other authors that the command line names, as far as is known before they are collected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clusterproof.plugins.core.marks import marks_of_pytest
from clusterproof.plugins.evaluation.check import check_of, is_light
from clusterproof.plugins.evaluation.needs import CHECKS, PAIRWISE, needs_of, node_collectors


@dataclass(frozen=True, slots=True)
class Test:
    """A test, and what is known of it without collecting it."""

    __test__ = False

    words: str  # that `-k` looks into
    marks: frozenset[str]
    file: Path
    collectors: frozenset[str]
    needs_pairs: bool


def others(config: pytest.Config, paths: Iterable[Path]) -> list[Test]:
    """The tests of these files and folders that are none of the packaged ones and look at nodes.

    A file that cannot be imported has none: whoever collects it says so.
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
    from _pytest.pathlib import ImportMode, import_path  # as pytest itself will import it

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
    """The collectors of evidence that a test needs, and whether pairs of nodes are to be measured for it."""
    if is_light(function):
        check = check_of(function, marks)
        return check.collectors, check.needs_pairs
    parameters = inspect.signature(function).parameters
    needs = needs_of(function.__name__, "node", function) if "node" in parameters else frozenset()
    return needs & node_collectors(), PAIRWISE in parameters or PAIRWISE in needs
