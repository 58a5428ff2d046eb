"""ssh_config: what is read of it, that reading it in parts makes no difference, and nodes behind others."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from paramiko.config import SSHConfig

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.ssh import NoRoute, config_parser, ssh_config
from clusterproof.plugins.transport.ssh.logins import Logins
from clusterproof.plugins.transport.ssh.ssh_config import (
    SshConfig,
    host_key_checking,
    jumps,
    known_hosts_files,
    proxy_command,
)
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import user
from tests.transport.ssh_client import Client

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


@needs_sshd
@pytest.mark.parametrize(
    "config",
    [
        "Match final all\n Port 7",
        "Match canonical all\n Port 7",
        "Match All\n Port 7",
        "Match HOST other\n Port 7",
        "Match !host gpu1\n Port 7",
        "HostName %h.example\nMatch host gpu1.example\n Port 7",
        "HostName %h.example\nMatch originalhost gpu1.example\n Port 7",
        "User trainer\nMatch user trainer host gpu*\n Port 7",
        "Match localuser nobody-of-that-name\n Port 7",
        'Match exec "read line"\n Port 7',
        'Port 9\nUser trainer\nMatch host gpu1 exec "test %h-%n-%p-%r = gpu1-gpu1-9-trainer"\n HostName seven',
        'HostName %h.example\nMatch exec "test %h = %n.example && test $(echo %%d) != %d"\n Port 7',
        "Host gpu1 # the first\n  Port 2222 # forwarded\n  User trainer # 'quoted",
        'User "a #b"\nHostKeyAlias a#b # an alias',
        "Host gpu1\n ProxyCommand none\nHost *\n ProxyJump bastion",
        "Host gpu1\n ProxyCommand nc # 1\nHost *\n ProxyJump bastion",
        "Host gpu1\n ProxyJump none\nHost *\n ProxyCommand nc 1 2",
        "ProxyCommand none\nProxyJump bastion",
        "ProxyJump bastion\nProxyCommand nc 1 2",
        "CanonicalizeHostname yes",
    ],
)
def test_a_configuration_means_what_it_means_to_openssh(tmp_path: Path, config: str) -> None:
    (tmp_path / "config").write_text(f"{config}\n")
    for name in ("gpu1", "other"):
        shown = subprocess.check_output(["ssh", "-G", "-F", tmp_path / "config", name], text=True)
        theirs = dict(line.split(" ", 1) for line in shown.splitlines())
        ours = SshConfig.load(str(tmp_path / "config")).for_host(name).lookup(name)
        assert ours.get("port", "22") == theirs["port"]
        assert ours["hostname"] == theirs["hostname"]
        assert ours.get("user", getpass.getuser()) == theirs["user"]
        assert ours.get("hostkeyalias") == theirs.get("hostkeyalias")
        assert ",".join(jumps(ours)) == theirs.get("proxyjump", "").replace("none", "")
        assert proxy_command(ours) == theirs.get("proxycommand", "").replace("none", "")


def test_each_command_of_match_exec_runs_once_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f'Match exec "echo %h >> {tmp_path}/ran"\n Port 7\n')
    config = SshConfig.load(str(tmp_path / "config"))
    for name in ("gpu1", "gpu1", "gpu2"):
        assert config.for_host(name, "User x\n").lookup(name)["port"] == "7"
    assert (tmp_path / "ran").read_text() == "gpu1\ngpu2\n"


@needs_sshd
def test_a_command_of_match_exec_that_hangs_is_ended_and_costs_each_host_that_it_decides_about(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_parser, "EXEC_S", 1.0)
    config = f'Match !originalhost node3 exec "echo $$ %h >> {tmp_path}/ran; exec sleep 600"\n  User wrong'
    answers = client.visit(Target("node1"), Target("node2"), Target("node3"), config=config)
    assert answers["node3"].output == b"hello\n"
    for name in ("node1", "node2"):
        assert answers[name].unreached is Unreached.NAME
        assert answers[name].detail.endswith(" did not end within 1 s")
    [pid, _] = (tmp_path / "ran").read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@needs_sshd
def test_a_criterion_that_is_not_supported_costs_the_hosts_that_it_decides_about(client: Client) -> None:
    config = "Match originalhost node2 localnetwork 10.0.0.0/8\n  User wrong"
    answers = client.visit(Target("node1"), Target("node2"), config=config)
    assert answers["node1"].output == b"hello\n"
    assert answers["node2"].unreached is Unreached.NAME
    assert answers["node2"].detail == "the ssh configuration of node2: Match localnetwork is not supported here"


def test_a_match_without_its_second_quote_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Match host 'gpu1\n  User wrong\n")
    with pytest.raises(InventoryError, match="Unparsable Match host 'gpu1: No closing quotation; expected what ssh_co"):
        SshConfig.load(str(tmp_path / "config")).for_host("gpu1")


def test_tokens_and_variables_stand_for_their_values_in_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYS", "/keys")
    (tmp_path / "config").write_text(
        "HostName %h.example\nHostKeyAlias rack7\n"
        "IdentityFile ${KEYS}/%n\nIdentityFile ~nobody-here/key\nUserKnownHostsFile /known/%k /known/%h\n"
    )
    options = SshConfig.load(str(tmp_path / "config")).for_host("gpu1").lookup("gpu1")
    assert list(options["identityfile"]) == ["/keys/gpu1", "/~nobody-here/key"]
    assert [str(file) for file in known_hosts_files(options)][:2] == ["/known/rack7", "/known/gpu1.example"]


def test_the_last_block_of_the_users_file_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_config, "_SYSTEM_FILE", str(tmp_path / "system"))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host gpu1\n  User trainer\n")
    (tmp_path / "system").write_text("ProxyJump bastion\n")
    config = SshConfig.load()
    assert [jumps(config.for_host(name).lookup(name)) for name in ("gpu1", "gpu2")] == [["bastion"], ["bastion"]]


@needs_sshd
def test_a_user_without_a_name_logs_in_by_another_and_is_told_to(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = user()
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_000_000_000)
    logins = Logins({"config": "/dev/null"}, 1.0)
    with pytest.raises(NoRoute, match="'' at 'node1': expected a log-in name and a host name"):
        logins.to(Target("node1"))
    assert logins.to(Target("node1", user=named))


def test_newer_pythons_say_otherwise_that_a_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> NoReturn:
        raise OSError("No username set in the environment")

    monkeypatch.setattr(getpass, "getuser", nameless)
    with pytest.raises(NoRoute, match="node1: No username set in the environment; expected USER to name the local"):
        Logins({"config": "/dev/null"}, 1.0).to(Target("node1", user="trainer"))


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


def test_a_comment_begins_outside_of_quotes(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Match exec 'true # in it' # behind it\n  Port 7\n")
    assert SshConfig.load(str(tmp_path / "config")).for_host("gpu1").lookup("gpu1")["port"] == "7"


def test_no_word_of_a_comment_is_a_host_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Port 9\n")
    (tmp_path / "config").write_text(f"Host gpu1 # not login\n Include absent # but {tmp_path}/more\n User trainer\n")
    config = SshConfig.load(str(tmp_path / "config"))
    assert config.for_host("gpu1").lookup("gpu1") == {"hostname": "gpu1", "user": "trainer"}
    assert config.for_host("login").lookup("login") == {"hostname": "login"}


def test_an_include_names_what_glob_finds(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "nodes").write_text("User trainer\n")
    (tmp_path / "conf.d" / ".nodes.swp").write_bytes(b"b0VIM 9.0\0\n")
    (tmp_path / "config").write_text(f"Include / '' **x {tmp_path}/conf.d/*\n")
    assert SshConfig.load(str(tmp_path / "config")).for_host("gpu1").lookup("gpu1")["user"] == "trainer"


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
