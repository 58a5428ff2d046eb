"""Small meters and other code that the launchers' tests share."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.benchmarks.launchers import Launcher, MeterCampaign, PairOrGroup
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.evidence.pairs import Reading
from clusterproof.plugins.transport import Limits
from tests.testbed.cluster import Testbed
from tests.testbed.node import Node
from tests.testbed.ranks import ALL_REDUCE

SOON_S = 600.0
PATIENT = Limits(connect_s=10.0, answer_s=30.0)
SLOW_WIRE, SLOW_GB_PER_S = (
    "8mbit",
    0.002,
)  # twice such a network's rate, and less than a busy machine sends by any other
SENDS = (
    "import socket as s,sys;c=s.create_connection((sys.argv[1],int(sys.argv[2])));c.sendall(bytes({count}));"
    "c.shutdown(1);print('rate',c.recv(9).decode())"
)
TAKES = (
    "import socket as s,sys;d=s.create_server(('',int(sys.argv[1])));c,_=d.accept();n=0\n"
    "while True:\n r=c.recv(65536);n+=len(r)\n if not r:break\n"
    "c.sendall(str(n).encode());print('took',n)"
)


def over_ssh(bed: Testbed, meter: Meter, run_s: float = 600.0, settings: MeterSettings | None = None) -> MeterCampaign:
    """A campaign that uses names of ssh_config, which the nodes themselves do not know."""
    cluster = cluster_of(dict.fromkeys(bed.addresses, ""), "ssh", config=str(bed.ssh_config))
    limits = replace(PATIENT, settings=dict(cluster.settings))
    return MeterCampaign(meter, settings or MeterSettings(ranks_per_node=2), cluster, limits, run_s)


def sending(count: int = 1_000_000, server: str = "", client: str = "") -> Meter:
    """A two-ended meter that sends this many bytes, after these shell commands."""
    return Meter(
        "sending",
        read_sent,
        server=lambda _, port: f"{server or ':'}; exec /usr/bin/python3 -c {shlex.quote(TAKES)} {port}",
        client=lambda _, address, port: (
            f"{client or ':'}; exec /usr/bin/python3 -c {shlex.quote(SENDS.format(count=count))} {address} {port}"
        ),
    )


def read_sent(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The client's report of what it sent, and over which network."""
    client = outputs[0]
    if client.exit is None:
        return Reading(problem="did not end in its time")
    match = re.search(r"rate (\d+)", client.text)
    if client.exit or not match:
        return Reading(problem=f"ended with {client.exit}: {client.text.strip()[-200:]}")
    network = ",".join(sorted(name for name, sent in client.sent_bytes.items() if sent >= int(match[1])))
    return Reading(busbw_gb_per_s=int(match[1]) / 1e9, size_bytes=int(match[1]), network=network)


def all_reduce(*options: str, before: str = ":") -> Meter:
    """The stand-in for all_reduce_perf with a minimal reader; each rank runs this shell command first."""
    arguments = options or ("-b", "1M", "-e", "1M", "-n", "2")
    return Meter("all_reduce", read_table, ranks=lambda _: f"{before}; exec {ALL_REDUCE} {shlex.join(arguments)}")


def read_table(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The bus bandwidth in the table's last row."""
    (output,) = outputs
    if output.exit is None:
        return Reading(problem="did not end in its time")
    rows = re.findall(r"^ *(\d+) +\d+ +float +sum +-1 +\S+ +\S+ +(\S+) +(\d+) ", output.text, re.MULTILINE)
    if output.exit or not rows:
        return Reading(problem=f"ended with {output.exit}: {output.text.strip()[-300:]}")
    size, busbw, wrong = rows[-1]
    network = ",".join(sorted(name for name, sent in output.sent_bytes.items() if sent >= int(size)))
    return Reading(float(busbw), size_bytes=int(size), is_correct=wrong == "0", network=network)


def cluster_of(addresses: Mapping[str, str], connection: str, name: str = "testbed", **settings: str) -> Cluster:
    """A cluster of these nodes."""
    targets = tuple(Target(node, address) for node, address in addresses.items())
    return Cluster(name, connection, targets, settings)


def measured(launcher: Launcher, together: Sequence[PairOrGroup]) -> dict[str, Reading]:
    """Measure one round: every pair or group, each once."""
    readings: dict[str, Reading] = {}
    lock = threading.Lock()

    def keep(each: PairOrGroup, reading: Reading) -> None:
        with lock:
            assert str(each) not in readings
            readings[str(each)] = reading

    launcher.measure(together, keep)
    assert set(readings) == set(map(str, together))
    return readings


def of_run(root: Path) -> list[str]:
    """The processes under that root's /proc that any run has started."""
    commands = []
    for process in (root / "proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            if b"\0CLUSTERPROOF_RUN=" in b"\0" + (process / "environ").read_bytes() or b"clusterproof_run" in command:
                commands.append(command.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return commands


def are_soon_quiet(*nodes: Node) -> bool:
    """Whether these nodes are soon free of processes of any run."""
    until = time.monotonic() + SOON_S
    while (left := [command for node in nodes for command in of_run(node.root)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
    return True


def wait_for(file: Path) -> None:
    """Wait until a node has created a file, and remove it."""
    until = time.monotonic() + SOON_S
    while not file.exists():
        assert time.monotonic() < until, file
        time.sleep(0.05)
    with contextlib.suppress(OSError):
        file.unlink()
