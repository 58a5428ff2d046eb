"""RoCE: how the ports of one node, and the same port of several, are set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.network.facts_node import RocePort
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]


ACTIVE = "ACTIVE"
SETTINGS: Mapping[str, Callable[[RocePort], str]] = {
    "RoCE v2 GID index": lambda port: port.gid_v2,
    "ECN notification": lambda port: port.notifies,
    "ECN reaction": lambda port: port.reacts,
    "traffic class": lambda port: port.traffic_class,
}


@evidence("show_gids; grep . /sys/class/net/*/ecn/roce_[nr]p/enable/* /sys/class/infiniband/*/tc/*/traffic_class")
def test_roce_settings(node: Node) -> None:
    """RoCE settings of ports.

    NCCL uses all rails alike: one without a routable RoCE v2 address at the same index as the others ends a job as it
    starts, and one without congestion control or in another traffic class loses packets under load. Active ports of one
    model and speed are compared with each other, and each with the same port on other nodes.

    Remedy (fix configuration): Give the interface its address; set ECN and the traffic class as on the other ports, and
    in what sets them after a boot.
    """
    ports = active_ports(node)
    if not ports:
        not_applicable("no active RoCE port on this node")
    odd = {name for what in SETTINGS for name in odd_ports(node, ports, what)}
    with suppress(NotApplicable):
        deviations = differences(node, "settings of RoCE ports", of_ports, absent=None)
        elsewhere = [deviation for deviation in deviations if deviation.name not in odd]
        concern_if(elsewhere, in_words(elsewhere))


def odd_ports(node: Node, ports: Iterable[RocePort], what: str) -> list[str]:
    """Say which ports have another setting than most of their kind here: `traffic class of mlx5_0 port 1`."""
    kinds: dict[tuple[str, str], dict[str, str]] = {}
    for port in ports:
        with part:
            value, label, kind = SETTINGS[what](port), port.label, (port.model, port.rate)
            kinds.setdefault(kind, {})[f"{what} of {label}"] = value
    odd = []
    for values in kinds.values():
        usual, alike = Counter(values.values()).most_common(1)[0]
        if alike > len(values) * node.threshold("group.majority"):
            as_most = f"expected {usual or 'none'} as {alike} of {len(values)} ports of its kind"
            for name, value in values.items():
                concern_if(value != usual, f"{name} is {value or 'not set'}; {as_most}")
            odd += [name for name, value in values.items() if value != usual]
    return odd


def active_ports(node: Node) -> list[RocePort]:
    """The RoCE ports that are active, or may be: of one whose state is unknown that part of a check is incomplete."""
    return [port for port in node.roce_ports if known(lambda: port.state, ACTIVE).endswith(ACTIVE)]  # noqa: B023 - at once


def of_ports(node: Node) -> Values:
    """Each setting of each port; None where it is unknown."""
    return {
        f"{what} of {label}": value or "not set"
        for what, read in SETTINGS.items()
        for label, value in each(active_ports(node), lambda port: (port.label, read(port)))  # noqa: B023 - at once
    }
