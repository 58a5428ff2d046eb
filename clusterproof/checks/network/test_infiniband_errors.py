"""InfiniBand and RoCE: error counters of ports."""

from __future__ import annotations

from contextlib import suppress
from math import inf

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.network.facts import RdmaDevice
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]

HOUR_S = 3600
DAY_S = 86400


@evidence("grep . /sys/class/infiniband/*/ports/*/counters/{link_downed,symbol_error}")
def test_ib_errors(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand error counters.

    The counters run since the driver was loaded and are divided by the time since boot, so a link that came up once or
    twice is not a fault.

    Remedy (investigate): Clean or replace the cable and its transceivers, and check the counters of the switch port.
    """
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    if not ib_device.ports:
        not_applicable("this device has no port")
    most_lost, most_garbled = map(
        node.threshold, ("infiniband.link_downed_per_day", "infiniband.symbol_errors_per_hour")
    )
    days, hours = (max(1.0, uptime_s(node) / one_s) for one_s in (DAY_S, HOUR_S))  # at least one of a young node
    for port in ib_device.ports:
        with part:
            lost = counted(port.link_downed)
            seen = f"{port.label} lost its link {lost} times since boot"
            concern_if(lost >= most_lost * days, f"{seen}; expected less than {most_lost:.0f} a day")
        with part:
            garbled = counted(port.symbol_errors)
            seen = f"{port.label} had {garbled} symbol errors since boot"
            concern_if(garbled > most_garbled * hours, f"{seen}; expected at most {most_garbled:.0f} an hour")
    node.boot.uptime_s  # noqa: B018 - raises why a rate is unknown


def uptime_s(node: Node) -> float:
    """The seconds since boot; infinite, so that no rate is too high, if they are unknown."""
    with suppress(Incomplete):
        return node.boot.uptime_s
    return inf


def counted(errors: int | None) -> int:
    """A device's counters. Raises NotApplicable if it has none."""
    if errors is None:
        not_applicable("this device counts neither link losses nor symbol errors")
    return errors
