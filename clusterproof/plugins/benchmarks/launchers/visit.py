"""Visits one node for a launcher: sends `on_node` there, and parses its answer strictly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterproof.plugins.agent.frame import FrameError, printable, unpacked
from clusterproof.plugins.agent.payload import calling_main, new_nonce, started_by_shell
from clusterproof.plugins.benchmarks.launchers import FOLDER, PLUGINS, PairOrGroup
from clusterproof.plugins.benchmarks.meters import Output
from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Failure, Pair, Reading
from clusterproof.plugins.transport import Answer, Connection, Limits, Program

ENDS_S = 15.0  # in addition to a run's deadline: to end what runs, and to report
CLEANUP_S = 10.0
CLEANUP_CONNECT_S = 5.0
MAX_BYTES = 128 * 1024  # of a command's output: its head and its tail
ASK: Mapping[str, object] = {}  # a request for only the node's properties
TRAVELS = (
    PLUGINS / "agent" / "pattern.py",
    PLUGINS / "agent" / "sending.py",
    PLUGINS / "agent" / "trust.py",
    *(FOLDER / f"{name}.py" for name in ("cleanup", "pipes", "rendezvous", "search_path", "sent_bytes", "on_node")),
)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A node's answer; `unreached` says why there is none, and `is_at_fault` that there should be one.

    `unmet` is what it saw of the other node where they did not meet, `is_port_taken` that a port of its own was not to
    be had, `is_lost` that the other fell silent, and `is_late` that it was waited for no longer.
    """

    unreached: str = ""
    name: str = ""
    addresses: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    unmet: str = ""
    is_port_taken: bool = False
    is_lost: bool = False
    left: tuple[str, ...] = ()
    is_at_fault: bool = True
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Visitor:
    """Visits nodes through one connection."""

    connection: Connection
    limits: Limits

    def visit(self, target: Target, request: Mapping[str, object], timeout_s: float) -> NodeAnswer:
        """Send one request to one node. Raises Unusable."""
        answers: list[NodeAnswer] = []
        self.visit_all([target], request, timeout_s, lambda _, answer: answers.append(answer))
        return answers[0] if answers else NodeAnswer(unreached="no answer")

    def visit_all(
        self,
        targets: Sequence[Target],
        request: Mapping[str, object],
        timeout_s: float,
        on_answer: Callable[[Target, NodeAnswer], None],
    ) -> None:
        """Send the same request to many nodes. Raises Unusable."""
        nonce = new_nonce()
        program = node_program(request, nonce, self.connection.takes_stdin)
        limits = replace(self.limits, answer_s=timeout_s)
        self.connection.run(targets, program, limits, lambda target, answer: on_answer(target, read(answer, nonce)))

    def clean_up(self, targets: Sequence[Target], runs: Sequence[str]) -> dict[str, NodeAnswer]:
        """Kill what is left of these runs on these nodes. Raises Unusable."""
        if self.connection.leave(targets):
            return {}
        answers: dict[str, NodeAnswer] = {}
        brief = replace(self.limits, connect_s=min(self.limits.connect_s, CLEANUP_CONNECT_S))
        Visitor(self.connection, brief).visit_all(
            targets, {"clean_up": list(runs)}, CLEANUP_S, lambda target, answer: answers.update({target.name: answer})
        )
        return answers


def node_program(request: Mapping[str, object], nonce: str, on_stdin: bool) -> Program:
    """The program that answers one request on a node."""
    return started_by_shell(calling_main(TRAVELS, dict(request)), nonce, sudo=False, on_stdin=on_stdin)


def read(answer: Answer, nonce: str) -> NodeAnswer:
    """Parse an answer. Never raises: a node whose answer is invalid counts as not reached."""
    try:
        return _node_answer(unpacked(answer.output, nonce))
    except FrameError as problem:
        kind = answer.unreached or problem.unreached
        reason = f"{kind.value.replace('_', ' ')}: {answer.detail or problem}"
        is_at_fault = unreached_rows()[kind.value].speaks_against_node
        return NodeAnswer(reason if is_at_fault else f"by no fault of its own: {reason}", is_at_fault=is_at_fault)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        return NodeAnswer(unreached=printable(f"garbled: its answer does not have its form: {problem!r}"))


