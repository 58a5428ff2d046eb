"""A message through each EFA device and back to this node: `fi_pingpong` with shared memory switched off."""

from __future__ import annotations

import re
import socket
import time

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.agent.tools import Tool, find
from clusterproof.plugins.benchmarks.load.tool import environment, folders, named, output_of

INFO = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")
EXCHANGE = ("fi_pingpong", "-e", "rdm", "-p", "efa", "-I", "200", "-S", "1048576")
ON_THE_DEVICE = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}  # else a message to the same host never reaches it
OWN = ("/opt/amazon/efa/bin",)  # before the distribution's libfabric, which need not know EFA
HERE = "127.0.0.1"
DOMAIN = re.compile(r"^ *domain: (\S{1,100}) *$", re.MULTILINE)
INFO_S, LISTEN_S, EXCHANGE_S, LINGER_S = 20.0, 3.0, 8.0, 1.0
LOOK_S = 0.02
MAX_WORDS = 2000  # of what either end prints
MAX_DOMAINS = 64
LISTENING = "0A"  # in /proc/net/tcp


def read(node: Node) -> object:
    """What the two ends print, domain by domain."""
    own = (*folders(node), *OWN)
    program = find(node, "fi_pingpong", own, named(node))
    data = output_of(node, INFO, find(node, "fi_info", own, named(node)), INFO_S)
    names = [name for name in dict.fromkeys(DOMAIN.findall(str(data["output"]))) if not name.endswith("-dgrm")]
    if not names and data["exit"]:
        return {"none": " ".join(str(data["output"]).split())[:200]}
    exchanges = [{"domain": name, **exchanged(node, program, name)} for name in names[:MAX_DOMAINS]]
    return {"command": " ".join(EXCHANGE), "domains": exchanges}


def exchanged(node: Node, program: str, domain: str) -> dict[str, object]:
    """One exchange: how the client ended (null: it did not, or there was no server), and what both ends said."""
    words, port = (*EXCHANGE, "-d", domain), free_port()
    variables = {**environment(node), **ON_THE_DEVICE}
    server = Tool(node, *words, "-B", port, program=program, environment=variables)
    if not await_listener(server, port):
        return {"exit": None, "output": "", "server": spoken(server, LOOK_S)[0]}
    client = Tool(node, *words, "-P", port, HERE, program=program, environment=variables)
    output, has_ended = spoken(client, EXCHANGE_S)
    return {"exit": client.exit if has_ended else None, "output": output, "server": spoken(server, LINGER_S)[0]}


def spoken(tool: Tool, timeout_s: float) -> tuple[str, bool]:
    """What it prints until it ends or is ended, and whether it ended by itself."""
    output = bytearray()
    has_ended = True
    try:
        for chunk in tool.chunks(timeout_s):
            output += chunk[: MAX_WORDS - len(output)]
    except Broke:
        has_ended = False
    return output.decode("utf-8", "replace"), has_ended


def free_port() -> str:
    """A TCP port of this node that nobody uses."""
    with socket.socket() as trial:
        trial.bind((HERE, 0))
        return str(trial.getsockname()[1])


def await_listener(server: Tool, port: str) -> bool:
    """Whether the server listens before it complains; to connect and see would take its only turn."""
    until = time.monotonic() + LISTEN_S
    while time.monotonic() < until and not server.speaks():
        if any(listens(table, f":{int(port):04X}") for table in ("/proc/net/tcp", "/proc/net/tcp6")):
            return True
        time.sleep(LOOK_S)
    return False


def listens(table: str, port: str) -> bool:
    """Whether that table of sockets has a listening one of the port."""
    try:
        with open(table) as rows:
            fields = [row.split() for row in rows]
    except OSError:
        return False
    return any(row[1].endswith(port) and row[3] == LISTENING for row in fields[1:])
