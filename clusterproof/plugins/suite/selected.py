"""Which checks `-m` leaves out, known before their items are made: most of 10,000 nodes times all checks never run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import MarkMatcher
from _pytest.mark.expression import Expression  # pytest has no public name for what reads -m

PACKAGE = str(Path(__file__).resolve().parents[2])
_BY_LAST_RUN = ("lf", "failedfirst", "newfirst", "stepwise")
_HOOKS = ("pytest_itemcollected", "pytest_collection_modifyitems")
_OTHERS_ARE_MARKED: pytest.StashKey[bool] = pytest.StashKey()


def is_selected(config: pytest.Config, marks: Iterable[pytest.Mark]) -> bool:
    """Whether `-m` may choose a check with these marks; of one that it leaves out, one item stands for all nodes."""
    if not config.option.markexpr or _marks_may_follow(config):
        return True
    try:
        return _compiled(config.option.markexpr).evaluate(MarkMatcher.from_markers(marks))
    except SyntaxError:
        return True  # pytest says what is wrong with it


def are_alike(config: pytest.Config) -> bool:
    """Whether nothing distinguishes items of one check before all are collected: one stands for them."""
    is_by_name = config.option.keyword or config.option.deselect or any("::" in word for word in config.args)
    return not (is_by_name or any(config.getoption(name, False) for name in _BY_LAST_RUN) or _marks_may_follow(config))


def chooses(markexpr: str, names: Collection[str]) -> bool:
    """Whether `-m` chooses what has marks of these names. Raises SyntaxError."""

    def is_marked(name: str, /, **_: str | int | bool | None) -> bool:
        return name in names

    return _compiled(markexpr).evaluate(is_marked)


@cache
def _compiled(markexpr: str) -> Expression:
    return Expression.compile(markexpr)


def _marks_may_follow(config: pytest.Config) -> bool:
    """Whether another plugin looks at items before `-m` does, and may mark those of one node."""
    if _OTHERS_ARE_MARKED not in config.stash:
        config.stash[_OTHERS_ARE_MARKED] = are_others_in(config, _HOOKS)
    return config.stash[_OTHERS_ARE_MARKED]


def are_others_in(config: pytest.Config, hooks: Iterable[str]) -> bool:
    """Whether another author's plugin or conftest takes part in one of these hooks."""
    found = (hooked.function for name in hooks for hooked in getattr(config.hook, name).get_hookimpls())
    return any(not _is_known(function) for function in found)


def _is_known(function: object) -> bool:
    """Whether a hook is pytest's, xdist's or the suite's own."""
    module = str(getattr(function, "__module__", "")).partition(".")[0]
    code = getattr(function, "__code__", None)
    is_ours = code is not None and str(Path(code.co_filename).resolve()).startswith(PACKAGE)
    return is_ours or module in ("_pytest", "clusterproof", "xdist")
