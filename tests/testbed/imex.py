"""nvidia-imex on the trays of a rack: its files, channels and output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.testbed.image import OPENS, Content, NodeImage

ADDRESSES = ("10.1.2.9", "10.1.2.1", "10.1.2.2", "10.1.2.3")
NAMES = ("gpu001", "gpu002", "gpu003", "gpu004")
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


def domain(
    version: str,
    links: Mapping[int, str] | None = None,
    status: str = "READY",
    addresses: Sequence[str] = ADDRESSES,
    names: Sequence[str] = NAMES,
    state: str = "UP",
    others: str = "READY",
) -> str:
    """The output of `nvidia-imex-ctl -N -j -H`; `links` are the first node's that are not CONNECTED."""
    places = range(len(addresses))

    def connection(place: int, other: int) -> dict[str, str]:
        word = (links or {}).get(other, "CONNECTED") if place == 0 else "CONNECTED"
        return {"host": addresses[other], "status": word, "changed": "9/4/2026 00:30:11.120"}

    nodes = {
        str(place): {
            "status": status if place == 0 else others,
            "host": addresses[place],
            "hostName": names[place],
            "version": version,
            "connections": {str(other): connection(place, other) for other in places},
        }
        for place in places
    }
    return json.dumps({"status": state, "nodes": nodes, "timestamp": "9/4/2026 00:37:39.905"}, indent=2)


def program(printed: str, code: int = 0) -> str:
    """An nvidia-imex-ctl that prints this."""
    return f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\nexit {code}\n"


def with_imex(image: NodeImage, version: str) -> NodeImage:
    """A tray whose nvidia-imex is configured and connected to three others."""
    files: dict[str, Content] = {
        "/etc/nvidia-imex/config.cfg": "SERVER_PORT=50000\nIMEX_CMD_PORT=50005\nIMEX_CMD_ENABLED=1\n",
        NODES: "# trays of this rack\n" + "".join(f"{address}\n" for address in ADDRESSES),
        CHANNEL: OPENS,
    }
    proc: dict[str, Content] = {"driver/nvidia/params": "EnableMSI: 1\nImexChannelCount: 2048\nCreateImexChannel0: 1\n"}
    tools = {**image.tools, "nvidia-imex-ctl": program(domain(version))}
    return replace(image, files={**image.files, **files}, proc={**image.proc, **proc}, tools=tools)
