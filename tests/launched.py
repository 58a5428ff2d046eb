"""Small meters, and what the tests of the launchers have in common."""

from __future__ import annotations

import re
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.connection import Limits
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.launchers.launcher import Launcher
from clusterproof.plugins.meters.meter import Meter, MeterSettings, Output
from clusterproof.plugins.meters.reading import Reading
from clusterproof.plugins.pairwise.model import Pair

PATIENT = Limits(connect_s=10.0, answer_s=30.0)
SENDS = (
    "import socket as s,sys;c=s.create_connection((sys.argv[1],int(sys.argv[2])));c.sendall(bytes({count}));"
    "c.shutdown(1);print('rate',c.recv(9).decode())"
)
TAKES = (
    "import socket as s,sys;d=s.create_server(('',int(sys.argv[1])));c,_=d.accept();n=0\n"
    "while True:\n r=c.recv(65536);n+=len(r)\n if not r:break\n"
    "c.sendall(str(n).encode());print('took',n)"
)


def sending(count: int = 1_000_000, server: str = "", client: str = "") -> Meter:
    """A meter of two ends that sends so many bytes; shell commands that run before the ends themselves."""
    python = shlex.quote(sys.executable)
    return Meter(
        "sending",
        read_sent,
        server=lambda _, port: f"{server or ':'}; exec {python} -c {shlex.quote(TAKES)} {port}",
        client=lambda _, address, port: (
            f"{client or ':'}; exec {python} -c {shlex.quote(SENDS.format(count=count))} {address} {port}"
        ),
    )


def read_sent(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """What the client said of what it sent, and by which network."""
    client = outputs[0]
    if client.exit is None:
        return Reading(problem="did not end in its time")
    found = re.search(r"rate (\d+)", client.text)
    if client.exit or not found:
        return Reading(problem=f"ended with {client.exit}: {client.text.strip()[-200:]}")
    network = ",".join(sorted(name for name, sent in client.sent_bytes.items() if sent >= int(found[1])))
    return Reading(busbw_gb_per_s=int(found[1]) / 1e9, size_bytes=int(found[1]), network=network)


def cluster_of(addresses: Mapping[str, str], connection: str, **settings: str) -> Cluster:
    """A cluster of these nodes."""
    targets = tuple(Target(name, address) for name, address in addresses.items())
    return Cluster("testbed", connection, targets, settings)


def measured(launcher: Launcher, pairs: Sequence[Pair]) -> dict[str, Reading]:
    """One round: the reading of every pair; none is told twice."""
    told: dict[str, Reading] = {}
    lock = threading.Lock()

    def keep(pair: Pair, reading: Reading) -> None:
        with lock:
            assert str(pair) not in told
            told[str(pair)] = reading

    launcher.measure(pairs, keep)
    assert set(told) == set(map(str, pairs))
    return told


def of_run(root: Path = Path("/")) -> list[str]:
    """The processes under that root's /proc that some run has started."""
    found = []
    for process in (root / "proc").glob("[0-9]*"):
        try:
            if b"\0CLUSTERPROOF_RUN=" in b"\0" + (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
