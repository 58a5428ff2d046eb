"""EFA's loopback: fi_pingpong between the two ends of each device."""

from __future__ import annotations

import re
import socket
import time
from types import SimpleNamespace

import pytest

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.agent.tools import Tool, find
from clusterproof.plugins.benchmarks.load import efa_loopback
from clusterproof.plugins.benchmarks.load.tool import communicate
from clusterproof.plugins.evidence.perf.facts import PingpongRun
from tests.benchmarks.load.loaded import evidence_of
from tests.testbed.load import loadable_p5
from tests.testbed.needs import needs_fi_pingpong, needs_nodes


@needs_fi_pingpong
def test_the_real_fi_pingpong_exchanges_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    command = tuple("tcp" if word == "efa" else word for word in efa_loopback.EXCHANGE)
    monkeypatch.setattr(efa_loopback, "EXCHANGE", command)
    monkeypatch.setattr(efa_loopback, "LISTEN_S", 300.0)  # a quiet machine needs a second of it
    monkeypatch.setattr(efa_loopback, "EXCHANGE_S", 300.0)
    node = Node(collector_s=600.0)
    run = PingpongRun({"domain": "lo", **efa_loopback.exchanged(node, find(node, "fi_pingpong"), "lo")})
    assert (run.exit, run.why_not if run.mb_per_s is None else "") == (0, "")


def test_a_librarys_many_warnings_cut_off_neither_the_first_of_them_nor_the_row_behind_them() -> None:
    warnings = [b"libfabric:7:efa:core:warn(): no huge pages\n" * 20] * 5
    row = b"1m      200     =200     400m        0.57s   3653.77     286.98       0.00\n"
    printed = [b"libfabric:7:efa:fork\n", *warnings, row]
    program = SimpleNamespace(chunks=lambda *_: iter(printed))
    output, late = communicate(program, 1.0, most_bytes=efa_loopback.MAX_PRINTED)  # type: ignore[arg-type]
    first, left_out, last = re.split(r"\n(\[\d+ bytes left out\])\n", output)
    assert (output.startswith("libfabric:7:efa:fork"), len(first + last)) == (True, efa_loopback.MAX_PRINTED)
    assert (left_out, late) == (f"[{len(b''.join(printed)) - efa_loopback.MAX_PRINTED} bytes left out]", "")
    assert PingpongRun({"domain": "d", "exit": 0, "output": output, "server": ""}).mb_per_s == 3653.77


@needs_fi_pingpong
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_user_of_the_node_who_comes_first_at_the_port_is_no_evidence_against_a_device(
    comes_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the client of the real server, or as the listener in place of it."""
    intruders: list[socket.socket] = []
    real_free_port, real_await = efa_loopback.free_port, efa_loopback.await_listener

    def taken_port() -> str:
        port = real_free_port()
        if not comes_first:
            intruders.append(socket.create_server((efa_loopback.HERE, int(port))))
        return port

    def awaited(server: Tool, port: str) -> bool:
        listens = real_await(server, port)
        if comes_first:
            intruders.append(socket.create_connection((efa_loopback.HERE, int(port))))
            time.sleep(1.0)  # for the server to accept it
        return listens

    monkeypatch.setattr(efa_loopback, "free_port", taken_port)
    monkeypatch.setattr(efa_loopback, "await_listener", awaited)
    monkeypatch.setattr(efa_loopback, "LISTEN_S", 300.0)
    node = Node(collector_s=60.0)
    run = PingpongRun({"domain": "lo", **efa_loopback.exchanged(node, find(node, "fi_pingpong"), "rdmap79s0-rdm")})
    for intruder in intruders:
        intruder.close()
    assert (run.mb_per_s, run.is_apart) == (None, True), run.why_not


@needs_fi_pingpong
def test_a_server_that_a_busy_node_has_not_started_yet_is_no_exchange_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(efa_loopback, "LISTEN_S", 0.0)
    node = Node(collector_s=60.0)
    with pytest.raises(Broke, match="did not listen within 0 s, as on a busy node"):
        efa_loopback.exchanged(node, find(node, "fi_pingpong"), "rdmap79s0-rdm")


@needs_fi_pingpong
def test_the_real_fi_pingpong_without_an_efa_device_is_no_exchange() -> None:
    node = Node(collector_s=60.0)
    run = PingpongRun({"domain": "x", **efa_loopback.exchanged(node, find(node, "fi_pingpong"), "rdmap79s0-rdm")})
    assert run.mb_per_s is None
    assert run.why_not


@needs_nodes
def test_shared_memory_is_off_and_every_domain_has_its_turn() -> None:
    domains = evidence_of(loadable_p5(), "efa_loopback").value["domains"]
    assert len({domain["domain"] for domain in domains}) == len(domains) == 32
    assert {domain["exit"] for domain in domains} == {0}  # the fake refuses to run with shared memory
