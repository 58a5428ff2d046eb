"""The speed of network links, compared with the group."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.network.facts import Interface
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight]

GBIT = 1000


@mark.hyperpod_node_debugger("A")
@evidence("grep . /sys/class/net/*/speed; ethtool INTERFACE")
def test_link_speed(node: Node) -> None:
    """Network link speed.

    An interface whose cable or port is damaged may agree with the switch on a fraction of its speed: storage, and all
    that is not RDMA, then crawls. The same interface is compared with that of the other nodes.

    Remedy (investigate): Look at ethtool, the cable and the switch port.
    """
    with part:
        require(why for one in node.interfaces for why in readings(one, "name", "speed_mbit_s")[1])
    if not any(_speeds(node).values()):
        not_applicable("no interface reports a speed")
    found = differences(node, "link speeds", _speeds, absent=None)
    concern_if(found, in_words(found))


def _speeds(node: Node) -> Values:
    return {f"speed of {interface.label}": _speed(interface) for interface in node.interfaces}


def _speed(interface: Interface) -> str | None:
    """`100 Gbit/s`; None where its driver reports no speed."""
    mbit_s = readings(interface, "speed_mbit_s")[0].get("speed_mbit_s")
    return f"{mbit_s / GBIT:g} Gbit/s" if mbit_s else None
