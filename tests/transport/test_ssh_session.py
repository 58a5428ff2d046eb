"""A program that stays on a node: its connection has one thread, and whatever ends it is reported in words."""

from __future__ import annotations

import errno
import resource
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits, NodeSession, Program
from clusterproof.plugins.transport.ssh import ReadAhead
from clusterproof.plugins.transport.ssh import session as module
from clusterproof.plugins.transport.ssh.login import Login
from clusterproof.plugins.transport.ssh.logins import Logins
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_cpu

pytestmark = needs_cluster

TIMEOUT_S = 600.0
NODE = "gpu001"
KILLS_SSHD = "read -r _ _ _ sshd _ </proc/$PPID/stat; kill -9 $sshd"
STAYS = Program("/bin/sh -c 'read line; echo $line; exec cat >/run/beats'", b"hello\n")


@pytest.fixture(scope="module")
def node() -> Iterator[Testbed]:
    with testbed({NODE: healthy_cpu()}) as bed:
        yield bed


@pytest.fixture
def home(node: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    monkeypatch.setenv("HOME", str(node.home))
    with node.joined():
        yield node


def sessions(count: int) -> list[NodeSession]:
    every = module.sessions(Limits(connect_s=TIMEOUT_S))
    return [every.on_node(lambda _: None) for _ in range(count)]


class Heard:
    """What a program writes, and that it has written."""

    def __init__(self) -> None:
        self.text, self.has_come = b"", threading.Event()

    def take(self, piece: bytes) -> None:
        self.text += piece
        self.has_come.set()


def run(session: NodeSession, program: Program, heard: Heard, dead_s: float = TIMEOUT_S) -> Future[str]:
    ended = session.run(Target(NODE), program, heard.take, dead_s)
    assert isinstance(ended, Future), ended
    return ended


def test_each_connection_has_one_thread_and_none_when_it_has_ended(
    home: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_S", 10 * TIMEOUT_S)  # what ends is not waited for
    threads, every = set(threading.enumerate()), [(session, Heard()) for session in sessions(6)]
    ended = [run(session, STAYS, heard) for session, heard in every]
    assert all(heard.has_come.wait(TIMEOUT_S) for _, heard in every)
    assert len(set(threading.enumerate()) - threads) == 6
    for session, _ in every:
        session.end()
    assert all(future.result(TIMEOUT_S) for future in ended)
    for thread in set(threading.enumerate()) - threads:
        thread.join(TIMEOUT_S)
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(
    ("command", "said", "words"),
    [
        ("echo hello; echo refused >&2", b"hello\nrefused\n", "the program ended"),
        (KILLS_SSHD, b"", "the connection broke: "),
    ],
)
def test_a_program_that_ended_is_told_from_a_connection_that_broke(
    home: Testbed, command: str, said: bytes, words: str
) -> None:
    heard = Heard()
    ended = run(sessions(1)[0], Program(f"/bin/sh -c '{command}'", b""), heard)
    assert ended.result(TIMEOUT_S).startswith(words)
    assert said in heard.text


def test_a_session_for_whose_end_no_thread_can_be_started_ends_all_the_same(
    home: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    heard = Heard()
    session = sessions(1)[0]
    ended = run(session, STAYS, heard)
    assert heard.has_come.wait(TIMEOUT_S)
    monkeypatch.setattr(threading.Thread, "start", start)
    session.end()
    assert ended.result(60.0).startswith("the connection broke: ")


def test_what_the_listener_raises_ends_the_session(home: Testbed) -> None:
    def refuse(piece: bytes) -> None:
        raise ValueError(piece.decode())

    ended = sessions(1)[0].run(Target(NODE), STAYS, refuse, TIMEOUT_S)
    assert isinstance(ended, Future)
    with pytest.raises(ValueError, match="hello"):
        ended.result(TIMEOUT_S)


def test_a_program_that_says_nothing_is_ended(home: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.1)
    ended = run(sessions(1)[0], STAYS, Heard(), dead_s=3.0)
    assert ended.result(TIMEOUT_S) == "nothing came for 3 s"


def test_a_program_that_says_nothing_is_ended_while_its_sshd_says_something(
    home: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_S", 2.0)
    home.configure_sshd(NODE, "ClientAliveInterval 1\n")
    ended = run(sessions(1)[0], Program("/bin/sh -c 'exec sleep 600'"), Heard(), dead_s=5.0)
    assert ended.result(TIMEOUT_S) == "nothing came for 5 s"


def test_a_node_that_takes_no_program_is_left_too(home: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.1)
    stopped = Program("/bin/sh -c 'read -r _ _ _ sshd _ </proc/$PPID/stat; kill -STOP $sshd'", bytes(50_000_000))
    assert run(sessions(1)[0], stopped, Heard(), dead_s=5.0).result(TIMEOUT_S) == "nothing came for 5 s"


def test_a_program_gets_signs_of_life_while_it_says_nothing(home: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.1)
    monkeypatch.setattr(module, "KEEPALIVE_S", 0.1)
    beaten, session = Heard(), sessions(1)[0]
    program = Program("/bin/sh -c 'read one && read two && echo beaten; cat >/dev/null'", b"")
    run(session, program, beaten)
    assert beaten.has_come.wait(TIMEOUT_S)
    session.end()
    assert beaten.text == b"beaten\n"


def test_a_fault_of_ours_leaves_no_connection_open(home: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, opened = set(threading.enumerate()), Login.open

    def fails(login: Login) -> None:
        opened(login)
        raise KeyError("a fault of ours")

    monkeypatch.setattr(Login, "open", fails)
    with pytest.raises(KeyError):
        sessions(1)[0].run(Target(NODE), STAYS, Heard().take, TIMEOUT_S)
    for thread in set(threading.enumerate()) - threads:
        thread.join(TIMEOUT_S)
    assert set(threading.enumerate()) <= threads


def test_where_few_files_may_be_open_as_many_are_as_the_system_allows(home: Testbed) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        sessions(1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_nodes_that_log_in_at_once_share_what_was_read_and_a_later_one_reads_it_anew(
    home: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(settings: Mapping[str, str], connect_s: float) -> Logins:
        read.append("once")
        return Logins(settings, connect_s)

    monkeypatch.setattr(module, "Logins", counted)
    monkeypatch.setattr(module, "FRESH_S", TIMEOUT_S)
    every = sessions(3)
    for session in every:
        run(session, Program("true", b""), Heard()).result(TIMEOUT_S)
    assert read == ["once"]
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    run(every[0], Program("true", b""), Heard()).result(TIMEOUT_S)
    assert read == ["once", "once"]


def test_a_cipher_that_checks_what_it_decrypts_is_preferred(home: Testbed) -> None:
    login = Logins({}, TIMEOUT_S).to(Target(NODE))
    assert "gcm" in login.open().remote_cipher  # type: ignore[attr-defined] # which its types leave out
    login.close()


def test_what_is_read_ahead_is_handed_on_piece_by_piece() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ahead = ReadAhead(ours)
        theirs.sendall(b"header, body")
        assert [ahead.recv(7), ahead.recv(1), ahead.recv(100)] == [b"header,", b" ", b"body"]
        theirs.shutdown(socket.SHUT_WR)
        assert ahead.recv(1) == b""


def test_a_wait_in_which_nothing_comes_ends_as_paramiko_knows_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ahead = ReadAhead(ours)
        ahead.look_each(0.05)
        with pytest.raises(BlockingIOError) as ended:
            ahead.recv(1)
        assert ended.value.args[0] == errno.EAGAIN
        ahead.send(bytes(100_000_000))
        with pytest.raises(BlockingIOError):
            ahead.send(b"more")
