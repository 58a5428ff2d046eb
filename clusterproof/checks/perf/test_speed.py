"""Speed of a node under load: GPU copies, GPU compute, collectives, EFA, and file systems."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from clusterproof.plugins.catalog import floor
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import SIGNIFICANT, format_pair, listed
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import known, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.comparison import compared_gpus, require_comparison, require_waived, shortfalls
from clusterproof.plugins.evidence.perf.facts import SLOWER, below_median, report_slower
from clusterproof.plugins.evidence.perf.facts_logs import NcclLog, Row
from clusterproof.plugins.evidence.perf.facts_node import require_every_gpu
from clusterproof.plugins.evidence.perf.gpu_peers import by_topology, models_of
from clusterproof.plugins.evidence.perf.gpu_speed import DIRECTIONS, Speeds

pytestmark = [mark.perf]


@mark.gpu
@mark.hyperpod_node_debugger("G")
@evidence("nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce device_to_device_memcpy_read_ce")
def test_gpu_bandwidth(node: Node) -> None:
    """GPU copy bandwidth.

    Measures copies to the host, from the host and between GPUs, one GPU at a time, with nvbandwidth or, if that is
    missing, PyTorch. A single slow GPU points to its PCIe link or NVLinks; whole nodes are compared with the rest of
    their group.

    Remedy (investigate): Check that GPU's links (nvidia-smi nvlink -s, and nvidia-smi
    --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv while it copies) and whether anything else is
    using it. Run the check again; if the GPU stays slow, reset it, then replace the node.
    """
    for direction, speeds in node.gpu_bandwidth.speeds.items():
        with part:
            require_every_gpu(node, len(speeds), node.gpu_bandwidth.given, f"{direction}: ")
    with part:
        require_waived(node)
    compared_with = compared_gpus(node, node.gpu_bandwidth.speeds)
    for behind in shortfalls(node, copies, compared_with):
        report_slower(node, behind, "GB/s")
    limits = {
        direction: floor(node.type_name, direction.lower().replace(" ", "_")) for direction in DIRECTIONS.values()
    }
    low = [
        f"GPU {gpu}, {direction}: {seen} GB/s where others reach {due}"
        for direction, speeds in node.gpu_bandwidth.gb_per_s.items()
        for gpu, speed in speeds.items()
        for seen, due in [format_pair(speed, limits[direction] or 0.0, 4, SIGNIFICANT)]
        if speed < (limits[direction] or 0.0)
    ]
    concern_if(low, f"{listed(low)}; expected as much as others published for such nodes")
    require_comparison(node, copies, "GB/s", compared_with, has_limit=any(limits.values()))


def copies(node: Node) -> Mapping[str, Speeds]:
    """What test_gpu_bandwidth compares: between GPUs those that are as near to the others."""
    return by_topology(node, node.gpu_bandwidth.speeds)


@mark.gpu
@mark.hyperpod_node_debugger("G")
@evidence("gpu-fryer 60, or a loop of torch.matmul on every GPU at once, and nvidia-smi dmon beside it")
def test_gpu_gemm(node: Node) -> None:
    """GPU compute speed.

    Multiplies large matrices in PyTorch on all GPUs at once, after a warm-up. A GPU that is capped, hot or short of
    power slows down every other GPU of a training job. GPUs are compared with others of their model.

    Remedy (investigate): Check the GPU's clocks, temperature and power under load (nvidia-smi -q -d
    CLOCK,TEMPERATURE,POWER,PERFORMANCE), and look for other processes on it. Replace the node if it stays slow.
    """
    for speeds in node.gpu_gemm.speeds.values():
        with part:
            require_every_gpu(node, len(speeds), node.gpu_gemm.given)
    for behind in shortfalls(node, products):
        report_slower(node, behind, "TFLOP/s")
    require_comparison(node, products, "TFLOP/s")


def products(node: Node) -> Mapping[str, Speeds]:
    """The values that test_gpu_gemm compares."""
    return node.gpu_gemm.speeds


@mark.gpu
@mark.hyperpod_nccl
@evidence("all_reduce_perf -b 1G -e 8G -f 2 -g 8 -c 1 -w 5 -n 20")
def test_node_busbw(node: Node) -> None:
    """NCCL bus bandwidth within the node.

    Runs an all-reduce over the GPUs of one node, without the network: it measures NVLink and NVSwitch. The bandwidth of
    the largest message is compared with the group's median and, if one has been published, with the minimum for the
    instance type.

    Remedy (investigate): Check for inactive NVLinks (nvidia-smi nvlink -s), the fabric state and the NCCL version. Run
    the check again on this node alone. If it stays slow, or values are wrong, drain the node and replace it.
    """
    log = node.node_busbw
    wrong = [f"{row.wrong} wrong values at {row.size_bytes} bytes" for row in log.rows if row.wrong]
    fail_if(wrong, f"{listed(wrong)}; expected 0")
    outside = log.out_of_bounds or log.out_of_bounds_word not in ("", "OK")
    fail_if(outside, f"out of bounds values: {log.out_of_bounds} {log.out_of_bounds_word}; expected 0 OK")
    with part:
        require_end(log)
    row = require_measured(log)
    with part:
        require_every_gpu(node, log.given or 0, log.given)
    speed, gib = row.out_of_place.busbw_gb_per_s or 0.0, row.gib
    models = measured_models(node)
    shared = node.group.medians(f"node_busbw {models}", lambda other: busbw(other, models)).get(gib)
    report_slower(node, below_median(f"all-reduce of {gib}", speed, shared), "GB/s")
    least = floor(node.type_name, "all_reduce") or 0.0
    seen, due = format_pair(speed, least, 4, SIGNIFICANT)
    concern_if(
        speed < least, f"all-reduce of {gib}: {seen} GB/s; expected {due} as others measured on {node.type_name}"
    )
    if not least and not (shared and shared.is_comparable):
        incomplete(f"all-reduce of {gib}: {speed:.4g} GB/s; expected further nodes to compare with")


def busbw(node: Node, models: list[str]) -> Mapping[str, float]:
    """The value by which nodes with GPUs of these models are compared: the bandwidth of the largest message."""
    own = measured_models(node)
    if own and models and own != models:
        return {}
    row = require_measured(node.node_busbw)
    return {row.gib: row.out_of_place.busbw_gb_per_s or 0.0}


def measured_models(node: Node) -> list[str]:
    """The models of the GPUs in its all-reduce; empty if one is unknown."""
    given = readings(node.node_busbw, "given")[0].get("given")
    return sorted({*models_of(node, given or 0)})


def require_measured(log: NcclLog) -> Row:
    """The row of the largest message. Raises Incomplete if it has no bandwidth."""
    if not log.rows:
        why = f": {log.problems[0]}" if log.problems else ""
        incomplete(f"all_reduce_perf measured nothing (exit status {log.exit}){why}; expected a row for each size")
    largest = max(log.rows, key=lambda row: row.size_bytes)
    if largest.out_of_place.busbw_gb_per_s is None:
        incomplete(f"no bandwidth or no check of {largest.gib}; expected both")
    return largest


def require_end(log: NcclLog) -> None:
    """Raise Incomplete if the run did not end well, or did not check its results."""
    size = require_measured(log).gib
    if log.exit != 0 or log.out_of_bounds is None:
        why = f": {log.problems[0]}" if log.problems else ""
        incomplete(f"all_reduce_perf ended with exit status {log.exit} after {size}{why}; expected 0")
    if not require_measured(log).out_of_place.is_checked:
        incomplete(f"no check of {size}; expected one")


@mark.network
@mark.hyperpod_node_debugger("A")
@evidence("FI_EFA_ENABLE_SHM_TRANSFER=0 fi_pingpong -e rdm -p efa -d DOMAIN & the same with 127.0.0.1 behind it")
def test_efa_loopback(node: Node) -> None:
    """EFA message exchange within the node.

    Runs server and client on this node over each EFA domain in turn, with libfabric's shared memory disabled, so that
    every message goes through the device. The port state proves nothing: the EFA driver always reports ACTIVE.

    Remedy (investigate): If no domain works, allow all traffic from the security group to itself in both directions,
    and check memlock (ulimit -l). If only one fails or stays slow, replace the node.
    """
    try:
        exchanges = node.efa_loopback.exchanges
    except Absent as absent:
        if not node.efa_devices:
            not_applicable("no EFA device on this node")
        incomplete(f"{absent}; expected EFA's software on the host")
    if not exchanges:
        incomplete("libfabric offers no EFA domain; expected one for each device")
    devices = known(lambda: len(node.efa_devices), 0)
    with part:
        if len(exchanges) < devices:
            incomplete(f"libfabric offers {len(exchanges)} domains; expected one for each of {devices} EFA devices")
    speeds: dict[str, float] = {}
    broken: dict[str, list[str]] = {}
    apart: dict[str, list[str]] = {}
    for exchange in exchanges:
        with part:
            speed = exchange.mb_per_s
            if speed is None:
                (apart if exchange.is_apart else broken).setdefault(exchange.why_not, []).append(exchange.domain)
            else:
                speeds[exchange.domain] = speed
    for why, domains in apart.items():
        with part:
            incomplete(f"the ends for {listed(domains)} did not meet ({why}); expected nobody else at their port")
    for why, domains in broken.items():
        seen = f"no exchange through {listed(domains)} ({why})"
        fail_if(domains, f"{seen}; expected one through each of {len(exchanges)} domains")
    typical, share = median(speeds.values() or [0.0]), node.threshold("load.loopback_percent")
    slow = [f"{name} {speed:.0f} MB/s" for name, speed in speeds.items() if speed < share / 100 * typical]
    concern_if(slow, f"{listed(slow)}; expected at least {share:g} % of the {typical:.0f} MB/s of most domains")


@mark.storage
@mark.hyperpod_performance_debugger("B")
@evidence(
    "fio --name=x --directory=DIR --rw=write --bs=1M --size=512M --numjobs=8 --thread --direct=1; again with --rw=read"
)
def test_fs_bandwidth(node: Node) -> None:
    """File system bandwidth.

    Eight streams write a scratch file with direct I/O, bypassing the node's cache, then read it back. A shared file
    system is tested by the same small number of nodes at a time, so that conditions are equal. Since the file was just
    written, the file server may read it from memory.

    Remedy (investigate): Compare the node's mount options, its network and Lustre's tunables with those of a fast node.
    If all nodes are slow, look at the file system's own throughput (test_fsx_throughput).
    """
    measured = node.fs_bandwidth.gb_per_s
    folder = node.fs_bandwidth.folder
    least = node.threshold("load.fs_gb_per_s")
    low = [
        f"{direction} {format_pair(speed, least, 3, SIGNIFICANT)[0]} GB/s"
        for direction, speed in measured.items()
        if speed < least
    ]
    concern_if(low, f"{folder}: {', '.join(low)}; expected at least {least:g} GB/s")
    shared = node.group.medians("fs_bandwidth", speeds)
    share = node.threshold("load.fs_percent")
    typical = {direction: shared[f"{direction} in {folder}"] for direction in measured}
    slow = [
        f"{direction} {speed:.3g} GB/s where {typical[direction].nodes} nodes have {typical[direction].value:.3g}"
        for direction, speed in measured.items()
        if typical[direction].is_comparable and speed < share / 100 * typical[direction].value
    ]
    concern_if(slow, f"{folder}: {', '.join(slow)}; expected at least {share:g} % of their median", SLOWER)
    if not least and not all(shared_median.is_comparable for shared_median in typical.values()):
        values = ", ".join(f"{direction} {speed:.3g} GB/s" for direction, speed in measured.items())
        incomplete(f"{folder}: {values}; expected further nodes to compare with, or a limit (load.fs_gb_per_s)")


def speeds(node: Node) -> Mapping[str, float]:
    """The values by which the node's group is compared."""
    return {
        f"{direction} in {node.fs_bandwidth.folder}": speed for direction, speed in node.fs_bandwidth.gb_per_s.items()
    }
