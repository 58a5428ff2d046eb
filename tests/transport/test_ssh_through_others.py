"""SSH through proxy commands and jump hosts."""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import free_port, sshd, user
from tests.transport.ssh_client import Client, listening

pytestmark = needs_sshd
RELAY = Path(__file__).with_name("relay.py")


def test_a_proxy_command_carries_the_connection(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    assert client.one(config=config).output == b"hello\n"


def test_a_proxy_command_gets_the_address_and_port_of_the_command_line(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    target = Target("node1", address="localhost", port=client.server.port)
    client.known_hosts.write_text(f"localhost {client.server.host_key}\n")
    assert client.one(target, config=f"Host node1\n HostName nowhere.invalid\n Port 1\n{config}").output == b"hello\n"


def test_a_proxy_command_that_dies_is_reported_with_its_last_words_and_costs_nothing(client: Client) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    answer = client.one(config="ProxyCommand sh -c 'echo target is offline >&2; exit 7'", connect_s=30.0)
    spent_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    assert answer.unreached is Unreached.LOST
    assert answer.detail.endswith("ended with exit code 7: target is offline")
    assert spent_s < 5.0  # paramiko's own spins for all of the 30 s


def test_a_connection_dropped_behind_a_proxy_command_is_tried_twice(client: Client) -> None:
    dropped: list[socket.socket] = []
    with listening(dropped.append) as port:
        answer = client.one(Target("node1", port=port), config=f"ProxyCommand {sys.executable} {RELAY} %h %p")
    assert answer.unreached is Unreached.LOST
    assert len(dropped) == 2


def test_a_proxy_command_that_hangs_is_ended(client: Client, tmp_path: Path) -> None:
    answer = client.one(config=f"ProxyCommand sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60'", connect_s=0.5)
    assert answer.unreached is Unreached.TIMED_OUT
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_jump_host_is_not_overrun(tmp_path: Path, client: Client) -> None:
    with sshd(tmp_path / "sshd", startups="10:100:10") as bastion:
        client.known_hosts.write_text(client.server.known_hosts() + bastion.known_hosts())
        config = (
            f"Host bastion\n  Port {bastion.port}\n  IdentityFile {bastion.identity}\nHost node*\n  ProxyJump bastion\n"
        )
        answers = client.visit(*(Target(f"node{number}") for number in range(40)), config=config, connect_s=60.0)
    assert [(answer.output, answer.detail) for answer in answers.values()] == [(b"hello\n", "")] * 40


def test_a_jump_host_that_drops_the_connection_is_tried_twice(client: Client, tmp_path: Path) -> None:
    once = f"if mkdir {tmp_path}/dropped; then exit 0; fi; exec {sys.executable} {RELAY} %h %p"
    config = f"Host bastion\n  ProxyCommand sh -c '{once}'\nHost node1\n  ProxyJump bastion\n"
    answer = client.one(config=config)
    assert (answer.output, answer.detail) == (b"hello\n", "")
    assert (tmp_path / "dropped").is_dir()


def test_a_jump_host_may_be_the_same_sshd_under_another_name(client: Client) -> None:
    target = Target("node1")
    assert client.one(target, config=f"Host node1\n ProxyJump {user()}@bastion:{client.server.port}\n").output


@pytest.mark.parametrize(
    ("bastion", "data"),
    [
        ("Port {closed}", "jump host bastion: 127.0.0.1:{closed} refuses"),
        ("HostKeyAlias stranger", "jump host bastion: unknown host key"),
        ("User nobody-of-that-name", "jump host bastion: log-in as nobody-of-that-name: refused"),
    ],
)
def test_a_jump_host_that_refuses_log_in_is_what_is_reported(client: Client, bastion: str, data: str) -> None:
    closed = free_port()
    config = f"Host bastion\n  {bastion.format(closed=closed)}\nHost node*\n  ProxyJump bastion\n"
    answers = client.visit(Target("node1"), Target("node2"), config=config)
    assert {answer.unreached for answer in answers.values()} == {Unreached.NO_ROUTE}
    assert all(answer.detail.startswith(data.format(closed=closed)) for answer in answers.values())


def test_a_node_that_its_jump_host_does_not_reach_is_reported(client: Client) -> None:
    answer = client.one(Target("node1", port=free_port()), config="Host node1\n  ProxyJump bastion\n")
    assert answer.unreached is Unreached.NO_ROUTE
    assert answer.detail.startswith("jump host bastion does not reach 127.0.0.1:")


def test_jump_hosts_are_passed_in_their_order(client: Client) -> None:
    config = "Host second\n  HostName localhost\nHost node1\n  ProxyJump first,second\n"
    client.known_hosts.write_text(client.server.known_hosts())
    assert client.one(config=config).detail.startswith("jump host second: unknown host key")
    client.known_hosts.write_text(client.server.known_hosts("localhost"))
    assert client.one(config=config).output == b"hello\n"


def test_a_jump_host_that_leads_back_to_itself_ends(client: Client) -> None:
    answer = client.one(config="Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost node1\n ProxyJump a\n")
    assert answer.unreached is Unreached.NO_ROUTE
    assert "passes more than" in answer.detail
