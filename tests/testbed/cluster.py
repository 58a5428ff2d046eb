"""A small cluster on this machine: fake nodes with real sshds on a private network."""

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

from tests.testbed import sshd, wires
from tests.testbed.image import NodeImage
from tests.testbed.node import Node, boot, system_program
from tests.testbed.sshd import USER
from tests.testbed.wires import shaped

__all__ = ["USER", "Testbed", "testbed"]

REFUSING_PORT = 9
SSHD_S = 600.0
CLONE_NEWNET = 0x40000000


@dataclass(slots=True)
class Testbed:
    """A running cluster. `home` is a home folder that contains .ssh/config, known_hosts and identity."""

    __test__ = False  # pytest would take it for a test class

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
        timeout: float = 600.0,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program of this machine on the cluster's network, with `home` as its home."""
        environment = {**os.environ, "HOME": str(self.home), **(env or {})}
        command = self.command(argv)
        return subprocess.run(command, input=input, capture_output=True, timeout=timeout, env=environment, check=False)

    def ssh(self, name: str, command: str, timeout: float = 600.0) -> subprocess.CompletedProcess[bytes]:
        """Run a command on a node with OpenSSH's own client."""
        return self.run(["ssh", "-F", str(self.ssh_config), name, command], timeout=timeout)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Put the calling thread, and threads it starts, on the cluster's network inside the block."""
        with open("/proc/thread-self/ns/net") as before, self.network.open() as inside:  # noqa: PTH123
            set_network(inside.fileno())
            try:
                yield
            finally:
                set_network(before.fileno())

    @contextlib.contextmanager
    def slow_node(self, name: str, rate: str) -> Iterator[None]:
        """Limit all that a node sends and receives to `rate` ("80mbit") each way."""
        with self.slow_group([name], rate):
            yield

    @contextlib.contextmanager
    def slow_group(self, names: Sequence[str], rate: str) -> Iterator[None]:
        """Slow each of these nodes."""
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(shaped(self.nodes[name].pid, "eth0", rate))
                stack.enter_context(shaped(self._switch.pid, wires.port(self.addresses[name]), rate))
            yield

    @contextlib.contextmanager
    def slow_link(self, node: str, other: str, rate: str) -> Iterator[None]:
        """Limit traffic between two nodes to `rate` each way, and leave their other traffic as it was."""
        with (
            shaped(self.nodes[node].pid, "eth0", rate, self.addresses[other]),
            shaped(self.nodes[other].pid, "eth0", rate, self.addresses[node]),
        ):
            yield

    def let_nodes_log_in_to_each_other(self) -> None:
        """As root, by address: each node gets the key that all accept, and knows the others' host keys."""
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
        """Power a node off: its address falls silent, and its connections break without notice."""
        wires.unplug(self._switch.pid, self.addresses[name])
        self.nodes[name].power_off()

    def start(self, name: str, image: NodeImage) -> None:
        """Power on a node that is off or new, with its host key from `home`."""
        key = (self.home / f"{name}.key").read_text()
        made = sshd.with_sshd(image, key, self.identity.with_name("identity.pub").read_text().strip())
        self.nodes[name] = boot(made, name)
        wires.plug_in(self._switch.pid, self.nodes[name].pid, self.addresses[name])
        self.start_sshd(name)

    def cut_wire(self, name: str) -> None:
        """Drop all traffic between a node and the switch, without notice to either end."""
        wires.set_port(self._switch.pid, self.addresses[name], "down")

    def mend_wire(self, name: str) -> None:
        """Let traffic through again."""
        wires.set_port(self._switch.pid, self.addresses[name], "up")

    def know_host_key(self, name: str) -> None:
        """Add the node's current host key to the known hosts of the control host."""
        lines = self.known_hosts.read_text().splitlines()
        others = [line for line in lines if line.split()[0] != self.addresses[name]]
        key = (self.home / f"{name}.key.pub").read_text().strip()
        self.known_hosts.write_text("\n".join([*others, f"{self.addresses[name]} {key}"]) + "\n")

    def replace_host_key(self, name: str) -> None:
        """Give a node's sshd a new host key that known_hosts does not contain."""
        key = self.home / f"{name}.key"
        sshd.new_key(key)
        (self.nodes[name].root / sshd.HOST_KEY.lstrip("/")).write_text(key.read_text())
        self.nodes[name].kill(self._sshds[name])
        self.start_sshd(name)

    def set_environment(self, name: str, **variables: str) -> None:
        """Set the environment of programs started over ssh from now on."""
        assignments = " ".join(f'"{key}={value}"' for key, value in variables.items())
        self.configure_sshd(name, f"SetEnv {assignments}\n")

    def configure_sshd(self, name: str, lines: str) -> None:
        """Put these lines first in the configuration of a node's sshd, and restart it."""
        config = self.nodes[name].root / sshd.CONFIG.lstrip("/")
        config.write_text(lines + config.read_text())
        self.nodes[name].kill(self._sshds[name])
        self.start_sshd(name)

    def start_sshd(self, name: str) -> None:
        node = self.nodes[name]
        process = node.start(["/usr/sbin/sshd", "-D", "-f", sshd.CONFIG])
        self._sshds[name] = process
        deadline = time.monotonic() + SSHD_S
        while not sshd.listens(node.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                tested = node.run(["/usr/sbin/sshd", "-t", "-f", sshd.CONFIG])
                raise RuntimeError(f"sshd of {name} does not listen: {(tested.stdout + tested.stderr).decode()}")
            time.sleep(0.002)


@contextlib.contextmanager
def testbed(
    images: Mapping[str, NodeImage],
    *,
    user: str = "root",  # noqa: PT028
    silent: Sequence[str] = (),  # noqa: PT028
    refusing: Sequence[str] = (),  # noqa: PT028
) -> Iterator[Testbed]:
    """Run a cluster of these nodes for the block; its ssh_config logs in as `user`.

    At the address of a `silent` member nothing answers, not even to refuse; the port of a `refusing` member refuses.
    Any number of clusters can run in parallel: each has its own networks.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(8))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clusterproof-testbed-")))
        (home / ".ssh").mkdir(mode=0o700)
        sshd.new_key(home / ".ssh" / "identity")
        addresses = {name: f"10.231.0.{10 + number}" for number, name in enumerate([*images, *silent])}
        addresses |= dict.fromkeys(refusing, wires.CONTROL)
        switch = stack.enter_context(wires.switched_on())
        bed = Testbed(home, {}, dict(images), addresses, user, switch)
        stack.callback(lambda: list(pool.map(Node.power_off, bed.nodes.values())))
        host_keys = dict(zip(images, pool.map(lambda name: sshd.new_key(home / f"{name}.key"), images), strict=True))

        _all(pool, lambda name: bed.start(name, images[name]), images)
        wires.silence(switch.pid, [addresses[name] for name in silent])
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


def _all(pool: ThreadPoolExecutor, act: Callable[[str], None], names: Mapping[str, object]) -> None:
    """Do this for all names at once; raise the first error when all are done."""
    for done in [pool.submit(act, name) for name in names]:
        done.result()


def set_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
