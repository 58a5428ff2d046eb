"""SSH: whose key is trusted, who may log in, and the message about a host that refuses."""

from __future__ import annotations

import base64
import errno
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from paramiko import Transport

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Limits, connection_for
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import Sshd, free_port, new_key, sshd, user
from tests.transport.ssh_client import HELLO, Client

pytestmark = needs_sshd


# Host keys


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(client: Client) -> None:
    client.known_hosts.write_text("")
    answer = client.one()
    assert answer.unreached is Unreached.HOST_KEY
    assert answer.detail.startswith("unknown host key ssh-ed25519 SHA256:")
    assert f"ssh-keyscan -p {client.server.port} 127.0.0.1 >> {client.known_hosts}, or" in answer.detail
    assert "--accept-new-host-keys" in answer.detail


@pytest.mark.parametrize("files", ["~/.ssh/known_hosts", "none", "/dev/null"])
def test_a_host_key_is_added_to_the_users_file_unless_another_is_set(client: Client, files: str) -> None:
    answer = client.one(config=f"UserKnownHostsFile {files}")
    assert " >> ~/.ssh/known_hosts, or --accept-new-host-keys for this run" in answer.detail


@pytest.mark.parametrize(
    "accepting",
    [{"accept_new_host_keys": "yes"}, {"config": "StrictHostKeyChecking accept-new"}],
    ids=["setting", "ssh_config"],
)
def test_a_new_host_key_is_accepted_where_that_is_asked_for_and_never_written(
    client: Client, accepting: dict[str, str]
) -> None:
    client.known_hosts.write_text("")
    assert client.one(None, **accepting).output == b"hello\n"
    assert client.known_hosts.read_text() == ""


@pytest.mark.parametrize("accepting", [{}, {"accept_new_host_keys": "yes"}], ids=["strict", "accept-new"])
def test_a_changed_host_key_is_refused_whatever_new_keys_are_accepted(
    client: Client, tmp_path: Path, accepting: dict[str, str]
) -> None:
    new_key(tmp_path / "other")
    other = (tmp_path / "other.pub").read_text()
    client.known_hosts.write_text(f"# replaced\n[127.0.0.1]:{client.server.port} {other}")
    answer = client.one(None, **accepting)
    assert answer.unreached is Unreached.HOST_KEY
    assert f"expected the one of {client.known_hosts}:2" in answer.detail
    assert f"ssh-keygen -R '[127.0.0.1]:{client.server.port}' -f {client.known_hosts}" in answer.detail


def test_host_keys_are_not_asked_for_where_ssh_config_says_so(client: Client) -> None:
    client.known_hosts.write_text("")
    assert client.one(config="StrictHostKeyChecking no").output == b"hello\n"


def test_a_host_is_known_by_its_alias_alone(client: Client, tmp_path: Path) -> None:
    assert "(under the name rack7)" in client.one(config="HostKeyAlias rack7").detail
    client.known_hosts.write_text(f"rack7 {client.server.host_key}\n")
    assert client.one(config="HostKeyAlias rack7").output == b"hello\n"
    new_key(tmp_path / "other")
    client.known_hosts.write_text(f"rack7 {(tmp_path / 'other.pub').read_text()}")
    assert "ssh-keygen -R 'rack7'" in client.one(config="HostKeyAlias rack7").detail


def test_the_inventory_brings_known_hosts_of_its_own(client: Client, tmp_path: Path) -> None:
    client.known_hosts.write_text("")
    (tmp_path / "ours").write_text(client.server.known_hosts())
    assert client.one(known_hosts=str(tmp_path / "ours")).output == b"hello\n"


# Log-ins


def hardware_key() -> str:
    """A private key file of kind sk-ssh-ed25519, as ssh-keygen writes it for a token."""

    def text(value: bytes) -> bytes:
        return struct.pack(">I", len(value)) + value

    public = text(b"sk-ssh-ed25519@openssh.com") + text(bytes(32)) + text(b"ssh:")
    private = struct.pack(">II", 7, 7) + public + b"\1" + text(b"handle") + text(b"") + text(b"")
    private += bytes(range(1, 1 + -len(private) % 8))
    whole = b"openssh-key-v1\0" + text(b"none") + text(b"none") + text(b"") + struct.pack(">I", 1)
    lines = base64.encodebytes(whole + text(public) + text(private)).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"


def test_the_right_key_may_come_after_wrong_ones(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "wrong")
    config = f"IdentityFile {tmp_path}/wrong\nIdentityFile {tmp_path}/absent"
    assert client.one(config=config).output == b"hello\n"


def test_a_refused_log_in_names_the_user_and_the_keys(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "wrong")
    client.server = replace(client.server, folder=tmp_path / "elsewhere")
    answer = client.one(config=f"IdentityFile {tmp_path}/wrong")
    assert answer.unreached is Unreached.AUTH
    assert answer.detail == f"log-in as {user()}: refused {tmp_path}/wrong; {tmp_path}/elsewhere/user_key is absent"


def test_the_command_line_outranks_ssh_config(client: Client) -> None:
    answer = client.one(Target("node1", user="nobody-of-that-name"))
    assert answer.unreached is Unreached.AUTH
    assert answer.detail.startswith("log-in as nobody-of-that-name: refused ")
    assert client.one(Target("node1", port=free_port()), user="x").unreached is Unreached.REFUSED


