"""ssh_config: what is read of it, that reading it in parts makes no difference, and nodes behind others."""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from paramiko.config import SSHConfig

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.ssh import login
from clusterproof.plugins.transport.ssh.login import LoginState
from clusterproof.plugins.transport.ssh.logins import (
    SshConfig,
    host_key_checking,
    jumps,
    known_hosts_files,
    parts_of_hop,
)
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import free_port, sshd, user
from tests.transport.ssh_client import Client, listening

TIMEOUT_S = 600.0
CONFIG = """
ServerAliveInterval 7
Host gpu1
  Port 2201
  IdentityFile ~/.ssh/one
Host gpu2 gpu3
  Port 2202
Host=gpu4
  Port=2204
Host gpu* !gpu2
  User trainer
Host "gpu5"
  Port 2205
Match originalhost gpu6
  Port 2206
Host *
  User anybody
  IdentityFile ~/.ssh/all
  ProxyCommand relay %h %p %r
"""


@pytest.mark.parametrize("name", ["gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu6", "gpu7", "other"])
def test_the_blocks_of_a_host_say_what_the_whole_file_says(tmp_path: Path, name: str) -> None:
    (tmp_path / "config").write_text(CONFIG)
    in_parts = SshConfig.load(str(tmp_path / "config")).for_host(name).lookup(name)
    assert in_parts == SSHConfig.from_text(CONFIG).lookup(name)


def test_what_outranks_the_file_is_in_the_proxy_command_too(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    outranking = "HostName 10.0.0.1\nPort 99\nUser root\n"
    options = SshConfig.load(str(tmp_path / "config")).for_host("gpu1", outranking).lookup("gpu1")
    assert options["proxycommand"] == "relay 10.0.0.1 99 root"


def test_the_block_around_an_include_goes_on_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "more").write_text("Host gpu9\n  Port 9\nInclude ~/absent\n")
    (tmp_path / "config").write_text("Host gpu1\n  Include ~/mor?\n  User trainer\nHost gpu9\n  User nine\n")
    config = SshConfig.load(str(tmp_path / "config"))
    assert config.for_host("gpu1").lookup("gpu1") == {"hostname": "gpu1", "user": "trainer"}
    assert config.for_host("gpu9").lookup("gpu9") == {"hostname": "gpu9", "user": "nine", "port": "9"}


@pytest.mark.parametrize("writable", ["config", "more"])
def test_a_users_file_that_others_may_write_is_refused_as_ssh_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Include more\n")
    (tmp_path / ".ssh" / "more").write_text("ProxyCommand touch /tmp/seen\n")
    assert SshConfig.load().for_host("x").lookup("x")["proxycommand"] == "touch /tmp/seen"
    (tmp_path / ".ssh" / writable).chmod(0o666)
    with pytest.raises(InventoryError, match=f"{writable} may be written by others; expected a file that only you "):
        SshConfig.load()


def test_the_home_of_nobody_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~nosuchuser").mkdir()
    (tmp_path / "~nosuchuser" / "more").write_text("User theirs\n")
    (tmp_path / "config").write_text("Include ~nosuchuser/more\nUserKnownHostsFile ~nosuchuser/more\nUser mine\n")
    options = SshConfig.load(str(tmp_path / "config")).for_host("x").lookup("x")
    assert options["user"] == "mine"
    assert not known_hosts_files(options)[0].exists()
    with pytest.raises(InventoryError, match="No such file or directory; expected a file that can be read"):
        SshConfig.load("~nosuchuser/more")


def test_an_include_of_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Include {tmp_path}/config\nUser trainer\n")
    assert SshConfig.load(str(tmp_path / "config")).for_host("x").lookup("x")["user"] == "trainer"


def test_the_users_file_outranks_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host *\n  User trainer\n")
    assert SshConfig.load().for_host("gpu1").lookup("gpu1")["user"] == "trainer"


@pytest.mark.parametrize(
    ("data", "hops"),
    [
        ({}, []),
        ({"proxyjump": "none"}, []),
        ({"proxyjump": "bastion"}, ["bastion"]),
        ({"proxyjump": "a@b:22, c"}, ["a@b:22", "c"]),
    ],
)
def test_jump_hosts_come_in_their_order(data: dict[str, str], hops: list[str]) -> None:
    assert jumps(data) == hops


@pytest.mark.parametrize(
    ("data", "checking"),
    [("yes", "yes"), ("ask", "yes"), ("Accept-New", "accept-new"), ("no", "no"), ("off", "no"), ("maybe", "yes")],
)
def test_host_keys_are_checked_as_strictly_as_ssh_config_says(data: str, checking: str) -> None:
    assert host_key_checking({"stricthostkeychecking": data}) == checking
    assert host_key_checking({}) == "yes"


def test_known_hosts_files_are_those_of_openssh_unless_others_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    default = [str(path) for path in known_hosts_files({})]
    assert default == [
        "/home/x/.ssh/known_hosts",
        "/home/x/.ssh/known_hosts2",
        "/etc/ssh/ssh_known_hosts",
        "/etc/ssh/ssh_known_hosts2",
    ]
    options = {"userknownhostsfile": '~/a "/b c" ~nobody-here/d', "globalknownhostsfile": "none"}
    assert [str(path) for path in known_hosts_files(options, "/first")] == [
        "/first",
        "/home/x/a",
        "/b c",
        "/~nobody-here/d",
    ]


RELAY = Path(__file__).with_name("relay.py")


@needs_sshd
def test_a_proxy_command_carries_the_connection(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    assert client.one(config=config).output == b"hello\n"


@needs_sshd
def test_a_proxy_command_gets_the_address_and_port_of_the_command_line(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    target = Target("node1", address="localhost", port=client.server.port)
    client.known_hosts.write_text(f"localhost {client.server.host_key}\n")
    assert client.one(target, config=f"Host node1\n HostName nowhere.invalid\n Port 1\n{config}").output == b"hello\n"


@needs_sshd
def test_a_proxy_command_that_dies_is_reported_with_its_last_words_and_costs_nothing(client: Client) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    answer = client.one(config="ProxyCommand sh -c 'echo target is offline >&2; exit 7'", connect_s=30.0)
    spent_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    assert answer.unreached is Unreached.LOST
    assert answer.detail.endswith("ended with exit code 7: target is offline")
    assert spent_s < 5.0  # paramiko's own would spin for all of the 30 s


@needs_sshd
def test_a_connection_dropped_behind_a_proxy_command_is_tried_twice(client: Client) -> None:
    dropped: list[socket.socket] = []
    with listening(dropped.append) as port:
        answer = client.one(Target("node1", port=port), config=f"ProxyCommand {sys.executable} {RELAY} %h %p")
    assert answer.unreached is Unreached.LOST
    assert len(dropped) == 2


@needs_sshd
def test_a_proxy_command_that_hangs_is_ended(client: Client, tmp_path: Path) -> None:
    answer = client.one(config=f"ProxyCommand sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60'", connect_s=0.5)
    assert answer.unreached is Unreached.TIMED_OUT
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


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
def test_a_jump_host_that_leads_back_to_itself_ends(client: Client) -> None:
    answer = client.one(config="Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost node1\n ProxyJump a\n")
    assert answer.unreached is Unreached.NAME
    assert "passes more than" in answer.detail
