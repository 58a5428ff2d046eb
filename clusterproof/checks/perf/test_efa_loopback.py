"""EFA under load: does every device send and receive, and as fast as the others?"""

from __future__ import annotations

from statistics import median

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.perf, mark.hyperpod_node_debugger("A")]


@evidence("FI_EFA_ENABLE_SHM_TRANSFER=0 fi_pingpong -e rdm -p efa -d DOMAIN & the same with 127.0.0.1 behind it")
def test_efa_loopback(node: Node) -> None:
    """EFA message exchange within the node.

    Server and client run on this node, one EFA domain after another, with libfabric's shared memory disabled, so that
    every message goes through the device. The port's state proves nothing: EFA's driver always reports ACTIVE.

    Remedy (investigate): If no domain works, let the security group admit its own members in both directions, and check
    memlock. If one does not work or stays slow, replace the node.
    """
    try:
        exchanges = node.efa_loopback.exchanges
    except Absent as absent:
        if not node.efa_devices:
            not_applicable("no EFA device on this node")
        incomplete(f"{absent}; expected EFA's software on the host")
    if not exchanges:
        incomplete("libfabric offers no EFA domain; expected one for each device")
    speeds: dict[str, float] = {}
    broken: dict[str, list[str]] = {}
    for one in exchanges:
        with part:
            speed = one.mb_per_s
            if speed is None:
                broken.setdefault(one.why_not, []).append(one.domain)
            else:
                speeds[one.domain] = speed
    for why, domains in broken.items():
        seen = f"no exchange through {listed(domains)} ({why})"
        fail_if(domains, f"{seen}; expected one through each of {len(exchanges)} domains")
    usual, share = median(speeds.values() or [0.0]), node.threshold("load.loopback_percent")
    slow = [f"{name} {speed:.0f} MB/s" for name, speed in speeds.items() if speed < share / 100 * usual]
    concern_if(slow, f"{listed(slow)}; expected at least {share:g} % of the {usual:.0f} MB/s of most domains")
