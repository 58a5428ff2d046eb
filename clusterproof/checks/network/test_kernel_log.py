"""Kernel log of EFA, Ethernet and InfiniBand devices, and of the kernel's network tables."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.wording import report, require_whole_log
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight]


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("A")
@evidence("journalctl -k -b | grep -E ' efa [0-9a-f:.]+|infiniband (rdmap|efa_)'")
def test_efa_driver_errors(node: Node) -> None:
    """EFA driver errors.

    A device that does not answer its driver, or whose reset does not finish, is lost until the driver restarts it; its
    port still shows ACTIVE. Failed commands are concerns. Messages from before the driver last started the device are
    ignored.

    Remedy (reset or reboot): Reload the efa module when no job is running, or reboot the node. Replace the node if the
    error returns.
    """
    if _is_without_efa(node):
        not_applicable("no EFA device on this node")
    report(node, "network.efa_driver_errors", "every EFA device to answer its driver")
    require_whole_log(node)


def _is_without_efa(node: Node) -> bool:
    """Whether it has no EFA device and should have none; if that is unknown, the log may still name one."""
    try:
        return not node.efa_devices and not node.expected("efa")
    except Incomplete:
        return False


@mark.hyperpod_node_debugger("A")
@evidence("journalctl -k -b | grep -E ' ena [0-9a-f:.]+'; ethtool -S eth0 | grep wd_expired")
def test_ena_driver_errors(node: Node) -> None:
    """ENA adapter resets.

    The ENA driver reset the device because it was silent for seconds or did not complete sent packets. Connections
    stall meanwhile, and NCCL's bootstrap or a file system may time out.

    Remedy (investigate): A single reset is rarely the node's fault. Check the ENA driver's version (ethtool -i ens5),
    and replace the node if resets return.
    """
    report(node, "network.ena_driver_errors", "no reset")
    require_whole_log(node)


@mark.prolog
@mark.hyperpod_node_debugger("A")
@evidence(
    "journalctl -k -b | grep -E 'mlx[45]_core|bnxt_en| (ice|i40e|ixgbe|igb|igc|e1000e) |NETDEV WATCHDOG"
    "|transmit timeout'; mlxfwmanager --query; ethtool -i ens1f0"
)
def test_nic_driver_errors(node: Node) -> None:
    """Network adapter errors.

    An adapter's firmware stopped, does not answer the driver or reports an error; the driver could not start or recover
    the adapter; the adapter is too hot; or one of its queues has stalled. The port may still show ACTIVE. Errors that
    the driver recovered from are ignored.

    Remedy (reset or reboot): Reload the adapter's driver when no job is running, or reboot the node. Update the
    firmware; if the error returns, replace the node.
    """
    report(node, "network.nic_driver_errors", "every adapter to work")
    require_whole_log(node)


@mark.hyperpod_node_debugger("O")
@evidence(
    "journalctl -k -b | grep -E 'table (overflow|full)|TCP: (out of|too many)|unregister_netdevice'; "
    "sysctl net.ipv4.neigh.default.gc_thresh3"
)
def test_kernel_tables(node: Node) -> None:
    """Kernel network tables.

    When the neighbour table is full, a node cannot reach hosts of its subnet that it has not talked to yet; when the
    conntrack table is full, new connections are dropped. Both look like an intermittent network fault. Users can fill
    the conntrack table of their own network namespace.

    Remedy (fix configuration): Set net.ipv4.neigh.default.gc_thresh1, 2 and 3 (net.ipv6 for ndisc_cache) above the
    number of hosts in the subnet, and net.netfilter.nf_conntrack_max above the connections of a busy node.
    """
    report(node, "network.kernel_tables", "room for every host and connection")
    require_whole_log(node)


@mark.hyperpod_node_debugger("A")
@evidence(
    "journalctl -k -b | grep -iE 'mlx5_core.*cable|link (is )?(up|down)|link status|any active interface'; ibstat"
)
def test_link_flaps(node: Node) -> None:
    """Network link flaps.

    A link that was up is down, or goes down so often that NCCL's messages are resent or time out; losses are counted
    per time that the log covers. A port that never had a cable, or came up late, is ignored. A bond without any link is
    only a concern: any user can cause that message with a bond in their own network namespace.

    Remedy (investigate): Clean and reseat the cable and its transceivers; if that does not help, replace them. Check
    the switch port.
    """
    report(node, "network.link_flaps", "every link that came up to stay up")
    require_whole_log(node)
