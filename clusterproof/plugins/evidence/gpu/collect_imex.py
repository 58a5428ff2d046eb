"""NVIDIA's IMEX on a tray of an NVLink rack: its domain, who is configured to be in it, and its channels."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.agent.tools import command

CONFIG = "/etc/nvidia-imex/config.cfg"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
CTL = "nvidia-imex-ctl"
MAX_NODES = 1024


def read(node: Node) -> object:
    """What nvidia-imex is configured to be, what it answers, and the channels that jobs open.

    Raises Absent where neither its configuration nor its program is there.
    """
    config = node.text(CONFIG, absent="")
    nodes = node.text(_nodes_file(str(config)), absent="")
    domain = _domain(node)
    if not config and not nodes and domain is None:
        raise Absent(f"no {CONFIG}, {NODES} nor {CTL}")
    return {
        "nodes": _lines(nodes) if isinstance(nodes, str) else nodes,
        "channels": [int(name[7:]) for name in node.names(CHANNELS) if re.fullmatch(r"channel\d{1,7}", name)][:64],
        "channel_count": _channel_count(node),
        "domain": domain,
    }


def _nodes_file(config: str) -> str:
    """The file that a config.cfg names for the addresses of the domain's nodes."""
    rows = (line.partition("=") for line in config.splitlines())
    named = (path.strip() for key, _, path in rows if key.strip() == "IMEX_NODE_CONFIG_FILE")
    return next((path for path in named if path[:1] == "/"), NODES)


def _domain(node: Node) -> object:
    """What `nvidia-imex-ctl -N` prints: JSON, and a table where it is too old for that; null where there is none."""
    try:
        data = command(node, CTL, "-N", "-j", "-H")
        return data if data["exit"] == 0 or "{" in str(data["output"]) else command(node, CTL, "-N")
    except Absent:
        return None


def _lines(text: str) -> list[str]:
    """The addresses of a nodes_config.cfg, in its order; comments and empty lines are none."""
    lines = (line.strip() for line in text.splitlines())
    return [line[:300] for line in lines if line and line[0] != "#"][:MAX_NODES]


def _channel_count(node: Node) -> object:
    """How many channels the driver was loaded with (NVreg_ImexChannelCount); null where it does not say."""
    data = node.text("/proc/driver/nvidia/params", absent="")
    if not isinstance(data, str):
        return data
    found = re.search(r"(?m)^ImexChannelCount: (\d{1,9})$", data)
    return int(found[1]) if found else None
