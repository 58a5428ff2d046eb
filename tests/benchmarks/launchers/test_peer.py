"""The replacement for ssh between two pods: it runs one command, from a peer with the right secret."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from clusterproof.plugins.benchmarks.launchers import peer
from clusterproof.plugins.benchmarks.launchers.mpirun import peer_program
from tests.testbed.kubernetes.processes import wait_until
from tests.transport.loopback import free_port

pytestmark = pytest.mark.long

SOURCE = peer_program()
WORD = "a word of the run"


@pytest.fixture
def port() -> Iterator[int]:
    """A port served for peers with the right secret."""
    number = free_port()
    served = subprocess.Popen([sys.executable, "-c", SOURCE, str(number)], env={**os.environ, peer.WORD: WORD})
    wait_until(lambda: listens(number), "listening")
    yield number
    served.kill()
    served.wait()


def listens(port: int) -> bool:
    """A connection without a request is not from a peer."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def run_peer(port: int, command: str, word: str = WORD) -> subprocess.CompletedProcess[str]:
    """As mpirun calls its agent: a host, and the words of a command."""
    environment = {**os.environ, peer.WORD: word, peer.WHERE: f"gpu003=127.0.0.1:1 gpu002=127.0.0.1:{port}"}
    arguments = [sys.executable, "-c", SOURCE, "gpu002", *command.split()]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("status", [0, 7, 127])
def test_output_and_exit_status_are_those_of_the_command(port: int, status: int) -> None:
    done = run_peer(port, f"echo one; echo two >&2; exit {status}")
    assert (done.stdout, done.returncode) == ("one\ntwo\n", status)


def test_output_without_an_end_of_line_and_of_any_length_is_whole(port: int) -> None:
    assert run_peer(port, "head -c 300000 /dev/zero | tr '\\0' x").stdout == "x" * 300_000


def test_the_word_is_in_no_environment_of_what_is_started(port: int) -> None:
    assert WORD not in run_peer(port, "env").stdout


def test_a_peer_without_the_secret_has_nothing_run_and_one_with_it_is_still_served(port: int) -> None:
    refused = run_peer(port, "echo done", word="another")
    assert (refused.stdout, refused.returncode) == ("", 1)
    assert run_peer(port, "echo done").stdout == "done\n"


def test_only_one_command_is_run(port: int) -> None:
    assert run_peer(port, "echo done").stdout == "done\n"
    assert run_peer(port, "echo again").stdout == ""


def test_a_command_that_somebody_on_the_path_has_changed_is_not_run(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as between:
        forging = threading.Thread(target=forge, args=(between, port))
        forging.start()
        assert run_peer(between.getsockname()[1], "echo mine").stdout == ""
        forging.join()
    assert run_peer(port, "echo mine").stdout == "mine\n"


def forge(between: socket.socket, port: int) -> None:
    """Pass on what both ends send, but for the words of the command."""
    client, server = between.accept()[0], socket.create_connection(("127.0.0.1", port))

    def answers() -> None:
        for piece in iter(lambda: server.recv(4096), b""):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)

    answering = threading.Thread(target=answers)
    answering.start()
    with client, server:
        while answering.is_alive() and (piece := client.recv(4096)):
            server.sendall(piece.replace(b"mine", b"ours"))
        answering.join()
