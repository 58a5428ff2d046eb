"""What libfabric offers over EFA: `fi_info`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import command


def read(node: Node) -> object:
    """The output of `fi_info` for EFA's reliable datagram endpoints."""
    return command(node, "fi_info", "-p", "efa", "-t", "FI_EP_RDM")
