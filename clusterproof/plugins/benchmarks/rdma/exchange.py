"""Both ends of a pair: each RDMA device exchanges a few bytes with the device of its rail, all at once.

The two connect through TCP and prove that they know the secret of their run; the serving end plans the exchanges, and
prints the results as one JSON object. Each exchange has its own deadline, so that one that hangs only loses its own
result. Travels; standard library only, for Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from typing import Any

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.benchmarks.launchers.rendezvous import SECRET, Acceptor, authenticate, exactly, listen
from clusterproof.plugins.benchmarks.launchers.search_path import PASSED_OVER
from clusterproof.plugins.benchmarks.rdma.ports import devices, ports, rails
from clusterproof.plugins.benchmarks.rdma.programs import (
    OF_FABRIC,
    PACKAGES,
    PLACES,
    Ended,
    Running,
    common,
    has_arrived,
    have_not_met,
    programs,
    words,
)

MEETS_S = 20.0  # for the other end to connect
EXCHANGE_S = 15.0  # for one exchange; normally it takes one or two
MAX_LOAD = 2.0  # processes for each processor; a busier node is given no more time, as both attempts have to fit
SERVER_ENDS_S = 5.0  # for servers whose clients have ended
ATTEMPTS = 2  # if the two ends of an exchange do not meet
AGAIN_S, TRIES = 0.2, 25  # for a client whose server does not listen yet
TCP_PORTS = range(20_000, 30_000)  # allowed between nodes
MAX_BYTES = 256 * 1024  # in one message of an end
LENGTH_BYTES = 4
NO_RDMA, NO_PROGRAM = "no RDMA", "no program"  # kinds of failure, as in evidence/pairs.py


def main(request: dict[str, Any]) -> None:
    """Run one end: the connecting one if the request has an address."""
    word = os.environ.pop(SECRET, "").encode()
    if request["address"]:
        with _connected(request["address"], request["port"]) as other:
            authenticate(other, word)
            _come(other, _own(request), request)
        return
    with contextlib.closing(Acceptor(listen(request["port"]), word)) as acceptor:
        peer = acceptor.accept(MEETS_S)
    if peer is None:
        print(json.dumps({"error": f"the other end did not come within {MEETS_S:g} s"}), flush=True)  # noqa: T201
        return
    with peer:
        print(json.dumps(_serve(peer, _own(request), request)), flush=True)  # noqa: T201


def _own(request: dict[str, Any]) -> dict[str, Any]:
    """The devices and programs of this node."""
    node = Node(request["root"])
    return {
        "host": os.uname().nodename,
        "has_devices": bool(devices(node)),
        "ports": ports(node),
        "programs": programs(request["program"]),
        "passed_over": os.environ.get(PASSED_OVER, ""),
        "limit_s": _limit_s(),
    }


def _connected(address: str, port: int) -> socket.socket:
    """A connection to the other end, which may not listen yet. Raises OSError."""
    until = time.monotonic() + MEETS_S
    while True:
        try:
            return socket.create_connection((address, port), MEETS_S)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)


def _serve(other: socket.socket, own: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """The results of all exchanges; for failed ones, how each end's program ended."""
    theirs = _receive(other, MEETS_S)
    lacking = missing(own, theirs)
    if lacking:
        _send(other, [])
        return lacking
    planned = [
        _planned(rail, own_port, their_port, own, theirs)
        for rail, own_port, their_port in rails(own["ports"], theirs["ports"])
    ]
    left = [exchange for exchange in planned if "program" in exchange]
    for _ in range(ATTEMPTS):
        if left:
            _attempt(other, left, own, request, _longer(own, theirs))
        left = [exchange for exchange in left if exchange.get("apart")]
    _send(other, [])
    reported_keys = ("rail", "a", "b", "places", "why", "arrived", "apart", "ends")
    rows = [{name: exchange[name] for name in reported_keys if name in exchange} for exchange in planned]
    return {"hosts": [own["host"], theirs["host"]], "exchanges": rows}


def _attempt(
    other: socket.socket, exchanges: list[dict[str, Any]], own: dict[str, Any], request: dict[str, Any], limit_s: float
) -> None:
    """Run these exchanges, each with a new server, and add the result to each."""
    ports = _free(len(exchanges))
    servers = [
        Running(
            words(own["programs"][exchange["program"]], exchange["program"], exchange["here"], port, request["options"])
        )
        for exchange, port in zip(exchanges, ports)
    ]
    _send(
        other,
        [
            {"program": exchange["program"], "tcp_port": port, "b": exchange["b"], "limit_s": limit_s}
            for exchange, port in zip(exchanges, ports)
        ],
    )
    answers = _receive(other, 2 * limit_s + MEETS_S)
    until = time.monotonic() + SERVER_ENDS_S
    for exchange, running, answer in zip(exchanges, servers, answers):
        client = Ended(answer["exit"], answer["text"])
        server = running.ended(0.0 if client.exit is None else until - time.monotonic())
        exchange["arrived"] = answer["arrived"] is True and server.exit == 0
        exchange["apart"] = not exchange["arrived"] and have_not_met(server, client, running.seconds < limit_s)
        exchange["ends"] = [] if exchange["arrived"] else [list(server), list(client)]


