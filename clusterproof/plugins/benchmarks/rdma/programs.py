"""Programs that exchange a few bytes between two RDMA ports: their command lines, and what shows success.

Travels; standard library only, for Python 3.8.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from typing import Any, NamedTuple

from clusterproof.plugins.benchmarks.launchers.pipes import BoundedOutput
from clusterproof.plugins.benchmarks.rdma.ports import EFA, INFINIBAND, ROCE

FI_PINGPONG, IBV, PERFTEST = "fi_pingpong", "ibv_rc_pingpong", "ib_send_lat"
OF_FABRIC = {EFA: (FI_PINGPONG,), INFINIBAND: (IBV, PERFTEST), ROCE: (IBV, PERFTEST)}
PACKAGES = {
    FI_PINGPONG: "the EFA installer's libfabric or the package libfabric-bin",
    IBV: "the package ibverbs-utils",
    PERFTEST: "perftest",
}
PLACES = ("/opt/amazon/efa/bin",)
ARRIVED = {  # a row of the client's table
    FI_PINGPONG: re.compile(r"^[ \t]{0,8}[^\s=]{1,16}[ \t]{1,16}(\d{1,12})[ \t]{1,16}=\1\s", re.MULTILINE),
    IBV: re.compile(r"^\d+ bytes in [\d.]+ seconds", re.MULTILINE),
    PERFTEST: re.compile(r"^[ \t]{0,8}\d{1,12}[ \t]{1,24}\d{1,12}[ \t]{1,24}\d{1,9}\.\d{1,9}\s", re.MULTILINE),
}
REFUSED = ("Connection refused", "Couldn't connect to", "Unable to init the socket connection")
CONTROL = (  # messages on the TCP connection by which two programs set up an exchange
    *REFUSED, "failed to connect", "ctrl/", "no data or remote connection closed", "Address already in use",
    "Couldn't listen to port", "Couldn't read remote address", "Couldn't read/write remote address",
    "Couldn't send local address", "Unable to open file descriptor for socket connection",
    "Failed to exchange data between server and clients",
)  # fmt: skip
TIMES, SIZE_BYTES = 10, 64
MAX_TEXT = 600  # characters of a failed program's last output
MAX_OUTPUT = 16 * 1024


class Ended(NamedTuple):
    """How a program ended, None if it was killed, and its last output."""

    exit: int | None
    text: str

    def is_refused(self) -> bool:
        """Whether the other end did not listen yet."""
        return bool(self.exit) and any(phrase in self.text for phrase in REFUSED)

    def has_failed(self) -> bool:
        """Whether it exited by itself with an error."""
        return bool(self.exit)

    def has_not_met(self) -> bool:
        """Whether it failed on the connection by which both ends set up an exchange."""
        return self.has_failed() and any(phrase in self.text for phrase in CONTROL)


def have_not_met(server: Ended, client: Ended, is_left: bool) -> bool:
    """Whether nothing was exchanged because the two ends did not connect, or lost it: no evidence about devices.

    `is_left`: the server had ended before its client was killed. It may have served another client.
    """
    failed = [end for end in (server, client) if end.has_failed()]
    others = [end for end in failed if not end.has_not_met()]
    is_silent = all((end.exit or 0) > 0 and not end.text.strip() for end in others)  # failed handshake
    return (client.exit is not None or is_left) and len(others) < len(failed) and is_silent


class Running:
    """A running program and its output; or none if it cannot be started."""

    def __init__(self, command: list[str]) -> None:
        self._output = BoundedOutput(MAX_OUTPUT)
        self._began = time.monotonic()
        self.seconds = float("inf")  # its duration
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for part in iter(lambda: os.read(self._process.stdout.fileno(), 65536), b""):  # type: ignore[union-attr]
            self._output.add(part)
        self.seconds = time.monotonic() - self._began

    def ended(self, within_s: float) -> Ended:
        """How it ended, waiting at most that long."""
        exit_status: int | None
        try:
            exit_status = self._process.wait(max(0.0, within_s))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            exit_status = None
        self._reader.join(1.0)
        return Ended(exit_status, self._output.kept().decode("utf-8", "replace")[-MAX_TEXT:])


def programs(chosen: str) -> dict[str, str]:
    """The paths of this node's programs; of the chosen one, if it is any of these."""
    if chosen:
        return {os.path.basename(chosen): chosen} if shutil.which(chosen) else {}
    paths = {name: shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES])) for name in PACKAGES}
    return {name: path for name, path in paths.items() if path}


def common(fabric: str, own: dict[str, str], others: dict[str, str]) -> str:
    """The program for a fabric that both nodes have; empty if there is none."""
    return next((name for name in OF_FABRIC[fabric] if name in own and name in others), "")


def words(
    path: str, name: str, port: dict[str, Any], tcp_port: int, options: list[str], address: str = ""
) -> list[str]:
    """The command line of one end: of the waiting one, or of the other with its address."""
    device, gid = port["device"], port["gid"]
    if name == FI_PINGPONG:
        provider = [] if any(word.startswith("-p") for word in options) else ["-p", "efa"]
        where = ["-P", str(tcp_port), address] if address else ["-B", str(tcp_port)]
        counts = ["-I", str(TIMES), "-S", str(SIZE_BYTES)]
        return [path, *provider, "-e", "rdm", "-d", f"{device}-rdm", *counts, *options, *where]
    counts = ["-n", str(TIMES), "-s", str(SIZE_BYTES), *(["-F"] if name == PERFTEST else [])]
    index = [] if gid is None else ["-x" if name == PERFTEST else "-g", str(gid)]
    port_options = ["-d", device, "-i", str(port["port"]), *index, "-p", str(tcp_port)]
    return [path, *port_options, *counts, *options, *([address] if address else [])]


def has_arrived(name: str, ended: Ended) -> bool:
    """Whether a client's output shows that its bytes came back."""
    return ended.exit == 0 and bool(ARRIVED[name].search(ended.text))
