"""`--listen`: its address, its answers during a watch, and clients that are slow."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.watch import http_server
from clusterproof.plugins.watch.http_server import LOCALHOST, Address, Listener, NoAddress
from clusterproof.plugins.watch.metrics import Metrics
from tests.builders.wheel import ROOT
from tests.watch.sinks_of_day import OfDay, series, tick

TIMEOUT_S = 600.0
MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"


@pytest.fixture
def listener() -> Iterator[Listener]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(OfDay().hello().take(tick(100.0)).snapshot))
    made = Listener(Address.of(":0"), {"/": make_wsgi_app(registry)})
    yield made
    made.close()


def answer_of(url: str, accept: str = "text/plain") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9188", "127.0.0.1", 9188),
        ("*:9188", "*", 9188),
        ("0.0.0.0:9188", "0.0.0.0", 9188),
        ("head-node:80", "head-node", 80),
        ("[::1]:9188", "::1", 9188),
    ],
)
def test_an_address_without_a_host_is_of_this_machine_alone(text: str, host: str, port: int) -> None:
    assert Address.of(text) == Address(host, port)


@pytest.mark.parametrize(
    ("has_ipv6", "address"),
    [
        pytest.param(True, "::1", marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")),
        pytest.param(True, LOCALHOST, marks=pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")),
        (False, LOCALHOST),
    ],
)
def test_an_asterisk_is_every_address_of_this_machine_by_ipv6_too_where_it_has_that(
    monkeypatch: pytest.MonkeyPatch, has_ipv6: bool, address: str
) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_ipv6)

    def who(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [environ["REMOTE_ADDR"].encode()]

    made = Listener(Address.of("*:0"), {"/": who})
    try:
        host = f"[{address}]" if ":" in address else address
        assert answer_of(f"http://{host}:{made.url.rpartition(':')[2]}")[0] == address
    finally:
        made.close()


@pytest.mark.parametrize("text", ["9188", "", ":", ":x", ":99999", "::1:9188", "a b:1", "http://h:1", "[h]:1"])
def test_what_is_no_address_is_one_line(text: str) -> None:
    with pytest.raises(NoAddress, match=r"^--listen is .*; expected \[HOST\]:PORT, such as :9188$"):
        Address.of(text)


def test_a_port_that_is_taken_is_one_line_before_any_node_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["watch", "--cluster", "local", "--for", "1s", "--listen", f":{port}"]) == 4
    output = capsys.readouterr()
    expected = f"127.0.0.1:{port}: Address already in use; expected an address of this machine and a free port"
    assert output.err == f"clusterproof watch: --listen: {expected}\n"
    assert output.out == ""


@pytest.mark.long
def test_a_scrape_in_the_midst_of_a_watch_has_its_nodes_samples_and_the_end_lets_the_port_go() -> None:
    command = [sys.executable, "-c", MAIN, "watch", "--cluster", "local", "--every", "1", "--listen", ":0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        address = re.search(r"page: \S+, metrics: (http://127\.0\.0\.1:(\d+)/metrics)", process.stdout.readline())
        assert address
        deadline = time.monotonic() + TIMEOUT_S
        while not (read := series(answer_of(address[1])[0])).get("node_samples_total"):
            assert time.monotonic() < deadline, read
            time.sleep(0.2)
        assert read["up"] == 1
        assert read["node_last_seen_timestamp_seconds"] == pytest.approx(time.time(), abs=TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    with socket.create_server(("127.0.0.1", int(address[2]))):
        pass


def test_openmetrics_is_answered_to_who_asks_for_it(listener: Listener) -> None:
    text, kind = answer_of(listener.url, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    names = {family.name for family in of_openmetrics(text)}
    assert {"clusterproof_watch_gpu_throttled_seconds", "clusterproof_watch"} <= names


def place_of(listener: Listener) -> tuple[str, int]:
    return http_server.LOCALHOST, int(listener.url.split(":")[2].split("/")[0])


def is_given_up(connection: socket.socket) -> bool:
    """Whether the server closes it, within a while."""
    connection.settimeout(TIMEOUT_S)
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def trickle(connection: socket.socket) -> None:
    """Send a header again and again, for longer than any test."""
    for _ in range(int(10 * TIMEOUT_S)):
        connection.sendall(b"X: y\r\n")
        time.sleep(0.1)


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["mute", "slow"])
def test_whoever_asks_is_answered_however_many_others_keep_it_waiting(listener: Listener, begun: bytes) -> None:
    slow = [socket.create_connection(place_of(listener)) for _ in range(5 * http_server.MAX_CONNECTIONS)]
    for connection in slow:
        with suppress(OSError):
            connection.sendall(begun)
    assert "clusterproof_watch_up" in answer_of(listener.url)[0]
    assert all(map(is_given_up, slow[: -http_server.MAX_PER_ADDRESS]))
    for connection in slow:
        connection.close()


def test_a_request_that_is_never_whole_is_given_up_at_its_deadline_though_bytes_keep_coming(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "DEADLINE_S", 1.0)
    with socket.create_connection(place_of(listener)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            trickle(slow)
    assert "clusterproof_watch_up" in answer_of(listener.url)[0]


@pytest.mark.parametrize(
    ("connections", "gone"),
    [
        ("a1 b2 c3", ""),
        ("a1 a2 a3 a4", ""),
        ("a1 a2 a3 a4 a5", "a1"),
        ("a1+ a2 a3 a4 a5", "a2"),  # one that is being answered does not keep it waiting
        ("a1+ a2+ a3+ a4+ a5", "a1+"),
        ("a1 b2 c3 d4 e5 f6 g7 h8", ""),
        ("a1 b2 c3 d4 e5 f6 g7 h8 i9", "a1"),
        ("a1+ b2 c3 d4 e5 f6 g7 h8 i9", "b2"),
        ("b0 a1 a2 a3 a4 c5 d6 e7 a8", "a1"),
    ],
)
def test_of_too_many_the_oldest_goes_first_of_those_that_have_not_asked(connections: str, gone: str) -> None:
    made = {word: http_server._Connection(word[0], float(word[1]), word.endswith("+")) for word in connections.split()}
    names = {id(connection): word for word, connection in made.items()}
    assert " ".join(names[id(connection)] for connection in http_server.connections_to_drop(made.values())) == gone
