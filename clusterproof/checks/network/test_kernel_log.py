"""What the EFA driver wrote to the kernel log."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.wording import require_whole_log, say
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.network,
    mark.preflight,
    mark.prolog,
    mark.epilog,
    mark.hyperpod_node_debugger("A"),
]


@evidence("journalctl -k -b | grep -E ' efa [0-9a-f:.]+|infiniband rdmap'")
def test_efa_driver_errors(node: Node) -> None:
    """EFA driver errors.

    A device that does not answer its driver, or whose reset does not end, is lost until the driver starts it again; its
    port is still reported as ACTIVE. Failed commands are noted. What was logged about a device before its driver last
    started it no longer counts.

    Remedy (reset or reboot): Reload the efa module when no job is running, or reboot the node. Replace the node if the
    error returns.
    """
    if _is_without_efa(node):
        not_applicable("no EFA device on this node")
    say(node, "network.efa_driver_errors", "every EFA device to answer its driver")
    require_whole_log(node)


def _is_without_efa(node: Node) -> bool:
    """Whether it has no EFA device and should have none; where that is unknown, the log may still name one."""
    try:
        return not node.efa_devices and not node.expected("efa")
    except Incomplete:
        return False