def _node_answer(record: Mapping[str, Any]) -> NodeAnswer:
    return NodeAnswer(
        name=printable(str(record["name"])),
        addresses=tuple(printable(str(address)) for address in _listed(record["addresses"])),
        outputs=tuple(map(output_of, _listed(record["outputs"]))),
        unmet=printable(str(record.get("unmet", ""))),
        is_port_taken=record.get("is_port_taken") is True,
        is_lost=record.get("lost") is True,
        left=tuple(printable(str(left)) for left in _listed(record["left"])),
    )


def output_of(record: Mapping[str, Any]) -> Output:
    """One command's output. Raises KeyError, TypeError, ValueError."""
    sent = record.get("sent_bytes") or {}
    return Output(
        text=str(record["text"])[: 2 * MAX_BYTES],
        exit=None if record["exit"] is None else int(record["exit"]),
        sent_bytes={printable(str(name)): int(count) for name, count in sent.items()},
        seconds=float(record["seconds"]),
    )


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} where a list was due")
    return value


def not_reached(answers: Mapping[str, NodeAnswer], how: str = "was not reached") -> Reading:
    """The reading of a pair or group some of whose nodes did not answer; a single one is at fault if it should have."""
    nodes_of = nodes_by_reason({node: answer.unreached for node, answer in answers.items()})
    problem = ", ".join(f"{nodes} {how}: {reason}" for reason, nodes in nodes_of.items())
    failure = failure_of(answers.values())
    culprit = next(iter(answers)) if len(answers) == 1 and not failure else ""
    return Reading(problem=problem, culprit=culprit, failure=failure)


def nodes_by_reason(reasons: Mapping[str, str]) -> dict[str, str]:
    """The nodes that have the same reason, folded."""
    nodes_of: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        nodes_of.setdefault(reason, []).append(node)
    return {reason: fold(nodes) for reason, nodes in nodes_of.items()}


def failure_of(answers: Iterable[NodeAnswer]) -> Failure | None:
    """The kind of failure for these answers of nodes that were not reached."""
    return None if all(answer.is_at_fault for answer in answers) else Failure.NOT_AT_FAULT


def silenced(reading: Reading, silent: Mapping[str, NodeAnswer], nodes: PairOrGroup) -> Reading:
    """A failure plus the nodes that fell silent, and why: one of a pair is at fault, whatever programs say.

    In a group nobody is: so many are cleaned up at once that one may just be late.
    """
    if reading.has_succeeded or not silent:
        return reading
    message = ", ".join(f"{node} does not answer any more: {answer.unreached}" for node, answer in silent.items())
    is_one_of_pair = len(silent) == 1 and isinstance(nodes, Pair)
    culprit = next(iter(silent)) if is_one_of_pair else reading.culprit
    failure = reading.failure or failure_of(silent.values())
    return replace(reading, problem=f"{reading.problem}; {message}", culprit=culprit, failure=failure)


@dataclass(slots=True)
class NodeAddresses:
    """The properties of nodes and the addresses by which others reach them, requested once each."""

    visitor: Visitor
    answers: dict[str, NodeAnswer] = field(default_factory=dict)

    def learn(self, targets: Sequence[Target]) -> dict[str, NodeAnswer]:
        """Ask the nodes that are not yet known; returns the answers of those that failed. Raises Unusable."""
        why_not: dict[str, NodeAnswer] = {}

        def learned(target: Target, answer: NodeAnswer) -> None:
            if answer.unreached:
                why_not[target.name] = answer
            else:
                self.answers[target.name] = answer

        unknown = [target for target in targets if target.name not in self.answers]
        if unknown:
            self.visitor.visit_all(unknown, ASK, self.visitor.limits.answer_s, learned)
        return why_not

    def forget(self, node: str) -> None:
        """Ask it again next time: it may be gone, or have been replaced."""
        self.answers.pop(node, None)
