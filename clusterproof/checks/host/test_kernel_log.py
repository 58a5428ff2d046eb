"""Kernel log of the host: out-of-memory kills, PCIe errors, crashes, lockups, heat."""

from __future__ import annotations

from clusterproof.plugins.catalog.log_forms import is_crash_of_training
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.events_host import (
    AllocationFailure,
    NotKnown,
    OomKill,
    PcieError,
    Segfault,
)
from clusterproof.plugins.evidence.kernel_log.wording import (
    PROCESSES,
    fail_by_log,
    gpus_by_address,
    grouped,
    joined,
    report,
    require_whole_log,
    total,
    with_counts,
)
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]


CRASHES = ("segf", "general", "other")  # classes of lines that were left out


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("I")
@evidence("journalctl -k -b | grep -iE 'out of memory|allocation failure|deadlock|fork rejected|file-max'")
def test_no_oom_kill(node: Node) -> None:
    """Out-of-memory kills.

    The kernel killed a process, or could not allocate memory, because the node had run out. It is only a concern if a
    process reached the memory or process limit of its own cgroup or exhausted the NUMA nodes it is bound to, since that
    is the job's own fault, or if an allocation of many contiguous pages failed, since the kernel never guarantees
    those.

    Remedy (clean up): Find what used up the memory: leftover job processes, files in /dev/shm. Limit jobs with cgroups
    (ConstrainRAMSpace=yes in Slurm's cgroup.conf). Reboot the node if the kernel killed a service.
    """
    kills = [event for event in node.kernel_events if isinstance(event, OomKill)]
    failures = [event for event in node.kernel_events if isinstance(event, AllocationFailure)]
    system_wide = [event for event in kills if not event.group]
    most = node.threshold("kernel_log.costly_order")
    promised = [event for event in failures if event.order is not None and event.order <= most]
    seen = [*with_counts(system_wide, _killed, node), *with_counts(promised, _failed, node)]
    fail_by_log(node, seen, f"{joined(seen)}; expected no process killed for lack of memory, and no failed allocation")
    report(node, "host.no_oom_kill", "enough memory and open files for every process")
    of_groups = [event for event in kills if event.group]
    costly = [event for event in failures if event not in promised]
    concerns = [*with_counts(of_groups, _killed, node), *with_counts(costly, _failed, node)]
    concern_if(concerns, f"{joined(concerns)}; expected none")
    require_whole_log(node)


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("G")
@evidence(
    "journalctl -k -b | grep -E 'AER|PCIe Bus Error|Hardware Error|DPC|rp_pio|Slot|retraining|Link Active|power state"
    "|not ready|DMAR|AMD-Vi|[A-Z] device=|arm-smmu'"
)
def test_pcie_aer(node: Node) -> None:
    """PCIe errors (AER).

    After a fatal error the link cannot be trusted, and the device is reset or lost. A non-fatal error lost a
    transaction. Corrected errors matter only in large numbers. Also reports ports that disconnected their device (DPC),
    slots whose device is gone, and accesses that the IOMMU refused.

    Remedy (reset or reboot): Reboot the node. If the device reports errors again, replace the node.
    """
    gpus = {address: gpu.label for address, gpu in gpus_by_address(node).items()}

    def device(event: PcieError) -> str:
        named = f"{event.device} ({gpus[event.device]})" if event.device in gpus else event.device
        return f"{event.severity} error of {named or 'an unnamed device'}"

    errors = [event for event in node.kernel_events if isinstance(event, PcieError)]
    announced = grouped((event for event in errors if not event.layer), device)
    detailed = grouped((event for event in errors if event.layer), device)
    # The port above and the device itself report the same error, but the details of many may be missing.
    events = {name: max(detailed.get(name, []), announced.get(name, []), key=total) for name in announced | detailed}
    fatal = with_counts(
        (event for group in events.values() for event in group if event.severity == "fatal"), device, node
    )
    fail_by_log(node, fatal, f"{joined(fatal)}; expected no fatal error")
    report(node, "host.pcie_aer", "every device present, and within its own memory")
    limit = node.threshold("pcie.correctable_concern")
    concerns = [
        event for group in events.values() for event in group if event.severity == "nonfatal" or total(group) > limit
    ]
    seen = joined(with_counts(concerns, device, node))
    concern_if(concerns, f"{seen}; expected no uncorrected error, and at most {limit:.0f} corrected ones of a device")
    require_whole_log(node)


