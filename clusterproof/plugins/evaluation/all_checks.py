"""The packaged checks as data, with an example finding of each: for documents, `clusterproof explain` and tests."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from clusterproof.plugins.core.marks import Mark, marks_on
from clusterproof.plugins.evaluation.check import Check, check_of, is_light
from clusterproof.plugins.evaluation.routing import OCCASIONS

if TYPE_CHECKING:
    import pytest

PACKAGE = Path(__file__).resolve().parents[2]


@cache
def all_checks() -> dict[str, Check]:
    """Every packaged check by its stable id, in the order of their files."""
    checks = [check for path in sorted((PACKAGE / "checks").rglob("test_*.py")) for check in _of_file(path)]
    return {check.route.check: check for check in checks}


@cache
def node_checks() -> dict[str, Check]:
    """The checks that run on each node and need only what the node reports."""
    return {
        name: check
        for name, check in all_checks().items()
        if not (check.is_of_cluster or check.is_of_run or check.needs_pairs)
    }


def _of_file(path: Path) -> Iterator[Check]:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    module = importlib.import_module(f"clusterproof.{name}")
    for function in vars(module).values():
        is_own = inspect.isfunction(function) and function.__module__ == module.__name__
        if is_own and function.__name__.startswith("test_") and is_light(function):
            yield check_of(function, [*marks_on(function), *marks_on(module)])


def marks_on_check(check: Check) -> list[Mark | pytest.Mark]:
    """The marks of a check's function, then those of its module."""
    module = SimpleNamespace(**inspect.unwrap(check.function).__globals__)  # works even if it is not in sys.modules
    return [*marks_on(check.function), *marks_on(module)]


def marks_of(check: Check) -> frozenset[str]:
    """The names of a check's marks."""
    return frozenset(mark.name for mark in marks_on_check(check))


def occasions(check: Check) -> list[str]:
    """The occasions that a check is marked for."""
    return [occasion for occasion in OCCASIONS if occasion in marks_of(check)]


def when(check: Check) -> str:
    """When a check runs, in words."""
    return "with `--run`" if check.is_of_run else ", ".join(occasions(check))


def evaluated_by_pairs() -> frozenset[str]:
    """The checks that are evaluated from measurements of pairs of nodes, by id."""
    return frozenset(name for name, check in all_checks().items() if check.needs_pairs)


EXAMPLES = Path(__file__).with_name("examples.json")


def example_of(check: str) -> str:
    """`GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0`; empty if there is no example."""
    return _examples().get(check, "")


@cache
def _examples() -> dict[str, str]:
    document: dict[str, str] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return document
