"""SSH by a ProxyCommand: what it is given, and what is said of the node where it ends or hangs."""

from __future__ import annotations

import os
import re
import resource
import socket
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from tests.testbed.needs import needs_sshd
from tests.transport.ssh_client import RELAY, Client, listening

pytestmark = needs_sshd


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
    assert spent_s < 5.0  # paramiko's own would spin for all of the 30 s


@pytest.mark.parametrize("command", ["no-such-program %h %p", "/etc/passwd %h %p", "sh -c 'no-such-program %h'"])
def test_a_proxy_command_that_cannot_be_run_here_speaks_against_no_node(client: Client, command: str) -> None:
    answer = client.one(config=f"ProxyCommand {command}")
    assert answer.unreached is Unreached.NAME
    assert re.search(r"ended with exit code 12[67]: .*(not found|denied)", answer.detail)


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
