"""The behaviour required of every connection, including third-party ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clusterproof.plugins.agent.packing import ARGUMENT
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, adopted, connection_for
from clusterproof.plugins.transport.gather import gather

NODES = (Target("left"), Target("right"))


class Relay:
    """What docs/extend.md requires of a connection: it runs programs, and adds no output."""

    def run(
        self, targets: Sequence[Target], program: Program, _limits: Limits, answered: Callable[[Target, Answer], None]
    ) -> None:
        for target in targets:
            answered(target, Answer(program.stdin))


class Queue(Relay):
    """A connection with all optional features, which loads nodes through another."""

    takes_stdin = False

    def longest_program(self, _limits: Limits) -> int:
        return 7

    def carries(self, _limits: Limits) -> int:
        return 8

    def leave(self, targets: Sequence[Target]) -> bool:
        return bool(targets)

    def under_load(self) -> Relay:
        return Relay()


@pytest.mark.parametrize("name", [name for name, kind in CONNECTIONS.items() if kind.is_live])
def test_each_of_the_suite_is_one(name: str) -> None:
    connection = connection_for(name)
    assert isinstance(connection, Connection)
    assert adopted(connection) is connection


def test_one_that_only_runs_programs_has_the_defaults_of_the_rest() -> None:
    relay, answers = adopted(Relay()), dict[str, bytes]()
    relay.run(
        NODES, Program("cat", b"hello"), Limits(), lambda target, answer: answers.update({target.name: answer.output})
    )
    assert answers == {"left": b"hello", "right": b"hello"}
    assert (relay.takes_stdin, relay.longest_program(Limits()), relay.carries(Limits())) == (True, None, 0)
    assert (relay.program(), relay.leave(NODES), relay.unavailable(NODES, {})) == (None, False, {})
    assert relay.under_load() is relay
    relay.abandon()


def test_what_one_of_another_author_says_of_itself_holds() -> None:
    queue = adopted(Queue())
    assert (queue.takes_stdin, queue.longest_program(Limits()), queue.carries(Limits())) == (False, 7, 8)
    assert queue.leave(NODES)
    assert queue.under_load().carries(Limits()) == 0


def test_one_without_standard_input_is_given_commands_that_are_one_argument() -> None:
    kind = type("Commanding", (Relay,), {"takes_stdin": False})
    assert adopted(kind()).longest_program(Limits()) == ARGUMENT


def test_a_node_that_a_connection_of_another_author_leaves_out_has_not_answered() -> None:
    class Forgetful(Relay):
        def run(self, targets: Sequence[Target], *arguments: Any) -> None:
            super().run(targets[:1], *arguments)

    noted: list[NodeEvidence] = []
    by_node = gather(
        Cluster("two", "own", NODES), adopted(Forgetful()), ["boot"], ProbeOptions(), Limits(), noted.append
    )
    assert [evidence.node for evidence in noted] == list(by_node) == ["left", "right"]
    detail = "its connection ended without an answer of it, or why there is none"
    assert (by_node["right"].unreached, by_node["right"].detail) == (Unreached.LOST, detail)


def test_an_answer_stands_where_a_connection_of_another_author_then_gives_the_node_up() -> None:
    class Impatient:
        def run(self, targets: Sequence[Target], *arguments: Any) -> None:
            *_, answered = arguments
            answered(targets[0], Answer(unreached=Unreached.NO_ROUTE))
            connection_for("local").run(targets, *arguments)
            answered(targets[1], Answer(unreached=Unreached.TIMED_OUT))

    by_node = gather(
        Cluster("two", "own", NODES), adopted(Impatient()), ["boot"], ProbeOptions(), Limits(), lambda _: None
    )
    assert {name: evidence.unreached for name, evidence in by_node.items()} == {"left": None, "right": None}
