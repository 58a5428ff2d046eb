"""SSH: the answers of a real sshd, and of one that misbehaves."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from clusterproof.plugins.agent import payload
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import MAX_ANSWER_BYTES, Program
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.ssh.login import LoginFailed
from clusterproof.plugins.transport.ssh.logins import Logins
from tests.builders.probed import ANSWER_S, PATIENT, padded
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import free_port, sshd
from tests.transport.ssh_client import Client, listening

pytestmark = needs_sshd


def test_a_node_answers_with_what_the_program_prints(client: Client) -> None:
    answer = client.one(program=Program("cat; echo printed >&2", b"given\n"))
    assert (answer.output, answer.unreached, answer.detail) == (b"given\nprinted\n", None, "")
    assert answer.seconds > 0


def test_a_large_program_goes_out_and_a_large_answer_comes_back(client: Client) -> None:
    payload = os.urandom(30_000).hex().encode()
    answer = client.one(program=Program("cat; head -c 1000000 /dev/zero", payload))
    assert answer.output == payload + bytes(1_000_000)


def test_a_program_of_any_length_reaches_the_node_whole(client: Client, tmp_path: Path) -> None:
    program = payload.program(["padded"], PATIENT, [padded(tmp_path, 3_000_000)])
    evidence = evidence_of(Target("node"), client.one(program=program, answer_s=ANSWER_S), program.nonce)
    assert evidence.collectors["padded"].value == 3_000_000


def test_an_answer_is_read_up_to_its_bound(client: Client) -> None:
    answer = client.one(program=Program("yes"))
    assert len(answer.output) == MAX_ANSWER_BYTES


def test_a_program_that_does_not_read_its_input_answers_all_the_same(client: Client) -> None:
    assert client.one(program=Program("exec 0<&-; echo deaf", bytes(3_000_000))).output == b"deaf\n"


def test_a_program_that_leaves_its_output_open_is_not_waited_for(client: Client) -> None:
    answer = client.one(program=Program("sleep 30 & echo done"))
    assert (answer.output, answer.unreached) == (b"done\n", None)


def test_a_program_that_never_ends_is_timed_out_and_what_it_said_is_kept(client: Client) -> None:
    answer = client.one(program=Program("echo begun; sleep 60"), answer_s=1.0)
    assert (answer.output, answer.unreached) == (b"begun\n", Unreached.TIMED_OUT)
    assert answer.detail == "did not end within 1 s; 6 bytes came"


def test_a_connection_that_breaks_hands_back_what_came(client: Client) -> None:
    answer = client.one(program=Program("head -c 4000000 /dev/zero; kill -9 $PPID"))
    assert answer.output == bytes(len(answer.output))
    assert len(answer.output) >= 1_000_000  # except what the window of 2 MiB and a pipe may hold
    assert answer.unreached is None


def test_a_connection_that_breaks_before_an_answer_is_lost(client: Client) -> None:
    answer = client.one(program=Program("kill -9 $PPID"))
    assert (answer.output, answer.unreached) == (b"", Unreached.LOST)


def test_sixty_four_nodes_answer_at_once(client: Client) -> None:
    names = [f"node{number:02}" for number in range(64)]
    answers = client.visit(*map(Target, names))
    assert {name: answer.output for name, answer in answers.items()} == dict.fromkeys(names, b"hello\n")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("visit-")]


def test_more_nodes_than_open_files_allow_are_visited_in_turn(client: Client) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(list(Path("/proc/self/fd").iterdir())) + 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        answers = client.visit(*(Target(f"node{number}") for number in range(40)))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [answer.output for answer in answers.values()] == [b"hello\n"] * 40


# Hosts that cannot be reached


def test_a_port_where_nothing_listens_refuses(client: Client) -> None:
    answer = client.one(Target("node1", port=free_port()))
    assert answer.unreached is Unreached.REFUSED


def test_a_name_that_does_not_resolve_is_named(client: Client) -> None:
    answer = client.one(Target("node1", address="gpu001.invalid"))
    assert answer.unreached is Unreached.NAME
    assert answer.detail.startswith("gpu001.invalid does not resolve")


@pytest.mark.parametrize("config", ["", "Host node1\n ProxyJump bastion\nHost bastion\n HostName silent.example"])
def test_a_name_server_that_is_silent_speaks_against_no_node(
    client: Client, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    def unanswered(*_: object) -> NoReturn:
        is_over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", unanswered)
    answer = client.one(Target("node1", address="silent.example"), config=config, connect_s=0.1)
    is_over.set()
    assert answer.unreached is Unreached.NAME
    assert answer.detail == "silent.example does not resolve in time: no name server answers"


def test_a_name_that_a_shell_could_read_goes_no_further(client: Client, tmp_path: Path) -> None:
    target = Target("node1", address=f"$(touch${{IFS}}{tmp_path}/touched)")
    answer = client.one(target, config="ProxyCommand echo %h")
    assert answer.unreached is Unreached.NAME
    assert not (tmp_path / "touched").exists()


def test_an_address_cannot_smuggle_in_a_line_of_ssh_config(client: Client, tmp_path: Path) -> None:
    answer = client.one(Target("node1", address=f"127.0.0.1\nProxyCommand touch {tmp_path}/touched"))
    assert answer.unreached is Unreached.NAME
    assert not (tmp_path / "touched").exists()


def test_a_log_in_that_was_abandoned_is_not_opened_again() -> None:
    login = Logins({"config": "/dev/null", "user": "x"}, connect_s=1.0).to(Target("localhost", port=free_port()))
    login.abandon()
    with pytest.raises(LoginFailed, match="abandoned"):
        login.open()


def test_a_server_that_says_nothing_is_timed_out(client: Client) -> None:
    def listen(connection: socket.socket) -> None:
        while connection.recv(1000):
            pass

    with listening(listen) as port:
        answer = client.one(Target("node1", port=port), connect_s=0.5)
    assert answer.unreached is Unreached.TIMED_OUT


def test_a_server_that_trickles_does_not_hold_up_the_others(client: Client) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.settimeout(0.05)
        while True:
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                if connection.recv(100) == b"":
                    return

    with listening(trickle) as port:
        answers = client.visit(Target("slow", port=port), *map(Target, ("a", "b", "c")), connect_s=5.0, fanout=2)
    assert answers.pop("slow").unreached is Unreached.TIMED_OUT
    assert [answer.output for answer in answers.values()] == [b"hello\n"] * 3


def test_a_server_that_drops_connections_is_tried_twice(client: Client) -> None:
    dropped: list[socket.socket] = []
    with listening(dropped.append) as port:
        answer = client.one(Target("node1", port=port))
    assert answer.unreached is Unreached.LOST
    assert "MaxStartups" in answer.detail
    assert len(dropped) == 2


def test_a_server_that_speaks_something_else_is_garbled_and_cannot_steer_a_terminal(client: Client) -> None:
    def web(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 \x1b[2J Bad Request\r\n" * 101)
        connection.recv(1000)

    with listening(web) as port:
        answer = client.one(Target("node1", port=port))
    assert answer.unreached is Unreached.GARBLED
    assert "HTTP/1.1 400 \\x1b[2J Bad Request" in answer.detail


def test_a_banner_before_the_log_in_does_no_harm(tmp_path: Path, client: Client) -> None:
    (tmp_path / "banner").write_text("Authorised use only.\n" * 50)
    with sshd(tmp_path / "sshd", f"Banner {tmp_path}/banner") as server:
        assert Client(tmp_path, server).one().output == b"hello\n"
