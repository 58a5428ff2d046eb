"""ENA: packets that EC2 delays or drops because the instance is over an allowance."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.typed import TypeVar
from clusterproof.plugins.core.verdict import Incomplete, concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import at_least_one, known, readings
from clusterproof.plugins.evidence.network.facts import Counters
from clusterproof.plugins.evidence.node import Node

T = TypeVar("T")

pytestmark = [mark.network, mark.preflight]


@mark.hyperpod_node_debugger("A")
@evidence("ethtool -S ens32 | grep allowance_exceeded; sleep 1; again")
def test_ena_allowance(node: Node) -> None:
    """EC2 network allowances.

    Above an instance's bandwidth (bw_in, bw_out) or packet rate (pps), EC2 queues and then drops packets: data and
    checkpoints arrive late. Above its tracked connections (conntrack), EC2 drops new connections: NCCL's bootstrap, S3
    and Slurm time out. Above the limit for link-local services (linklocal), EC2 drops requests to DNS, metadata and
    NTP: names do not resolve, credentials expire, the clock drifts. A few dropped packets in a burst are normal. Both
    the increase during the probe and the mean since boot are evaluated. Any user can cause this, so it does not block
    jobs on the node.

    Remedy (investigate): For bandwidth and packets, find the traffic (sar -n DEV 1) and spread it, or use a larger
    instance. For conntrack, close connections, or have the security groups allow all traffic in both directions, which
    is not tracked. For linklocal, cache DNS names and credentials on the node.
    """
    try:
        interfaces = at_least_one(list(node.ena_counters), "interface of ENA")
    except Absent:
        not_applicable("no ENA network interface")
    uptime_s, looked_s = known(lambda: node.boot.uptime_s, None), known(lambda: node.ena_counted_s, None)
    period_s = node.threshold("ena.period_s")
    above: list[str] = []
    exceeded: set[float] = set()
    for interface, (counter, limit) in product(interfaces, _limits(node).items()):
        with part:
            excess = _above(interface, counter, limit, period_s, looked_s, uptime_s)
            if excess:
                above.append(f"{_label(interface)}: {counter} {excess}")
                exceeded.add(limit)
    expected = " and ".join(f"{limit:g}" for limit in sorted(exceeded))
    concern_if(above, f"{', '.join(above)}; expected at most {expected} in {period_s:g} s")


def _limits(node: Node) -> dict[str, float]:
    """The usual number of packets, by the name of the counter."""
    return {
        "bw_in_allowance_exceeded": node.threshold("ena.bw_in_allowance_exceeded"),
        "bw_out_allowance_exceeded": node.threshold("ena.bw_out_allowance_exceeded"),
        "pps_allowance_exceeded": node.threshold("ena.pps_allowance_exceeded"),
        "conntrack_allowance_exceeded": node.threshold("ena.conntrack_allowance_exceeded"),
        "linklocal_allowance_exceeded": node.threshold("ena.linklocal_allowance_exceeded"),
    }


def _above(
    counters: Counters, counter: str, limit: float, period_s: float, looked_s: float | None, uptime_s: float | None
) -> str:
    """By how much one allowance was exceeded; empty if that is usual. Raises Incomplete."""
    if counter not in counters.counters:
        incomplete(f"{_label(counters)}: its driver does not report {counter}", cause="not reported by ENA's driver")
    total = _named(counters, lambda: counters.total(counter))
    with part:  # what cannot be followed has its total
        went = _named(counters, lambda: counters.counted(counter)) or 0
        if looked_s and went > limit * max(1.0, looked_s / period_s):
            return f"{went} in {looked_s:g} s"
    if uptime_s is None or total <= limit * (periods := max(1.0, uptime_s / period_s)):
        return ""
    return f"{total} since boot, {format_pair(total / periods, limit)[0]} in {period_s:g} s"


def _named(counters: Counters, fact: Callable[[], T]) -> T:
    """A fact of an interface. Raises Incomplete with the interface's name."""
    try:
        return fact()
    except Incomplete as why:
        incomplete(f"{_label(counters)}: {why}", cause=why.cause)


def _label(counters: Counters) -> str:
    """The interface's name; a word for one whose name was not read."""
    return str(readings(counters, "name")[0].get("name", "an interface"))