@mark.prolog
@mark.epilog
@mark.hyperpod_nccl
@evidence("journalctl -k -b | grep -E 'segfault at|general protection'")
def test_segfaults(node: Node) -> None:
    """Training process crashes.

    A Python process, or a process inside NCCL's, CUDA's or EFA's libraries, crashed with a segmentation fault. That is
    usually the application's fault; a crash that recurs on only one node points to the node.

    Remedy (investigate): Look at core files (coredumpctl list) and the job's log. Compare the NCCL, CUDA and EFA
    versions with other nodes.
    """
    crashes = [
        event
        for event in node.kernel_events
        if isinstance(event, Segfault) and is_crash_of_training(event.process, event.library)
    ]
    concern_if(crashes, f"crashed: {joined(with_counts(crashes, _crashed, node))}; expected none")
    others = sum(count for name, count in node.kernel_lines_folded.items() if name in CRASHES)
    concern_if(others, f"{others} more crashes, each of a differently named process; expected none of training")
    require_whole_log(node, PROCESSES)


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("N")
@evidence("journalctl -k -b | grep -iE 'lockup|detected.*stall|kthread starved|blocked.*for more than'")
def test_lockups(node: Node) -> None:
    """CPU lockups and hung tasks.

    In a hard lockup a CPU no longer handles interrupts. In a soft lockup or stall, one task holds a CPU for many
    seconds: a driver waits for its device, or the host is overloaded. A hung task waits for a device, disk or file
    server that does not answer.

    Remedy (reset or reboot): Reboot the node; replace it if a CPU locks up again. The log shows what the CPU was
    running.
    """
    report(node, "host.lockups", "no stalled CPU and no hung task")
    require_whole_log(node)


def _killed(event: OomKill) -> str:
    where = f" at the limit of {event.group if event.group != '?' else 'its control group'}" if event.group else ""
    return f"killed for lack of memory{where}: {event.process} (pid {event.pid})"


def _failed(event: AllocationFailure) -> str:
    return event.what if event.order is None else f"{event.what}, order {event.order}"


def _crashed(event: Segfault) -> str:
    return f"{event.process} in {event.library}" if event.library else event.process


@mark.hyperpod_node_debugger("N")
@evidence(
    "journalctl -k -b | grep -E 'BUG|Oops|: [0-9a-f]+ \\[#[0-9]|general protection fault,|Unable to handle|panic"
    "|corruption|refcount_t|WARNING: CPU|unstable|nobody cared|IPMI|ipmi'"
)
def test_kernel_oops(node: Node) -> None:
    """Kernel Oops.

    An Oops kills the running task but not what it held: locks, memory, half-finished changes. Until the next boot,
    anything on this kernel may hang or misbehave. The message names the function, and the kernel log has the call
    trace: the cause is usually a driver, sometimes bad memory. An unstable clock, a disabled interrupt and a BMC that
    does not answer are concerns.

    Remedy (reset or reboot): Reboot the node. If the error returns, find the driver in the call trace (journalctl -k).
    Replace the node if no other node with the same kernel has the error.
    """
    report(node, "host.kernel_oops", "no kernel error")
    require_whole_log(node)


@mark.hyperpod_node_debugger("N")
@evidence("journalctl -k -b -p err")
def test_unknown_errors(node: Node) -> None:
    """Kernel errors that no rule knows.

    Lists kernel messages of level error or worse about a GPU, network adapter, disk or Neuron device that match no rule
    of the catalogue. They are not evaluated.

    Remedy (investigate): Search the driver's source for the message, and check whether other nodes log it too.
    """
    unknown = dict.fromkeys(event.kind for event in node.kernel_events if isinstance(event, NotKnown))
    if unknown:
        not_applicable(f"logged, but no rule explains it: {joined(unknown)}")
    require_whole_log(node)


@mark.hyperpod_performance_debugger("A")
@evidence("journalctl -k -b | grep 'temperature'; grep . /sys/devices/system/cpu/cpu0/thermal_throttle/package*")
def test_cpu_throttled(node: Node) -> None:
    """CPU thermal throttling.

    Data loaders, NCCL's proxy threads and kernel launches then wait for the CPU. Only throttling of a whole package is
    reported, since single cores briefly reach their limit in normal use. A machine that shuts down because of heat
    fails.

    Remedy (investigate): Check fans, airflow and the machine's power cap; in a cloud, replace the node if it returns.
    """
    report(node, "host.cpu_throttled", "none slowed by heat")
    require_whole_log(node)
