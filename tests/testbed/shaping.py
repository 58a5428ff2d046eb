"""A network interface that sends no faster than a given rate: Linux's own traffic control."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from tests.testbed.node import system_program

FULL = "40gbit"
BURST = "64k"  # sent at once before the rate holds: small beside what a meter sends


@contextlib.contextmanager
def shaped(pid: int, interface: str, rate: str, towards: str = "") -> Iterator[None]:
    """What an interface, in the network of a process, sends: all of it, or what goes to one address.

    One at a time for each interface.
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
        with contextlib.suppress(subprocess.CalledProcessError):  # the node may have gone meanwhile
            _tc(pid, [f"qdisc del dev {interface} root"])


def _tc(pid: int, commands: list[str]) -> None:
    words = [system_program("nsenter"), "-t", str(pid), "-n", system_program("tc"), "-batch", "-"]
    subprocess.run(words, input="\n".join(commands), text=True, check=True, capture_output=True)
