"""Progress while nodes are asked: how many are done, and which are awaited once they are few."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.suite import terminal as module
from clusterproof.plugins.suite.terminal import progress
from clusterproof.plugins.transport.fan_out import PendingNodes
from tests.builders.recordings import node, unreached

NAMES = [f"gpu{number:03}" for number in range(1, 21)]


def awaited_after(answered: int, *, are_named: bool = True, doing: str = "asking the nodes") -> PendingNodes:
    awaited = PendingNodes(doing, NAMES, are_named=are_named)
    for name in NAMES[:answered]:
        awaited.answered(node(name))
    return awaited


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        (0, "asking the nodes: 0 of 20 done"),
        (15, "asking the nodes: 15 of 20 done"),
        (16, "asking the nodes: 16 of 20 done; waiting for gpu[017-020]"),
        (19, "asking the nodes: 19 of 20 done; waiting for gpu020"),
        (20, "asking the nodes: 20 of 20 done"),
    ],
)
def test_awaited_nodes_are_named_once_they_are_few(answered: int, words: str) -> None:
    assert awaited_after(answered).description == words


def test_nobody_is_named_where_names_are_redacted() -> None:
    assert awaited_after(19, are_named=False).description == "asking the nodes: 19 of 20 done"


def test_what_was_not_reached_is_counted_by_itself() -> None:
    awaited = awaited_after(18)
    awaited.answered(unreached("gpu019"))
    assert awaited.description == "asking the nodes: 19 of 20 done, 1 not reached; waiting for gpu020"


def test_a_second_round_begins_where_all_have_answered() -> None:
    awaited = awaited_after(20, doing="loading the nodes")
    awaited.answered(node("gpu001"))
    assert awaited.description == "loading the nodes: 1 of 20 done"


def test_all_of_a_few_nodes_are_named() -> None:
    awaited = PendingNodes("asking the nodes", ["a", "b"], are_named=True)
    assert awaited.description == "asking the nodes: 0 of 2 done; waiting for a,b"


def test_many_long_names_are_cut() -> None:
    awaited = PendingNodes("asking the nodes", [f"{'x' * 50}{letter}" for letter in "abcdefghijkl" * 2], are_named=True)
    assert len(awaited.description) < 120


class Reporter:
    """A terminal reporter that keeps its lines, and signals the first."""

    def __init__(self) -> None:
        self.isatty = False
        self.lines: list[str] = []
        self.has_line = threading.Event()

    def write_line(self, line: str) -> None:
        self.lines.append(line)
        self.has_line.set()


def config_of(reporter: Reporter, **option: Any) -> Any:
    options = SimpleNamespace(**{"verbose": 0, "redact": False, **option})
    return SimpleNamespace(option=options, pluginmanager=SimpleNamespace(get_plugin=lambda _name: reporter))


def test_without_a_terminal_a_line_says_now_and_then_who_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_S", 0.01)
    reporter = Reporter()
    with progress(config_of(reporter), Cluster("two", "ssh", (Target("a"), Target("b")))) as shown:
        shown(node("a"))
        assert reporter.has_line.wait(60.0)
        reporter.has_line.clear()
        assert reporter.has_line.wait(60.0)
    count = len(reporter.lines)
    assert reporter.lines[-1] == "asking the nodes: 1 of 2 done; waiting for b"
    assert not reporter.has_line.wait(0.05) or len(reporter.lines) == count


def test_a_run_that_is_to_be_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_S", 0.0)
    reporter = Reporter()
    with progress(config_of(reporter, verbose=-1), Cluster("one", "ssh", (Target("a"),))) as shown:
        shown(node("a"))
    assert reporter.lines == []


def test_on_a_large_cluster_no_more_are_named_than_can_be_read() -> None:
    awaited = PendingNodes("asking the nodes", [f"n{number}" for number in range(1000)], are_named=True)
    for number in range(967):
        awaited.answered(node(f"n{number}"))
    assert awaited.description == "asking the nodes: 967 of 1,000 done"
    awaited.answered(node("n967"))
    assert awaited.description == "asking the nodes: 968 of 1,000 done; waiting for n[968-999]"
