"""Nodes behind jump hosts: how they are passed, and whose fault it is where one does not let through."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.ssh import NoRoute, login
from clusterproof.plugins.transport.ssh.login import ConnectionFailure, LoginFailed, LoginState
from clusterproof.plugins.transport.ssh.ssh_config import parts_of_hop
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import free_port, sshd, user
from tests.transport.ssh_client import RELAY, Client

TIMEOUT_S = 600.0


@pytest.mark.parametrize(
    ("hop", "parts"),
    [
        ("bastion", ("", "bastion", "")),
        ("me@realm@bastion:2222", ("me@realm", "bastion", "2222")),
        ("ssh://ops@bastion:2222/", ("ops", "bastion", "2222")),
        ("[2001:db8::1]", ("", "2001:db8::1", "")),
        ("ops@[fe80::1%eth0]:2222", ("ops", "fe80::1%eth0", "2222")),
    ],
)
def test_a_jump_host_is_read_as_openssh_reads_it(hop: str, parts: tuple[str, str, str]) -> None:
    assert parts_of_hop(hop) == parts


@needs_sshd
@pytest.mark.parametrize("hop", ["2001:db8::1", "ops@", "bastion:ssh", "[bastion]", "ops@bastion:22:33"])
def test_a_jump_host_that_none_can_be_is_named(client: Client, hop: str) -> None:
    answer = client.one(config=f"Host node1\n  ProxyJump {hop}\n")
    expected = "expected [user@]HOST[:port], and an IPv6 address in brackets"
    assert (answer.unreached, answer.detail) == (Unreached.NAME, f"the ProxyJump {hop!r}; {expected}")


class Entering:
    """A login that a jump host lets in once it may."""

    def __init__(self) -> None:
        self.state = LoginState()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def open(self) -> Entering:
        self.has_begun.set()
        assert self.may_end.wait(TIMEOUT_S)
        return self


def test_while_a_jump_host_lets_others_in_the_time_of_a_node_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_LOGINS_AT_ONCE", 1)
    host, first, second = login.JumpHost("bastion"), Entering(), Entering()
    threads = [threading.Thread(target=host.open, args=[entering]) for entering in (first, second)]
    threads[0].start()
    assert first.has_begun.wait(TIMEOUT_S)
    threads[1].start()
    until = time.monotonic() + TIMEOUT_S
    while not second.state.waited_s and time.monotonic() < until:
        time.sleep(0.001)
    first.may_end.set()
    assert second.has_begun.wait(TIMEOUT_S)
    waited_s = second.state.waited_s
    assert waited_s > first.state.waited_s
    second.may_end.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert second.state.waited_s == waited_s


class Refused:
    """A login that fails."""

    def __init__(self, unreached: Unreached) -> None:
        self.state = LoginState()
        self.failure = ConnectionFailure(unreached, "why")

    def open(self) -> None:
        raise LoginFailed(self.failure)


def test_a_jump_host_for_whose_login_this_machine_has_no_room_is_tried_again_and_accuses_no_node() -> None:
    host, entering = login.JumpHost("bastion"), Entering()
    with pytest.raises(NoRoute, match="jump host bastion: why") as refused:
        host.open(Refused(Unreached.THROTTLED))  # type: ignore[arg-type]
    assert refused.value.unreached is Unreached.THROTTLED
    entering.may_end.set()
    assert host.open(entering) is entering  # type: ignore[arg-type, comparison-overlap]


def test_a_refusal_of_a_jump_host_keeps_no_log_in_of_a_node_in_memory() -> None:
    host, refusals = login.JumpHost("bastion"), []
    for _ in range(3):
        with pytest.raises(NoRoute) as refused:
            host.open(Refused(Unreached.AUTH))  # type: ignore[arg-type]
        refusals.append(refused.value)
    assert len(set(map(id, refusals))) == 3  # one that is raised again would refer to the frames of all


@needs_sshd
def test_a_jump_host_is_not_overrun(tmp_path: Path, client: Client) -> None:
    with sshd(tmp_path / "sshd", startups="10:100:10") as bastion:
        client.known_hosts.write_text(client.server.known_hosts() + bastion.known_hosts())
        config = (
            f"Host bastion\n  Port {bastion.port}\n  IdentityFile {bastion.identity}\nHost node*\n  ProxyJump bastion\n"
        )
        answers = client.visit(*(Target(f"node{number}") for number in range(40)), config=config, connect_s=60.0)
    assert [(answer.output, answer.detail) for answer in answers.values()] == [(b"hello\n", "")] * 40


@needs_sshd
def test_a_jump_host_that_drops_the_connection_is_tried_twice(client: Client, tmp_path: Path) -> None:
    once = f"if mkdir {tmp_path}/dropped; then exit 0; fi; exec {sys.executable} {RELAY} %h %p"
    config = f"Host bastion\n  ProxyCommand sh -c '{once}'\nHost node1\n  ProxyJump bastion\n"
    answer = client.one(config=config)
    assert (answer.output, answer.detail) == (b"hello\n", "")
    assert (tmp_path / "dropped").is_dir()


@needs_sshd
def test_a_jump_host_may_be_the_same_sshd_under_another_name(client: Client) -> None:
    target = Target("node1")
    assert client.one(target, config=f"Host node1\n ProxyJump {user()}@bastion:{client.server.port}\n").output


@needs_sshd
@pytest.mark.parametrize(
    ("bastion", "unreached", "data"),
    [
        ("Port {closed}", Unreached.NO_ROUTE, "jump host bastion: 127.0.0.1:{closed} refuses"),
        ("HostKeyAlias stranger", Unreached.HOST_KEY, "jump host bastion: unknown host key"),
        (
            "User nobody-of-that-name",
            Unreached.AUTH,
            "jump host bastion: log-in as nobody-of-that-name: refused",
        ),
        ("HostName bastion.invalid", Unreached.NAME, "jump host bastion: bastion.invalid does not resolve"),
    ],
)
def test_a_jump_host_that_refuses_log_in_is_what_is_reported_and_no_fault_of_nodes_behind_it(
    client: Client, bastion: str, unreached: Unreached, data: str
) -> None:
    closed = free_port()
    config = f"Host bastion\n  {bastion.format(closed=closed)}\nHost node*\n  ProxyJump bastion\n"
    answers = client.visit(Target("node1"), Target("node2"), config=config)
    assert {answer.unreached for answer in answers.values()} == {unreached}
    assert all(answer.detail.startswith(data.format(closed=closed)) for answer in answers.values())


@needs_sshd
def test_a_jump_host_that_forwards_nothing_is_no_fault_of_nodes_behind_it(tmp_path: Path, client: Client) -> None:
    with sshd(tmp_path / "sshd", "AllowTcpForwarding no") as bastion:
        client.known_hosts.write_text(client.server.known_hosts() + bastion.known_hosts())
        hop = f"Host bastion\n  Port {bastion.port}\n  IdentityFile {bastion.identity}\n"
        answer = client.one(config=f"{hop}Host node1\n  ProxyJump bastion\n")
    assert answer.unreached is Unreached.AUTH
    assert answer.detail == (
        f"jump host bastion does not forward to 127.0.0.1:{client.server.port}: Administratively prohibited; "
        "expected AllowTcpForwarding and PermitOpen there to allow it"
    )


@needs_sshd
def test_a_node_that_its_jump_host_does_not_reach_is_reported(client: Client) -> None:
    answer = client.one(Target("node1", port=free_port()), config="Host node1\n  ProxyJump bastion\n")
    assert answer.unreached is Unreached.NO_ROUTE
    assert answer.detail.startswith("jump host bastion does not reach 127.0.0.1:")


@needs_sshd
def test_jump_hosts_are_passed_in_their_order(client: Client) -> None:
    config = "Host second\n  HostName localhost\nHost node1\n  ProxyJump first,second\n"
    client.known_hosts.write_text(client.server.known_hosts())
    assert client.one(config=config).detail.startswith("jump host second: unknown host key")
    client.known_hosts.write_text(client.server.known_hosts("localhost"))
    assert client.one(config=config).output == b"hello\n"


@needs_sshd
@pytest.mark.parametrize("hop", ["bastion", "{user}@bastion", "bastion:{port}", "ssh://{user}@bastion:{port}"])
def test_a_jump_host_of_every_host_is_reached_without_itself(client: Client, hop: str) -> None:
    every = f"Host *\n  ProxyJump {hop.format(user=user(), port=client.server.port)}\n"
    assert client.one(config=every).output == b"hello\n"


@needs_sshd
def test_a_jump_host_is_not_itself_under_another_user(client: Client) -> None:
    answer = client.one(Target("bastion"), config="Host *\n  ProxyJump nobody-of-that-name@bastion\n")
    assert answer.detail.startswith("jump host bastion: log-in as nobody-of-that-name: refused")


@needs_sshd
def test_a_jump_host_that_leads_back_to_itself_ends(client: Client) -> None:
    answer = client.one(config="Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost node1\n ProxyJump a\n")
    assert answer.unreached is Unreached.NAME
    assert "passes more than" in answer.detail
