"""What the kernel log reports about Ethernet and InfiniBand devices, and about the kernel's own network tables."""

from __future__ import annotations

from clusterproof.plugins.catalog.log_words import ena_error
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern
from clusterproof.plugins.evidence.kernel_log.events_host import EnaMessage, LinkDown, TableFull
from clusterproof.plugins.evidence.kernel_log.wording import (
    grouped,
    how_often,
    in_list,
    in_words,
    require_whole_log,
    total,
)
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.network, mark.preflight]

DAY_S = 86400


@mark.hyperpod_node_debugger("A")
@evidence("journalctl -k -b | grep -E ' ena [0-9a-f:.]+'; ethtool -S eth0 | grep wd_expired")
def test_ena_driver_errors(node: Node) -> None:
    """ENA adapter resets.

    Its driver received nothing from the device for seconds, or lost packets that it had sent, and reset it. Connections
    stall meanwhile, and NCCL's bootstrap or a file system may time out.

    Remedy (investigate): A single reset is seldom the node's fault. Replace the node if it returns; check the driver's
    version.
    """
    errors = [event for event in node.kernel_events if isinstance(event, EnaMessage)]
    require_whole_log(node)
    if errors:
        concern(f"{in_list(in_words(errors, _meaning, node))}; expected no reset")


@mark.hyperpod_node_debugger("O")
@evidence("journalctl -k -b | grep -E 'table overflow|table full'; sysctl net.ipv4.neigh.default.gc_thresh3")
def test_kernel_tables(node: Node) -> None:
    """Kernel network tables.

    With no room in the neighbour table a node cannot reach hosts of its own network that it has not talked to yet; with
    no room in the connection table, new connections are dropped. Both look like a network that fails now and then.
    Users can fill the connection table of a network namespace of their own.

    Remedy (fix configuration): Raise net.ipv4.neigh.default.gc_thresh1 to 3 (net.ipv6 for ndisc_cache) above the number
    of hosts in the subnet, and net.netfilter.nf_conntrack_max above the connections of a busy node.
    """
    full = [event for event in node.kernel_events if isinstance(event, TableFull)]
    require_whole_log(node)
    if full:
        concern(f"no room in {in_list(in_words(full, lambda event: event.table, node))}; expected room for every host")


@mark.hyperpod_node_debugger("A")
@evidence("journalctl -k -b | grep -E 'mlx5_core.*(Link down|Cable)'; ibstat")
def test_link_flaps(node: Node) -> None:
    """Network link flaps.

    Each time, NCCL's messages on the link are resent or time out. The count is compared with the time that the log
    covers, so that a link that came up late is no fault.

    Remedy (investigate): Clean or reseat the cable and its transceivers, then replace them; look at the switch port.
    """
    lost = [event for event in node.kernel_events if isinstance(event, LinkDown)]
    require_whole_log(node)
    if not lost:
        return
    days = max((node.boot.uptime_s - max(node.window_begins, 0.0)) / DAY_S, 1.0)
    limit = node.threshold("infiniband.link_downed_per_day")
    flapping = [
        f"{device} ({found[-1].words}, {how_often(found, node)})"
        for device, found in grouped(lost, lambda event: event.device).items()
        if total(found) >= limit * days
    ]
    if flapping:
        concern(f"{in_list(flapping)}; expected less than {limit:.0f} lost links a day")


def _meaning(event: EnaMessage) -> str:
    row = ena_error(event.words)
    return f"{event.device}: {row.meaning if row else event.words}"
