"""The two ends of a meter on this machine, as a launcher starts them."""

from __future__ import annotations

import contextlib
import socket
import subprocess

from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output
from clusterproof.plugins.evidence.pairs import Reading
from tests.testbed.needs import SYSTEM_PATH
from tests.transport.loopback import free_port

GB = 10**9


def start(script: str, **environment: str) -> subprocess.Popen[str]:
    variables = {"PATH": SYSTEM_PATH, **environment}
    return subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
    )


def ended(process: subprocess.Popen[str]) -> Output:
    text, _ = process.communicate(timeout=600)
    return Output(text, process.returncode)


def measured(meter: Meter, settings: MeterSettings) -> tuple[Reading, tuple[Output, Output]]:
    """Start the client before its server, as launchers cannot order them."""
    assert meter.client
    assert meter.server
    port = free_port()
    client = start(meter.client(settings, "127.0.0.1", port))
    server = start(meter.server(settings, port))
    outputs = (ended(client), ended(server))
    return meter.read(settings, outputs), outputs


def connected(port: int) -> bool:
    """Connect to a server, as any user may, and leave; whether it listens."""
    with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False
