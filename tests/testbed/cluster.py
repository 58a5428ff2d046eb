"""A small cluster on this machine: fake nodes with real sshds on a network that only they can see."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed import sshd
from tests.testbed.image import NodeImage
from tests.testbed.node import LEAVE_S, Node, boot, system_program
from tests.testbed.shaping import shaped
from tests.testbed.sshd import USER

__all__ = ["USER", "Testbed", "testbed"]

CONTROL = "10.231.0.1"  # the host from which the cluster is looked at
REFUSING_PORT = 9
NOBODY = "02:00:00:00:00:01"  # a link address that no interface has
SSHD_S = 10.0
CLONE_NEWNET = 0x40000000

# The switch is a bridge in a network namespace of its own, which is also the control host's. Its address is set: else
# it is that of one of its ports, and changes for everybody when that port's node is stopped.
SWITCH = f"""exec 2>&1
ip link set lo up
ip link add switch address 02:00:00:00:00:02 type bridge
ip addr add {CONTROL}/24 dev switch
ip link set switch up
echo ready
cat >/dev/null
"""


@dataclass(slots=True)
class Testbed:
    """A running cluster. `home` is a home folder with .ssh/config, known_hosts and identity in it."""

    __test__ = False  # its name looks like that of a class of tests

    home: Path
    nodes: dict[str, Node]
    images: dict[str, NodeImage]
    addresses: dict[str, str]
    user: str
    _switch: subprocess.Popen[bytes]
    _sshds: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def ssh_config(self) -> Path:
        return self.home / ".ssh" / "config"

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    @property
    def identity(self) -> Path:
        return self.home / ".ssh" / "identity"

    @property
    def network(self) -> Path:
        """The control host's network namespace: `nsenter --net=…` joins it."""
        return Path(f"/proc/{self._switch.pid}/ns/net")

    def address(self, name: str) -> str:
        return self.addresses[name]

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on the control host: this machine, on the cluster's network."""
        return [system_program("nsenter"), f"--net={self.network}", "--", *argv]

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - subprocess's own word for it
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program of this machine on the cluster's network, at home in `home`."""
        environment = {**os.environ, "HOME": str(self.home), **(env or {})}
        words = self.command(argv)
        return subprocess.run(words, input=input, capture_output=True, timeout=timeout, env=environment, check=False)

    def ssh(self, name: str, command: str, timeout: float = 30.0) -> subprocess.CompletedProcess[bytes]:
        """Run a command on a node with OpenSSH's own client."""
        return self.run(["ssh", "-F", str(self.ssh_config), name, command], timeout=timeout)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """The calling thread, and threads that it starts, are on the cluster's network inside the block."""
        with open("/proc/thread-self/ns/net") as before, self.network.open() as inside:  # noqa: PTH123
            set_network(inside.fileno())
            try:
                yield
            finally:
                set_network(before.fileno())

    @contextlib.contextmanager
    def slow_node(self, name: str, rate: str) -> Iterator[None]:
        """All that a node sends and is sent goes at most at `rate` ("80mbit"), each way."""
        with self.slow_group([name], rate):
            yield

    @contextlib.contextmanager
    def slow_group(self, names: Sequence[str], rate: str) -> Iterator[None]:
        """Each of these nodes is slow."""
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(shaped(self.nodes[name].pid, "eth0", rate))
                stack.enter_context(shaped(self._switch.pid, f"port{_number(self.addresses[name])}", rate))
            yield

    @contextlib.contextmanager
    def slow_link(self, one: str, other: str, rate: str) -> Iterator[None]:
        """What two nodes send each other goes at most at `rate`, each way; all else of theirs as it was."""
        with (
            shaped(self.nodes[one].pid, "eth0", rate, self.addresses[other]),
            shaped(self.nodes[other].pid, "eth0", rate, self.addresses[one]),
        ):
            yield

    def let_nodes_log_in_to_each_other(self) -> None:
        """As root, by their addresses: each has the key that all let in, and knows the others' host keys."""
        for node in self.nodes.values():
            own = node.root / "root/.ssh"
            own.mkdir(mode=0o700, exist_ok=True)
            for name, text in (
                ("id_ed25519", self.identity.read_text()),
                ("known_hosts", self.known_hosts.read_text()),
            ):
                (own / name).write_text(text)
                (own / name).chmod(0o600)

    def stop(self, name: str) -> None:
        """Power a node off: its address falls silent, and its connections break without a word."""
        ip(
            self._switch.pid,
            [f"link del port{_number(self.addresses[name])}", _nobody_at(self.addresses[name])],
        )
        self.nodes[name].power_off()

    def replace_host_key(self, name: str) -> None:
        """Give a node's sshd a new host key, that known_hosts does not know."""
        key = self.home / f"{name}.key"
        sshd.new_key(key)
        (self.nodes[name].root / sshd.HOST_KEY.lstrip("/")).write_text(key.read_text())
        self.nodes[name].kill(self._sshds[name])
        self.start_sshd(name)

    def set_environment(self, name: str, **variables: str) -> None:
        """What programs that are started over ssh find in their environment there, from now on."""
        config = self.nodes[name].root / sshd.CONFIG.lstrip("/")
        data = " ".join(f'"{key}={value}"' for key, value in variables.items())
        config.write_text(f"SetEnv {data}\n{config.read_text()}")
        self.nodes[name].kill(self._sshds[name])
        self.start_sshd(name)

    def start_sshd(self, name: str) -> None:
        node = self.nodes[name]
        process = node.start(["/usr/sbin/sshd", "-D", "-f", sshd.CONFIG])
        self._sshds[name] = process
        deadline = time.monotonic() + SSHD_S
        while not sshd.listens(node.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                said = node.run(["/usr/sbin/sshd", "-t", "-f", sshd.CONFIG])
                raise RuntimeError(f"sshd of {name} does not listen: {(said.stdout + said.stderr).decode()}")
            time.sleep(0.002)


@contextlib.contextmanager
def testbed(
    images: Mapping[str, NodeImage],
    *,
    user: str = "root",  # noqa: PT028
    silent: Sequence[str] = (),  # noqa: PT028
    refusing: Sequence[str] = (),  # noqa: PT028
) -> Iterator[Testbed]:
    """A cluster of these nodes for as long as the block runs; its ssh_config logs in as `user`.

    `silent` are members at whose address nothing answers, not even to refuse; `refusing` are members
    whose port refuses. Any number of clusters can run side by side: each has networks of its own.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clusterproof-testbed-")))
        (home / ".ssh").mkdir(mode=0o700)
        identity = sshd.new_key(home / ".ssh" / "identity")
        addresses = {name: f"10.231.0.{10 + number}" for number, name in enumerate([*images, *silent])}
        addresses |= dict.fromkeys(refusing, CONTROL)
        switch = stack.enter_context(switched_on())
        bed = Testbed(home, {}, dict(images), addresses, user, switch)
        stack.callback(lambda: list(pool.map(Node.power_off, bed.nodes.values())))
        host_keys = dict(zip(images, pool.map(lambda name: sshd.new_key(home / f"{name}.key"), images), strict=True))

        def start(name: str) -> None:
            image = sshd.with_sshd(images[name], (home / f"{name}.key").read_text(), identity)
            bed.nodes[name] = boot(image, name, network=True)
            _plug_in(bed, name)
            bed.start_sshd(name)

        _all(pool, start, images)
        ip(
            switch.pid,
            [_nobody_at(addresses[name]) for name in silent],
        )
        bed.known_hosts.write_text("".join(f"{addresses[name]} {key}\n" for name, key in host_keys.items()))
        bed.ssh_config.write_text("".join(_ssh_config(bed, name, name in refusing) for name in addresses))
        yield bed


testbed.__test__ = False  # type: ignore[attr-defined]  # its name looks like a test's


def _ssh_config(bed: Testbed, name: str, refusing: bool) -> str:
    return f"""Host {name}
  HostName {bed.addresses[name]}
  Port {REFUSING_PORT if refusing else sshd.PORT}
  User {bed.user}
  IdentityFile {bed.identity}
  IdentitiesOnly yes
  UserKnownHostsFile {bed.known_hosts}
  GlobalKnownHostsFile /dev/null
  BatchMode yes
"""


@contextlib.contextmanager
def switched_on() -> Iterator[subprocess.Popen[bytes]]:
    """The process that holds the switch's namespace; it ends when its standard input does."""
    switch = subprocess.Popen(
        [system_program("unshare"), "--net", "/bin/sh", "-e", "-c", SWITCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with switch:
        assert switch.stdin
        assert switch.stdout
        try:
            said = switch.stdout.readline()
            if said != b"ready\n":
                raise RuntimeError(f"no bridge in a network namespace: {said.decode()}")
            yield switch
        finally:
            switch.stdin.close()
            switch.wait(LEAVE_S)


def _plug_in(bed: Testbed, name: str) -> None:
    """Put a cable between a node and the switch."""
    pid, address = bed.nodes[name].pid, bed.addresses[name]
    port = f"port{_number(address)}"
    ip(
        bed._switch.pid,
        [f"link add {port} type veth peer name eth0 netns {pid}", f"link set {port} master switch up"],
    )
    ip(pid, ["link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"])


def _number(address: str) -> str:
    return address.rpartition(".")[2]


def _nobody_at(address: str) -> str:
    """What is sent to that address goes nowhere, and nothing comes back: as of a host that is down."""
    return f"neigh replace {address} lladdr {NOBODY} dev switch nud permanent"


def ip(pid: int, commands: Sequence[str]) -> None:
    """Run these ip commands in the network namespace of a process."""
    words = [system_program("nsenter"), "-t", str(pid), "-n", system_program("ip"), "-batch", "-"]
    subprocess.run(words, input="\n".join(commands), text=True, check=True, capture_output=True)


def _all(pool: ThreadPoolExecutor, act: Callable[[str], None], names: Mapping[str, object]) -> None:
    """Do it for every name at once; raise the first error when all are done."""
    for done in [pool.submit(act, name) for name in names]:
        done.result()


def set_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
