"""SSH: the user's agent, whose keys are offered, and which may be silent or broken."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import new_key, ssh_agent, sshd
from tests.transport.ssh_client import Client

pytestmark = needs_sshd


def test_a_key_that_needs_a_passphrase_is_asked_of_the_agent(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key(tmp_path / "locked", passphrase="secret")
    with sshd(tmp_path / "sshd", f"AuthorizedKeysFile {tmp_path}/locked.pub") as server:
        there = Client(tmp_path, server)
        config = f"IdentityFile {tmp_path}/locked"
        refused = there.one(config=config)
        with ssh_agent(tmp_path / "agent", tmp_path / "locked", "secret"):
            monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
            accepted = there.one(config=config)
            unasked = there.one(config=f"{config}\nIdentityAgent none")
    assert refused.unreached is Unreached.AUTH
    assert f"{tmp_path}/locked is encrypted: add it to the agent" in refused.detail
    assert accepted.output == b"hello\n"
    assert unasked.unreached is Unreached.AUTH


@pytest.fixture
def agent(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What listens in the place of the user's agent."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(client.home / "agent"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(client.home / "agent"))
        listener.listen()
        yield listener


@pytest.fixture
def keyless(client: Client) -> Client:
    """A client that has no key but the agent's."""
    client.server = replace(client.server, folder=client.home / "elsewhere")
    return client


def answer_requests(agent: socket.socket, *answers: bytes) -> None:
    """Answer the requests of one client, and end the connection."""

    def serve() -> None:
        with agent.accept()[0] as asking, contextlib.suppress(BrokenPipeError):
            for answer in answers:
                asking.recv(10_000)
                asking.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()


def test_an_agent_that_is_silent_is_asked_once_and_speaks_against_no_node(
    keyless: Client, agent: socket.socket
) -> None:
    config, nodes = "IdentitiesOnly no", [Target("node1"), Target("node2"), Target("node3")]
    answers = keyless.visit(*nodes, config=config, connect_s=2.0, fanout=1)
    agent.accept()[0].close()
    agent.setblocking(False)
    with pytest.raises(BlockingIOError):
        agent.accept()
    assert [answer.unreached for answer in answers.values()] == [Unreached.AUTH] * 3
    for answer in answers.values():
        assert answer.detail.endswith("user_key is absent; the agent of SSH_AUTH_SOCK does not answer")


@pytest.mark.usefixtures("agent")
def test_keys_in_files_are_tried_on_where_the_agent_was_silent(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "unknown")
    stranger = "Host stranger\n User nobody-of-that-name\n IdentitiesOnly no"
    config = f"{stranger}\nHost *\n IdentityFile {tmp_path}/unknown"
    answers = client.visit(Target("stranger"), Target("node1"), config=config, connect_s=2.0, fanout=1)
    assert answers["stranger"].detail.endswith("the agent of SSH_AUTH_SOCK does not answer")
    assert answers["node1"].output == b"hello\n"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "lost ssh-agent"),
        (b"\0\0\0\1\5", "could not get keys from ssh-agent"),
        (b"\0\0\0\x11\x0c\0\0\0\1\0\0\0\0\0\0\0\4m\xfcll", "'utf-8' codec can't decode byte 0xfc in position 1"),
    ],
    ids=["ends", "refuses", "a comment that is not UTF-8"],
)
def test_an_agent_that_fails_is_named(keyless: Client, agent: socket.socket, answer: bytes, problem: str) -> None:
    answer_requests(agent, answer)
    refused = keyless.one(config="IdentitiesOnly no")
    assert refused.unreached is Unreached.AUTH
    assert f"user_key is absent; the agent of SSH_AUTH_SOCK: {problem}" in refused.detail


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ([b"", b""], " does not answer"),
        ([b""], ": lost ssh-agent"),
        ([b"\0\0\0\1\5"], " does not sign"),
    ],
    ids=["is silent", "ends", "refuses, as without a confirmation or a token's touch"],
)
def test_an_agent_that_does_not_sign_is_named(
    client: Client, agent: socket.socket, answers: list[bytes], problem: str
) -> None:
    key = base64.b64decode(client.server.identity.with_suffix(".pub").read_text().split()[1])
    listed = struct.pack(">BII", 12, 1, len(key)) + key + struct.pack(">I", 0)
    client.server = replace(client.server, folder=client.home / "elsewhere")
    answer_requests(agent, struct.pack(">I", len(listed)) + listed, *answers)
    refused = client.one(config="IdentitiesOnly no", connect_s=2.0)
    assert refused.unreached is Unreached.AUTH
    assert refused.detail.endswith(f"user_key is absent; the agent of SSH_AUTH_SOCK{problem}")
