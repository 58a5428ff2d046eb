"""The network of a small cluster: a switch in a network namespace, cables to the nodes' namespaces, and their speed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

from tests.testbed.node import BURIED_S, system_program

CONTROL = "10.231.0.1"  # the control host
NOBODY = "02:00:00:00:00:01"  # a link address that no interface has

# The switch is a bridge in its own network namespace, which is also the control host's. Its address is set explicitly:
# otherwise it is a port's address, and changes for everybody when that port's node is stopped.
SWITCH = f"""exec 2>&1
ip link set lo up
ip link add switch address 02:00:00:00:00:02 type bridge
ip addr add {CONTROL}/24 dev switch
ip link set switch up
echo ready
cat >/dev/null
"""


@contextlib.contextmanager
def switched_on() -> Iterator[subprocess.Popen[bytes]]:
    """Start the process that holds the switch's namespace; it ends when its standard input does."""
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
            greeting = switch.stdout.readline()
            if greeting != b"ready\n":
                raise RuntimeError(f"no bridge in a network namespace: {greeting.decode()}")
            yield switch
        finally:
            switch.stdin.close()
            switch.wait(BURIED_S)


def plug_in(switch: int, node: int, address: str) -> None:
    """Put a cable between a node and the switch, each given by a process in its network."""
    ip(switch, [f"link add {port(address)} type veth peer name eth0 netns {node}"])
    ip(switch, [f"link set {port(address)} master switch up", f"neigh flush to {address} dev switch nud permanent"])
    ip(node, [f"addr add {address}/24 dev eth0", "link set eth0 up"])


def unplug(switch: int, address: str) -> None:
    """Remove the cable; traffic to that address goes nowhere."""
    ip(switch, [f"link del {port(address)}"])
    silence(switch, [address])


def set_port(switch: int, address: str, state: str) -> None:
    """Set the switch's port of that node `up` or `down`."""
    ip(switch, [f"link set {port(address)} {state}"])


def silence(switch: int, addresses: Sequence[str]) -> None:
    """Drop traffic to these addresses without an answer, as for hosts that are down."""
    ip(switch, [f"neigh replace {address} lladdr {NOBODY} dev switch nud permanent" for address in addresses])


def port(address: str) -> str:
    """The switch's port for the node with that address."""
    return f"port{address.rpartition('.')[2]}"


def ip(pid: int, commands: Sequence[str]) -> None:
    """Run ip commands in the network namespace of a process."""
    command = [system_program("nsenter"), "-t", str(pid), "-n", system_program("ip"), "-batch", "-"]
    subprocess.run(command, input="\n".join(commands), text=True, check=True, capture_output=True)


FULL = "40gbit"
BURST = "64k"  # sent at once before the rate applies; small beside what a benchmark sends


@contextlib.contextmanager
def shaped(pid: int, interface: str, rate: str, towards: str = "") -> Iterator[None]:
    """Shape what an interface in a process's network sends: everything, or traffic to one address.

    Only one shaping per interface at a time.
    """
    default = 1 if towards else 2
    commands = [
        f"qdisc add dev {interface} root handle 1: htb default {default}",
        f"class add dev {interface} parent 1: classid 1:1 htb rate {FULL} quantum 60000",
        f"class add dev {interface} parent 1: classid 1:2 htb rate {rate} burst {BURST} quantum 60000",
    ]
    if towards:
        commands.append(
            f"filter add dev {interface} parent 1: protocol ip prio 1 u32 match ip dst {towards}/32 flowid 1:2"
        )
    _tc(pid, commands)
    try:
        yield
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # the node may be gone by now
            _tc(pid, [f"qdisc del dev {interface} root"])


def _tc(pid: int, commands: list[str]) -> None:
    command = [system_program("nsenter"), "-t", str(pid), "-n", system_program("tc"), "-batch", "-"]
    subprocess.run(command, input="\n".join(commands), text=True, check=True, capture_output=True)