def _planned(rail: int, own_port: Any, their_port: Any, own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The report of one exchange; with a program if it can be made."""
    a, b = (port or {"label": "", "place": ""} for port in (own_port, their_port))
    exchange: dict[str, Any] = {"rail": rail, "a": a["label"], "b": b["label"], "places": [a["place"], b["place"]]}
    if not own_port or not their_port:
        return exchange
    down = [f"{side['host']}: {port['down']}" for side, port in ((own, own_port), (theirs, their_port)) if port["down"]]
    if own_port["fabric"] != their_port["fabric"]:
        down.append(f"{own_port['fabric']} on {own['host']}, {their_port['fabric']} on {theirs['host']}")
    if down:
        return {**exchange, "why": "; ".join(down)}
    name = common(own_port["fabric"], own["programs"], theirs["programs"])
    return {**exchange, "program": name, "here": own_port}


def missing(own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, str]:
    """Why no exchange is possible: a node without devices or programs for them; empty if it is."""
    if not own["has_devices"] and not theirs["has_devices"]:
        return {"error": f"no RDMA device on either node: {own['host']}, {theirs['host']}", "failure": NO_RDMA}
    for side in (own, theirs):
        if not side["ports"]:
            return {"error": f"clusterproof: {side['host']}: no RDMA device that is switched on and has an address"}
    for fabric in sorted({port["fabric"] for port in own["ports"]} & {port["fabric"] for port in theirs["ports"]}):
        if not common(fabric, own["programs"], theirs["programs"]):
            return _without_program(fabric, own, theirs)
    return {}


def _without_program(fabric: str, own: dict[str, Any], theirs: dict[str, Any]) -> dict[str, str]:
    """Which node has no program for a fabric, or which different programs the nodes have."""
    names = OF_FABRIC[fabric]
    install = "install " + " or ".join(PACKAGES[name] for name in names)
    has = [[name for name in names if name in side["programs"]] for side in (own, theirs)]
    if all(has):
        two = [
            f"{side['host']} has {' and '.join(programs_of_side)}" for side, programs_of_side in zip((own, theirs), has)
        ]
        return {"error": f"clusterproof: {', '.join(two)}: no program in common; {install} on both"}
    without = theirs if has[0] else own
    looked = ", in ".join(["on PATH", *PLACES])
    why = f"clusterproof: {without['host']}: {' or '.join(names)} is not installed: looked {looked}; {install}"
    why += str(without.get("passed_over", ""))
    return {"error": why, "failure": NO_PROGRAM}


def _come(other: socket.socket, own: dict[str, Any], request: dict[str, Any]) -> None:
    """Run the exchanges that the other end requests, all at once, and report how they ended.

    Raises OSError, and ValueError if it requests more than there are devices.
    """
    _send(other, own)
    while exchanges := _receive(other, 2 * EXCHANGE_S * MAX_LOAD):
        if not isinstance(exchanges, list) or len(exchanges) > len(own["ports"]):
            raise ValueError(f"the other end asks for {exchanges!r:.80}; expected at most one exchange of each device")
        _send(other, _answers(exchanges, own, request))
    other.settimeout(MEETS_S)
    with contextlib.suppress(OSError):
        other.recv(1)  # wait until the other end has sent everything


def _answers(exchanges: list[dict[str, Any]], own: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """How the clients of these exchanges ended."""
    answers: list[dict[str, Any]] = [{} for _ in exchanges]

    def exchange(number: int) -> None:
        answers[number] = _exchanged(exchanges[number], own, request)

    threads = [threading.Thread(target=exchange, args=(number,), daemon=True) for number in range(len(exchanges))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _exchanged(planned: dict[str, Any], own: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """How the client of one exchange ended."""
    name, until = planned["program"], time.monotonic() + _longer(own, planned)
    port = next(port for port in own["ports"] if port["label"] == planned["b"])
    called = words(own["programs"][name], name, port, int(planned["tcp_port"]), request["options"], request["address"])
    ended = Ended(None, "")
    for _ in range(TRIES):
        ended = Running(called).ended(until - time.monotonic())
        if not ended.is_refused() or time.monotonic() > until:
            break
        time.sleep(AGAIN_S)
    arrived = has_arrived(name, ended)
    return {"arrived": arrived, "exit": ended.exit, "text": "" if arrived else ended.text}


def _limit_s() -> float:
    """The time for one exchange: longer on a node that is busy, where all take longer."""
    try:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        load = 1.0
    return EXCHANGE_S * min(MAX_LOAD, max(1.0, load))


def _longer(own: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The longer of both ends' times for one exchange. Raises ValueError."""
    return max(float(own["limit_s"]), min(EXCHANGE_S * MAX_LOAD, float(theirs.get("limit_s", EXCHANGE_S))))


def _free(count: int) -> list[int]:
    """So many TCP ports without a local listener."""
    free: list[int] = []
    for port in random.sample(TCP_PORTS, len(TCP_PORTS)):
        if len(free) == count:
            break
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("", port))
            free.append(port)
    return free


def _send(other: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    other.sendall(len(data).to_bytes(LENGTH_BYTES, "big") + data)


def _receive(other: socket.socket, within_s: float) -> Any:
    """A message from the other end. Raises OSError, ValueError."""
    until = time.monotonic() + within_s
    length = int.from_bytes(exactly(other, LENGTH_BYTES, until), "big")
    if length > MAX_BYTES:
        raise ValueError(f"the other end says {length} bytes; expected {MAX_BYTES} at most")
    return json.loads(exactly(other, length, until))