def test_an_inventory_alone_is_enough(client: Client, server: Sshd) -> None:
    answers: list[Answer] = []
    settings = {
        "config": "/dev/null",
        "user": user(),
        "port": str(server.port),
        "identity_file": str(server.identity),
        "known_hosts": str(client.known_hosts),
    }
    target = Target("node1", address="127.0.0.1")
    connection_for("ssh").run([target], HELLO, Limits(settings=settings), lambda _, answer: answers.append(answer))
    assert [answer.output for answer in answers] == [b"hello\n"]


def test_a_certificate_beside_the_key_is_shown(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "authority")
    new_key(tmp_path / "certified")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "test", "-n", user()]
    subprocess.run([*sign, str(tmp_path / "certified.pub")], check=True)
    options = ("AuthorizedKeysFile none", f"TrustedUserCAKeys {tmp_path}/authority.pub")
    with sshd(tmp_path / "sshd", *options) as server:
        assert Client(tmp_path, server).one(config=f"IdentityFile {tmp_path}/certified").output == b"hello\n"


def test_a_key_of_a_kind_that_is_not_supported_is_passed_over_and_named(client: Client, tmp_path: Path) -> None:
    key = dsa.generate_private_key(1024)
    form = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (tmp_path / "id_dsa").write_bytes(key.private_bytes(*form))
    assert client.one(config=f"IdentityFile {tmp_path}/id_dsa").output == b"hello\n"
    refused = client.one(Target("node1", user="nobody-of-that-name"), config=f"IdentityFile {tmp_path}/id_dsa")
    assert refused.detail.endswith(f"{tmp_path}/id_dsa is of a kind that is not supported: add it to the agent")


def test_the_key_of_a_hardware_token_is_passed_over(client: Client, tmp_path: Path) -> None:
    (tmp_path / "id_sk").write_text(hardware_key())
    assert client.one(config=f"IdentityFile {tmp_path}/id_sk").output == b"hello\n"


def test_an_empty_certificate_beside_a_key_is_named(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "certified")
    (tmp_path / "certified-cert.pub").write_text("")  # as a failed command leaves it behind `>`
    answer = client.one(Target("node1", user="nobody-of-that-name"), config=f"IdentityFile {tmp_path}/certified")
    expected = f"{tmp_path}/certified is not a private key, or certified-cert.pub beside it is not its certificate"
    assert answer.detail.endswith(expected)


def test_a_server_that_takes_no_keys_is_reported(client: Client, tmp_path: Path) -> None:
    with sshd(tmp_path / "sshd", "PubkeyAuthentication no", "PasswordAuthentication yes") as server:
        answer = Client(tmp_path, server).one()
    assert answer.unreached is Unreached.AUTH
    assert answer.detail == f"log-in as {user()} takes password; expected publickey"


def test_a_server_with_several_keys_is_asked_for_the_known_one(tmp_path: Path, client: Client) -> None:
    new_key(tmp_path / "ecdsa", "ecdsa")
    with sshd(tmp_path / "sshd", f"HostKey {tmp_path}/ecdsa") as server:
        known = (tmp_path / "ecdsa.pub").read_text()
        there = Client(tmp_path, server)
        there.known_hosts.write_text(f"[127.0.0.1]:{server.port} {known}")
        assert there.one().output == b"hello\n"


@pytest.mark.parametrize(
    "problem", [RuntimeError("can't start new thread"), OSError(errno.ENFILE, "Too many open files in system")]
)
def test_a_log_in_for_which_this_machine_has_no_room_accuses_no_node(
    client: Client, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def start(_transport: Transport) -> None:
        raise problem

    monkeypatch.setattr(Transport, "start", start)
    answer = client.one()
    assert answer.unreached is Unreached.THROTTLED
    assert answer.detail.endswith(f"{problem} on this machine; expected room for --fanout")


# ssh_config


def test_included_files_are_read(client: Client, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    (tmp_path / ".ssh" / "conf.d" / "nodes").write_text("Host node7\n  User nobody-of-that-name\n")
    answers = client.visit(Target("node6"), Target("node7"), config="Include conf.d/*")
    assert answers["node6"].output == b"hello\n"
    assert answers["node7"].detail.startswith("log-in as nobody-of-that-name")


def test_an_ssh_config_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    limits = Limits(settings={"config": str(tmp_path / "nowhere")})
    with pytest.raises(InventoryError, match=r"nowhere: No such file or directory; expected"):
        connection_for("ssh").run([Target("node1")], HELLO, limits, lambda *_: None)


def test_an_ssh_config_that_makes_no_sense_is_one_line(client: Client) -> None:
    with pytest.raises(InventoryError, match=r"Unparsable line HostName; expected what ssh_config\(5\) says"):
        client.one(config="HostName")


def test_a_block_of_one_host_that_makes_no_sense_costs_that_host_alone(client: Client) -> None:
    answers = client.visit(Target("node1"), Target("node2"), Target("node3"), config="Host node2\n  HostName")
    said = "the ssh configuration: Unparsable line HostName; expected what ssh_config(5) says"
    assert (answers["node2"].unreached, answers["node2"].detail) == (Unreached.NAME, said)
    assert [answers[name].output for name in ("node1", "node3")] == [b"hello\n"] * 2
