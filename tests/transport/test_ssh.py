"""SSH: what comes back from a real sshd, and what is said of a host that does not let in."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import MAX_ANSWER_BYTES, Answer, Limits, Program, connection_for
from clusterproof.plugins.transport.login import LoginFailed
from clusterproof.plugins.transport.logins import Logins
from tests.testbed.needs import needs_sshd
from tests.transport.loopback import Sshd, free_port, new_key, ssh_agent, sshd, user

pytestmark = needs_sshd
HELLO = Program("echo hello")
RELAY = Path(__file__).with_name("relay.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


class Client:
    """A person's ssh configuration in a home of its own, and runs with it."""

    def __init__(self, home: Path, server: Sshd) -> None:
        self.home = home
        self.server = server
        self.known_hosts = home / "known_hosts"
        self.known_hosts.write_text(server.known_hosts())

    def visit(
        self,
        *targets: Target,
        program: Program = HELLO,
        config: str = "",
        connect_s: float = 10.0,
        answer_s: float = 20.0,
        fanout: int = 64,
        **settings: str,
    ) -> dict[str, Answer]:
        """Visit the targets; `config` outranks the configuration in which every host is the server."""
        path = self.home / "config"
        path.write_text(
            f"{config}\nHost *\n  User {user()}\n  Port {self.server.port}\n  HostName 127.0.0.1\n"
            f"  IdentityFile {self.server.identity}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile none\n"
        )
        limits = Limits(fanout, connect_s, answer_s, settings={"config": str(path), **settings})
        answers: dict[str, Answer] = {}

        def answered(target: Target, answer: Answer) -> None:
            assert target.name not in answers
            answers[target.name] = answer

        connection_for("ssh").run(targets, program, limits, answered)
        return answers

    def one(self, target: Target | None = None, **more: object) -> Answer:
        """The answer of one target."""
        [answer] = self.visit(target or Target("node1"), **more).values()  # type: ignore[arg-type]
        return answer


@pytest.fixture
def client(tmp_path: Path, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Client(tmp_path, server)


def test_a_node_answers_with_what_the_program_prints(client: Client) -> None:
    answer = client.one(program=Program("cat; echo told >&2", b"given\n"))
    assert (answer.output, answer.unreached, answer.detail) == (b"given\ntold\n", None, "")
    assert answer.seconds > 0


def test_a_large_program_goes_out_and_a_large_answer_comes_back(client: Client) -> None:
    payload = os.urandom(30_000).hex().encode()
    answer = client.one(program=Program("cat; head -c 1000000 /dev/zero", payload))
    assert answer.output == payload + bytes(1_000_000)


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
    assert len(answer.output) >= 1_000_000  # all but what the window of 2 MiB and a pipe may hold on their way
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
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        answers = client.visit(*(Target(f"node{number}") for number in range(40)))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 128
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [answer.output for answer in answers.values()] == [b"hello\n"] * 40


# Host keys


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(client: Client) -> None:
    client.known_hosts.write_text("")
    answer = client.one()
    assert answer.unreached is Unreached.HOST_KEY
    assert answer.detail.startswith("unknown host key ssh-ed25519 SHA256:")
    assert f"ssh-keyscan -p {client.server.port} 127.0.0.1 >> ~/.ssh/known_hosts" in answer.detail
    assert "--accept-new-host-keys" in answer.detail


@pytest.mark.parametrize(
    "accepting",
    [{"accept_new_host_keys": "yes"}, {"config": "StrictHostKeyChecking accept-new"}],
    ids=["setting", "ssh_config"],
)
def test_a_new_host_key_is_accepted_where_that_is_asked_for_and_never_written(
    client: Client, accepting: dict[str, str]
) -> None:
    client.known_hosts.write_text("")
    assert client.one(**accepting).output == b"hello\n"
    assert client.known_hosts.read_text() == ""


@pytest.mark.parametrize("accepting", [{}, {"accept_new_host_keys": "yes"}], ids=["strict", "accept-new"])
def test_a_changed_host_key_is_refused_whatever_new_keys_are_accepted(
    client: Client, tmp_path: Path, accepting: dict[str, str]
) -> None:
    new_key(tmp_path / "other")
    other = (tmp_path / "other.pub").read_text()
    client.known_hosts.write_text(f"# replaced\n[127.0.0.1]:{client.server.port} {other}")
    answer = client.one(**accepting)
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
    connection_for("ssh").run([target], HELLO, Limits(settings=settings), lambda _, one: answers.append(one))
    assert [one.output for one in answers] == [b"hello\n"]


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


def test_a_certificate_beside_the_key_is_shown(client: Client, tmp_path: Path) -> None:
    new_key(tmp_path / "authority")
    new_key(tmp_path / "certified")
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "test", "-n", user()]
    subprocess.run([*sign, str(tmp_path / "certified.pub")], check=True)
    options = ("AuthorizedKeysFile none", f"TrustedUserCAKeys {tmp_path}/authority.pub")
    with sshd(tmp_path / "sshd", *options) as server:
        assert Client(tmp_path, server).one(config=f"IdentityFile {tmp_path}/certified").output == b"hello\n"


