"""EFA: access to GPU memory, and packets that are lost or sent again."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, readings, require
from clusterproof.plugins.evidence.network.facts import Counters, RdmaDevice
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]

PROPRIETARY = "P"  # in a kernel module's taint
FATAL = "no_completion_cmds"
ERRORS = (
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "retrans_timeout_events",
)
LIMITS: Mapping[str, str] = {
    **dict.fromkeys(ERRORS, "efa.errors_per_s"),
    "retrans_pkts": "efa.retransmitted_packets_per_s",
}


@mark.ami
@evidence("grep . /sys/class/infiniband/*/device/p2p; cat /sys/module/nvidia/taint")
def test_efa_gdr(efa_device: RdmaDevice, node: Node) -> None:
    """GPUDirect RDMA over EFA.

    The EFA driver reports which module gives it access to GPU memory. Without one, every byte is copied through host
    memory, unless NVIDIA's open kernel modules provide DMA-BUF, and nothing on the node shows whether that is used.

    Remedy (fix configuration): Load efa_nv_peermem or reinstall EFA's software after the NVIDIA driver; fi_info -p efa
    -c FI_HMEM shows whether libfabric can use GPU memory.
    """
    reading, unread = readings(node, "type")
    if not (reading and reading["type"].gdr):
        lenders = {reading["p2p"] for device in node.efa_devices if (reading := readings(device, "p2p")[0]).get("p2p")}
        seen = "the EFA driver reports no module that gives it access to device memory"
        concern_if(lenders and not efa_device.has_peer_memory, f"{seen}; expected {' or '.join(sorted(lenders))}")
        require(unread)
        not_applicable(f"{node.type_name} has no GPUDirect RDMA")
    if efa_device.has_peer_memory:
        return
    is_silent = efa_device.p2p is None and efa_device.gdr is None
    fault = "does not say which module gives it GPU memory" if is_silent else "names no module that gives it GPU memory"
    observed = f"the EFA driver {fault}; expected one"
    taint = known(lambda: node.nvidia_taint, "")
    assert PROPRIETARY not in taint, observed
    concern_if(observed, f"{observed}: DMA-BUF may be in use, but cannot be seen here")
    if not taint:
        incomplete(f"{observed}, with the NVIDIA module loaded")


@evidence("grep . /sys/class/infiniband/*/ports/1/hw_counters/* /sys/class/infiniband/*/hw_counters/*; sleep 1; again")
def test_efa_counters(efa_device: RdmaDevice, node: Node) -> None:
    """EFA error counters.

    Only the increase during the probe counts, not the totals since boot, since old errors prove nothing. On an idle
    node the counters do not move: this check finds failures while a job is running.

    Remedy (investigate): Check the peers that the job talks to; if several nodes point to the same peer, drain that
    one. Commands that never complete (no_completion_cmds) are the device's fault: replace the node.
    """
    counters = node.efa_counters_by_name.get(efa_device.name)
    if counters is None:
        incomplete("its counters were not reported")
    seconds = known(lambda: node.efa_counted_s, 0.0)
    went = {name: count for name in (FATAL, *LIMITS) if (count := _counted(counters, name)) is not None}
    lost = went.pop(FATAL, 0)
    within = f" in {seconds:g} s" if seconds else ""
    fail_if(lost, f"{lost} commands without completion{within}; expected 0")
    most = {name: node.threshold(LIMITS[name]) for name in went}
    fast = {name: count / seconds for name, count in went.items() if seconds and count > most[name] * seconds}
    observed = ", ".join(f"{name} {format_pair(rate, most[name])[0]} a second" for name, rate in fast.items())
    limits = " and ".join(f"{limit:g}" for limit in sorted({most[name] for name in fast}))
    concern_if(fast, f"{observed}; expected at most {limits} a second")
    if counters.counters.keys().isdisjoint((FATAL, *LIMITS)):
        not_applicable("its driver has none of these counters")


def _counted(counters: Counters, name: str) -> int | None:
    """How far a counter advanced; None if the driver does not have it, or it could not be read."""
    return known(lambda: counters.counted(name), None)
