"""InfiniBand and RoCE: what ports count of errors and of lost packets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import inf

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import Incomplete, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import integer, value_of
from clusterproof.plugins.evidence.network.facts import Port, RdmaDevice
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]

HOUR_S = 3600
DAY_S = 86400
OF_LINK = {
    "port_rcv_errors": "packets with errors",
    "link_error_recovery": "recoveries of its link",
    "local_link_integrity_errors": "series of link errors",
    "excessive_buffer_overrun_errors": "buffer overruns",
}
OF_TRANSPORT = {
    "local_ack_timeout_err": "late acknowledgements",
    "packet_seq_err": "reports of lost packets",
    "roce_adp_retrans": "adaptive retransmissions",
    "roce_slow_restart": "slow restarts after losses",
    "port_xmit_discards": "discarded packets",
    "rp_cnp_ignored": "congestion notifications that it ignored",
}


@evidence(
    "grep . /sys/class/infiniband/*/ports/*/counters/{link_downed,symbol_error,link_error_recovery,port_rcv_errors,"
    "local_link_integrity_errors,excessive_buffer_overrun_errors}; uptime"
)
def test_ib_errors(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand and RoCE link errors.

    The counters run since the driver was loaded and are divided by the time since boot, so a link that came up once or
    twice is not a fault.

    Remedy (investigate): Clean or replace the cable and its transceivers, and check the counters of the switch port.
    """
    require_ports(ib_device, node)
    most_lost, most_garbled = map(
        node.threshold, ("infiniband.link_downed_per_day", "infiniband.symbol_errors_per_hour")
    )
    days, hours = periods(node, DAY_S), periods(node, HOUR_S)
    for port in ib_device.ports:
        with part:
            lost = counted(port.link_downed)
            seen = f"{port.label} lost its link {lost} times since boot"
            concern_if(lost >= most_lost * days, f"{seen}; expected less than {most_lost:.0f} a day")
        with part:
            garbled = counted(port.symbol_errors)
            seen = f"{port.label} had {garbled} symbol errors since boot"
            concern_if(garbled > most_garbled * hours, f"{seen}; expected at most {most_garbled:.0f} an hour")
        with part:
            evaluate_counters(port, OF_LINK, node)
    node.boot.uptime_s  # noqa: B018 - raises why a rate is unknown


@evidence(
    "grep . /sys/class/infiniband/*/ports/*/hw_counters/{local_ack_timeout_err,packet_seq_err,roce_adp_retrans,"
    "roce_slow_restart,rp_cnp_ignored} /sys/class/infiniband/*/ports/*/counters/port_xmit_discards; uptime"
)
def test_ib_lost_packets(ib_device: RdmaDevice, node: Node) -> None:
    """InfiniBand and RoCE packets that were lost and sent again.

    The counters run since the driver was loaded and are divided by the time since boot. A port sends again what was
    lost on the way to its partner, so the fault may be of the switch or of the partner, or of a job some of whose ranks
    end while others still send to them. Packets out of sequence are no loss by themselves: adaptive routing sends them
    over several paths.

    Remedy (investigate): Look whether other ports of the rail count the same. On RoCE compare PFC, ECN and DSCP with
    those of the switch port; look at the switch's discards and at the link errors of both ends.
    """
    require_ports(ib_device, node)
    for port in ib_device.ports:
        with part:
            evaluate_counters(port, OF_TRANSPORT, node)
    node.boot.uptime_s  # noqa: B018 - raises why a rate is unknown


def require_ports(device: RdmaDevice, node: Node) -> None:
    """Raise NotApplicable where a node's fabric is EFA, or the device has no port."""
    if node.efa_devices:
        not_applicable("this node's fabric is EFA")
    if not device.ports:
        not_applicable("this device has no port")


def evaluate_counters(port: Port, meanings: Mapping[str, str], node: Node) -> None:
    """A concern for each of these counters that grew faster than it may. Raises Incomplete, NotApplicable."""
    hours, counters = periods(node, HOUR_S), port.counters
    there = [name for name in meanings if name in counters]
    if not there:
        not_applicable(f"{port.label} counts no {listed(list(meanings.values()))}")
    for name in there:
        most, meaning = node.threshold(f"infiniband.{name}_per_hour"), meanings[name]
        with part:
            count = value_of(counters, name, integer)
            seen = f"{port.label} counted {count} {meaning} ({name}) since boot"
            concern_if(count > most * hours, f"{seen}; expected at most {most:.0f} an hour")


def periods(node: Node, period_s: int) -> float:
    """How many such periods passed since boot, at least one; infinite, so that no rate is too high, if unknown."""
    with suppress(Incomplete):
        return max(1.0, node.boot.uptime_s / period_s)
    return inf


def counted(errors: int | None) -> int:
    """A device's counters. Raises NotApplicable if it has none."""
    if errors is None:
        not_applicable("this device counts neither link losses nor symbol errors")
    return errors
