"""A message through each EFA device back to the same node, with fi_pingpong and shared memory switched off."""

from __future__ import annotations

import re
import socket
import time

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.agent.tools import Tool, find
from clusterproof.plugins.benchmarks.launchers.rendezvous import listens
from clusterproof.plugins.benchmarks.load.tool import communicate, environment, folders, named, output_of

INFO = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")
EXCHANGE = ("fi_pingpong", "-e", "rdm", "-p", "efa", "-I", "200", "-S", "1048576")
ON_THE_DEVICE = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}  # otherwise a message to the same host never reaches the device
OWN = ("/opt/amazon/efa/bin",)  # before the distribution's libfabric, which may not support EFA
HERE = "127.0.0.1"
DOMAIN = re.compile(r"^ *domain: (\S{1,100}) *$", re.MULTILINE)
INFO_S, LISTEN_S, EXCHANGE_S, LINGER_S = 20.0, 10.0, 8.0, 1.0
LOOK_S = 0.02
MAX_PRINTED = 1900  # bytes of either end's output: facts read 2000 characters, with how many were left out
MAX_DOMAINS = 64


def efa_loopback(node: Node) -> object:
    """The output of both ends, by domain."""
    own = (*folders(node), *OWN)
    program = find(node, "fi_pingpong", own, named(node))
    data = output_of(node, INFO, find(node, "fi_info", own, named(node)), INFO_S)
    names = [name for name in dict.fromkeys(DOMAIN.findall(str(data["output"]))) if not name.endswith("-dgrm")]
    if not names and data["exit"]:
        return {"none": " ".join(str(data["output"]).split())[:200]}
    rows: dict[str, dict[str, object]] = {name: {"domain": name} for name in names[:MAX_DOMAINS]}
    others = {"command": " ".join(EXCHANGE)}
    return node.each("domains", rows, lambda name: {**rows[name], **exchanged(node, program, name)}, others)


def exchanged(node: Node, program: str, domain: str) -> dict[str, object]:
    """One exchange: how the client ended (null: it did not, or there was no server), and what both ends printed.

    Raises Broke if a server has no error and does not listen yet: that is before it opens the device.
    """
    command, port = (*EXCHANGE, "-d", domain), free_port()
    variables = {**environment(node), **ON_THE_DEVICE}
    server = Tool(node, *command, "-B", port, program=program, environment=variables)
    if not await_listener(server, port):
        printed, late = communicate(server, LOOK_S, most_bytes=MAX_PRINTED)
        if late and not printed:
            raise Broke(f"fi_pingpong did not listen within {LISTEN_S:g} s, as on a busy node")
        return {"exit": None, "output": "", "server": printed}
    client = Tool(node, *command, "-P", port, HERE, program=program, environment=variables)
    output, late = communicate(client, EXCHANGE_S, most_bytes=MAX_PRINTED)
    printed, _ = communicate(server, LINGER_S, most_bytes=MAX_PRINTED)
    return {"exit": None if late else client.exit, "output": output, "server": printed}


def free_port() -> str:
    """An unused TCP port of this node."""
    with socket.socket() as trial:
        trial.bind((HERE, 0))
        return str(trial.getsockname()[1])


def await_listener(server: Tool, port: str) -> bool:
    """Whether the server listens before it prints an error; connecting to find out would use its only turn."""
    until = time.monotonic() + LISTEN_S
    while time.monotonic() < until and not server.speaks():
        if listens(int(port)):
            return True
        time.sleep(LOOK_S)
    return False
