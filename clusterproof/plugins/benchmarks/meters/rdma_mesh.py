"""RDMA connectivity: each device of a node exchanges a few bytes with that of its rail on another node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from clusterproof.plugins.agent.packing import text_of
from clusterproof.plugins.agent.payload import modules_of, started
from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, UnreadableError, printed
from clusterproof.plugins.evidence.exchanges import MAX_RAILS, Exchange, places_of
from clusterproof.plugins.evidence.pairs import RDMA_MESH, Failure, Reading

PROGRAM = "clusterproof.plugins.benchmarks.rdma.exchange"
PYTHON = '"${CLUSTERPROOF_PYTHON:-python3}"'  # the Python of the launcher's program
MAX_HOST = 253
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(?: port \d{1,3})?|", re.ASCII)
_KINDS = {failure.value: failure for failure in (Failure.NO_RDMA, Failure.NO_PROGRAM)}  # as in the program
NO_WORD = "it printed nothing"


def server(settings: MeterSettings, port: int, root: str = "/") -> str:
    """The shell command of the end that plans the exchanges. Raises ValueError."""
    return _shell(settings, {"port": port, "address": "", "root": root})


def client(settings: MeterSettings, address: str, port: int, root: str = "/") -> str:
    """The shell command of the connecting end. Raises ValueError."""
    return _shell(settings, {"port": port, "address": address, "root": root})


def read(_settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The exchanges, a line for each rail of the two nodes; or why there were none."""
    seconds = max((output.seconds for output in outputs), default=0.0)
    theirs, ours = (*outputs, Output("", None), Output("", None))[:2]  # the client's comes first
    document = printed.object_in(ours.text)
    try:
        if document is None:
            text = next((end for end in (ours, theirs) if end.exit != 0), ours)
            raise UnreadableError(printed.problem_of(text))
        if "error" in document:
            raise UnreadableError(printed.problem_of(Output(str(document["error"]), 0)))
        exchanges = _exchanges(document)
    except UnreadableError as problem:
        culprit = printed.culprit_in("\n".join([str((document or {}).get("error", "")), theirs.text, ours.text]))
        failure = _KINDS.get(str((document or {}).get("failure")))
        return Reading(problem=printed.one_line(str(problem)), culprit=culprit, seconds=seconds, failure=failure)
    return Reading(exchanges=exchanges, seconds=seconds)


def command(_settings: MeterSettings, _launch: str, nodes: Sequence[str]) -> str:
    """What a person types on both nodes, for one device of each."""
    node, other = nodes
    return by_hand(node, other, "")


def by_hand(node: str, other: str, _collective: str) -> str:
    """What a person types on both nodes, for one device of each: of EFA, else of InfiniBand or RoCE."""
    efa = "fi_pingpong -p efa -e rdm -d DEVICE-rdm -I 10 -S 64"
    verbs = "ibv_rc_pingpong -d DEVICE -i PORT -n 10 -s 64 [-g GID]"
    return f"{efa} on {node}, then on {other}: {efa} {node}; without EFA: {verbs}"


METER = Meter(RDMA_MESH, read, server=server, client=client, command=command, by_hand=by_hand)


def _exchanges(document: Mapping[str, Any]) -> tuple[Exchange, ...]:
    """Raises UnreadableError."""
    rows, hosts = document.get("exchanges"), document.get("hosts")
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_RAILS:
        raise UnreadableError(f"it reports no list of exchanges; expected 1 to {MAX_RAILS}")
    if not (isinstance(hosts, list) and len(hosts) == 2 and all(isinstance(host, str) for host in hosts)):
        raise UnreadableError("it does not say between which two hosts; expected their names")
    return tuple(_exchange(row, [printed.one_line(host[:MAX_HOST]) for host in hosts]) for row in rows)


def _exchange(row: Any, hosts: Sequence[str]) -> Exchange:
    if not isinstance(row, dict):
        raise UnreadableError(f"{row!r:.40} is no exchange; expected its rail and its devices")
    rail, a, b = row.get("rail"), row.get("a"), row.get("b")
    is_named = all(isinstance(name, str) and _DEVICE.fullmatch(name) for name in (a, b))
    if type(rail) is not int or not 0 <= rail < MAX_RAILS or not is_named or not (a or b):
        raise UnreadableError(f"an exchange is of rail {rail!r:.20}, {a!r:.40} and {b!r:.40}; expected RDMA devices")
    try:
        places = places_of(row.get("places", ["", ""]))
    except ValueError as problem:
        raise UnreadableError(str(problem)) from None
    why, is_apart = _problem(row, hosts), row.get("apart") is True
    return Exchange(rail, str(a), str(b), "" if is_apart else why, why if is_apart else "", places)


def _problem(row: Mapping[str, Any], hosts: Sequence[str]) -> str:
    """Why the bytes did not come back, according to either end; empty if they did."""
    if isinstance(row.get("why"), str):
        return printed.one_line(row["why"]) or NO_WORD
    if row.get("arrived") is True or not (row["a"] and row["b"]):
        return ""
    outcomes = row.get("ends")
    if not (isinstance(outcomes, list) and len(outcomes) == 2):
        raise UnreadableError("a failed exchange does not say how it ended; expected the words of both ends")
    reasons = [_ended(outcome) for outcome in outcomes]
    if outcomes[0][0] is None and outcomes[1][0]:
        reasons[0] = ""  # the server was only killed because its client had failed
    problems = [f"{host}: {why}" for host, why in zip(reversed(hosts), reversed(reasons), strict=True) if why]
    return printed.one_line("; ".join(problems)) or NO_WORD


def _ended(end: Any) -> str:
    """How one end's program ended; empty if it succeeded."""
    if not (isinstance(end, list) and len(end) == 2 and isinstance(end[1], str)) or type(end[0]) not in (
        int,
        type(None),
    ):
        raise UnreadableError(f"{end!r:.40} does not say how an end ended; expected its exit status and its output")
    if end[0] == 0 or (end[0] is None and not end[1].strip()):
        return "" if end[0] == 0 else "no answer in its time"
    return printed.problem_of(Output(end[1], end[0]))


def _shell(settings: MeterSettings, end: Mapping[str, object]) -> str:
    """Lines that run one end in the launcher's Python. Raises ValueError."""
    meters.quoted_options(settings.options)
    request = {**end, "program": settings.program, "options": shlex.split(settings.options)}
    text = text_of(started(PROGRAM, modules_of(PROGRAM), (request,)))
    return f"{meters.exports(settings.environment)}exec {PYTHON} -I -c {shlex.quote(text)}\n"
