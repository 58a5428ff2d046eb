"""A control plane with several nodes: hosts with their own names and networks, and this machine's files."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.cluster import set_network
from tests.testbed.kubernetes.bed import PATHS, RIGHTS, left
from tests.testbed.kubernetes.control_plane import ControlPlane, control_plane, scheduler
from tests.testbed.kubernetes.machine import Machine, machine
from tests.testbed.node import system_program
from tests.testbed.wires import CONTROL, ip, shaped, switched_on

HOST = 'set -e; hostname "$0"; echo ready; cat >/dev/null'


@dataclass(frozen=True)
class Nodes:
    """The control plane and its nodes."""

    plane: ControlPlane
    machines: dict[str, Machine]
    pids: dict[str, int]
    switch: int

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Put the calling thread, and what it starts, on the nodes' network inside the block."""
        with _joined(self.switch):
            yield

    def left(self) -> list[str]:
        """What remains of a run in the namespace."""
        return left(self.plane)

    @contextlib.contextmanager
    def unplugged(self, name: str) -> Iterator[None]:
        """Nothing goes to a node or comes from it."""
        port = f"port{dict(_addresses(sorted(self.machines)))[name].rpartition('.')[2]}"
        ip(self.switch, [f"link set {port} down"])
        try:
            yield
        finally:
            ip(self.switch, [f"link set {port} up"])

    @contextlib.contextmanager
    def slow(self, name: str, rate: str) -> Iterator[None]:
        """Limit all that a node sends to `rate` ("80mbit")."""
        with shaped(self.pids[name], "eth0", rate):
            yield


@contextlib.contextmanager
def nodes(names: Sequence[str], devices: Sequence[str] = ()) -> Iterator[Nodes]:
    """Start all nodes, with a scheduler; their containers get the `devices`."""
    folder = Path(tempfile.mkdtemp(prefix="k8s-"))
    with contextlib.ExitStack() as stack:
        stack.callback(_removed, folder)
        switch = stack.enter_context(switched_on()).pid
        with _joined(switch):
            plane = stack.enter_context(control_plane(folder, address=CONTROL))
            for part in RIGHTS:
                plane.call("POST", f"{PATHS[part['kind']]}?fieldValidation=Strict", part)
            hosts = {name: stack.enter_context(_host(switch, name, address)) for name, address in _addresses(names)}
            machines: dict[str, Machine] = {}

            def started(name: str, address: str) -> contextlib.AbstractContextManager[Machine]:
                (folder / name).mkdir()
                enter = [system_program("nsenter"), "-t", str(hosts[name]), "-n", "-u", "--"]
                made = machine(plane, folder / name, name, address, enter, devices)
                machines[name] = made.__enter__()
                return made

            with ThreadPoolExecutor(len(names)) as pool:
                for done in [pool.submit(started, *row) for row in _addresses(names)]:
                    stack.push(done.result())
            stack.enter_context(scheduler(plane))
        yield Nodes(plane, machines, hosts, switch)


def _addresses(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, f"10.231.0.{10 + number}") for number, name in enumerate(names)]


@contextlib.contextmanager
def _joined(pid: int) -> Iterator[None]:
    with open("/proc/thread-self/ns/net") as before, open(f"/proc/{pid}/ns/net") as inside:  # noqa: PTH123
        set_network(inside.fileno())
        try:
            yield
        finally:
            set_network(before.fileno())


@contextlib.contextmanager
def _host(switch: int, name: str, address: str) -> Iterator[int]:
    """A host on the switch; yields the process that holds its namespaces."""
    command = [system_program("unshare"), "--net", "--uts", "/bin/sh", "-c", HOST, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as host:
        assert host.stdin
        assert host.stdout
        assert host.stdout.readline() == b"ready\n"
        port = f"port{address.rpartition('.')[2]}"
        ip(switch, [f"link add {port} type veth peer name eth0 netns {host.pid}", f"link set {port} master switch up"])
        ip(host.pid, ["link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up"])
        yield host.pid
        host.stdin.close()


def _removed(folder: Path) -> None:
    if f" {folder}/" not in Path("/proc/mounts").read_text():
        shutil.rmtree(folder, ignore_errors=True)