def test_a_server_that_takes_no_keys_is_told(client: Client, tmp_path: Path) -> None:
    with sshd(tmp_path / "sshd", "PubkeyAuthentication no", "PasswordAuthentication yes") as server:
        answer = Client(tmp_path, server).one()
    assert answer.unreached is Unreached.AUTH
    assert answer.detail == f"log-in as {user()} takes password; expected publickey"


# Hosts that cannot be reached


def test_a_port_where_nothing_listens_refuses(client: Client) -> None:
    answer = client.one(Target("node1", port=free_port()))
    assert answer.unreached is Unreached.REFUSED


def test_a_name_that_does_not_resolve_is_named(client: Client) -> None:
    answer = client.one(Target("node1", address="gpu001.invalid"))
    assert answer.unreached is Unreached.NAME
    assert answer.detail.startswith("gpu001.invalid does not resolve")


def test_a_name_that_a_shell_could_read_goes_no_further(client: Client, tmp_path: Path) -> None:
    target = Target("node1", address=f"$(touch${{IFS}}{tmp_path}/touched)")
    answer = client.one(target, config="ProxyCommand echo %h")
    assert answer.unreached is Unreached.NO_ROUTE
    assert not (tmp_path / "touched").exists()


def test_an_address_cannot_smuggle_in_a_line_of_ssh_config(client: Client, tmp_path: Path) -> None:
    answer = client.one(Target("node1", address=f"127.0.0.1\nProxyCommand touch {tmp_path}/touched"))
    assert answer.unreached is Unreached.NO_ROUTE
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
        answers = client.visit(Target("slow", port=port), *map(Target, ("a", "b", "c")), connect_s=1.0, fanout=2)
    assert answers.pop("slow").unreached is Unreached.TIMED_OUT
    assert [answer.output for answer in answers.values()] == [b"hello\n"] * 3


def test_a_server_that_drops_connections_is_tried_twice(client: Client) -> None:
    dropped = []
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


def test_a_server_with_several_keys_is_asked_for_the_known_one(tmp_path: Path, client: Client) -> None:
    new_key(tmp_path / "ecdsa", "ecdsa")
    with sshd(tmp_path / "sshd", f"HostKey {tmp_path}/ecdsa") as server:
        known = (tmp_path / "ecdsa.pub").read_text()
        there = Client(tmp_path, server)
        there.known_hosts.write_text(f"[127.0.0.1]:{server.port} {known}")
        assert there.one().output == b"hello\n"


# Ways


def test_a_proxy_command_carries_the_connection(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    assert client.one(config=config).output == b"hello\n"


def test_a_proxy_command_is_told_the_address_and_port_of_the_command_line(client: Client) -> None:
    config = f"ProxyCommand {sys.executable} {RELAY} %h %p"
    target = Target("node1", address="localhost", port=client.server.port)
    client.known_hosts.write_text(f"localhost {client.server.host_key}\n")
    assert client.one(target, config=f"Host node1\n HostName nowhere.invalid\n Port 1\n{config}").output == b"hello\n"


def test_a_proxy_command_that_dies_is_told_with_its_last_words_and_costs_nothing(client: Client) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    answer = client.one(config="ProxyCommand sh -c 'echo target is offline >&2; exit 7'", connect_s=30.0)
    spent_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    assert answer.unreached is Unreached.LOST
    assert answer.detail.endswith("ended with exit code 7: target is offline")
    assert spent_s < 5.0  # paramiko's own spins for all of the 30 s


def test_a_connection_dropped_behind_a_proxy_command_is_tried_twice(client: Client) -> None:
    dropped = []
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
def test_a_jump_host_that_does_not_let_in_is_what_is_told(client: Client, bastion: str, data: str) -> None:
    closed = free_port()
    config = f"Host bastion\n  {bastion.format(closed=closed)}\nHost node*\n  ProxyJump bastion\n"
    answers = client.visit(Target("node1"), Target("node2"), config=config)
    assert {answer.unreached for answer in answers.values()} == {Unreached.NO_ROUTE}
    assert all(answer.detail.startswith(data.format(closed=closed)) for answer in answers.values())


def test_a_node_that_its_jump_host_does_not_reach_is_told(client: Client) -> None:
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


@contextlib.contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server on loopback that gives every connection to `serve`, and then closes it."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    def attend(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
