"""What the kernel log reports about the host: out-of-memory kills, PCIe errors, crashes, lockups, heat."""

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
    in_list,
    in_words,
    require_whole_log,
    say,
    total,
)
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]


CRASHES = ("segf", "general", "other")  # classes of lines that were left out


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("I")
@evidence("journalctl -k -b | grep -iE 'out of memory|allocation failure|fork rejected'")
def test_no_oom_kill(node: Node) -> None:
    """Out-of-memory kills.

    The kernel killed a process because the node was out of memory, or had no memory to give. A process that reaches the
    memory or process limit of its own control group, or exhausts the NUMA nodes that it is bound to, is its job's own
    fault, and a concern; so is a failed allocation of many contiguous pages, which the kernel never guarantees.

    Remedy (clean up): Find what used up the memory: processes of ended jobs, files in /dev/shm. Limit jobs by control
    groups. Reboot the node if the kernel killed a service.
    """
    kills = [event for event in node.kernel_events if isinstance(event, OomKill)]
    failures = [event for event in node.kernel_events if isinstance(event, AllocationFailure)]
    of_node = [event for event in kills if not event.group]
    most = node.threshold("kernel_log.costly_order")
    promised = [event for event in failures if event.order is not None and event.order <= most]
    seen = [*in_words(of_node, _killed, node), *in_words(promised, _failed, node)]
    fail_by_log(node, seen, f"{in_list(seen)}; expected no process killed for lack of memory, and no failed allocation")
    say(node, "host.no_oom_kill", "enough memory and open files for every process")
    of_groups = [event for event in kills if event.group]
    costly = [event for event in failures if event not in promised]
    noted = [*in_words(of_groups, _killed, node), *in_words(costly, _failed, node)]
    concern_if(noted, f"{in_list(noted)}; expected none")
    require_whole_log(node)


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("G")
@evidence("journalctl -k -b | grep -E 'AER|PCIe Bus Error'")
def test_pcie_aer(node: Node) -> None:
    """PCIe errors (AER).

    After a fatal error the link cannot be trusted, and the device is reset or lost. A non-fatal one lost a
    transaction. Corrected ones matter only in large numbers. Ports that cut their device off (DPC), slots whose
    device is gone, and accesses that the IOMMU refuses are reported as well.

    Remedy (reset or reboot): Reboot the node. If the device reports errors again, replace the node.
    """
    gpus = {address: gpu.words for address, gpu in gpus_by_address(node).items()}

    def device(event: PcieError) -> str:
        named = f"{event.device} ({gpus[event.device]})" if event.device in gpus else event.device
        return f"{event.severity} error of {named or 'an unnamed device'}"

    errors = [event for event in node.kernel_events if isinstance(event, PcieError)]
    announced = grouped((event for event in errors if not event.layer), device)
    detailed = grouped((event for event in errors if event.layer), device)
    events = announced | detailed  # the port above and the device itself report the same error
    fatal = in_words((event for alike in events.values() for event in alike if event.severity == "fatal"), device, node)
    fail_by_log(node, fatal, f"{in_list(fatal)}; expected no fatal error")
    say(node, "host.pcie_aer", "every device present, and within its own memory")
    limit = node.threshold("pcie.correctable_concern")
    noted = [
        event for alike in events.values() for event in alike if event.severity == "nonfatal" or total(alike) > limit
    ]
    seen = in_list(in_words(noted, device, node))
    concern_if(noted, f"{seen}; expected no uncorrected error, and at most {limit:.0f} corrected ones of a device")
    require_whole_log(node)


@mark.prolog
@mark.epilog
@mark.hyperpod_nccl
@evidence("journalctl -k -b | grep -E 'segfault at|general protection'")
def test_segfaults(node: Node) -> None:
    """Training process crashes.

    A Python process, or one in the libraries of NCCL, CUDA or EFA, ended with a segmentation fault. That is usually the
    application's fault; the same crash on one node only points to the node.

    Remedy (investigate): Look for core files and the job's log. Compare NCCL's, CUDA's and EFA's versions with other
    nodes.
    """
    crashes = [
        event
        for event in node.kernel_events
        if isinstance(event, Segfault) and is_crash_of_training(event.process, event.library)
    ]
    concern_if(crashes, f"crashed: {in_list(in_words(crashes, _crashed, node))}; expected none")
    others = sum(count for name, count in node.kernel_lines_folded.items() if name in CRASHES)
    concern_if(others, f"{others} more crashes, each of a process with another name; expected none of training")
    require_whole_log(node, PROCESSES)


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("N")
@evidence("journalctl -k -b | grep -iE 'lockup|detected.*stall|blocked.*for more than'")
def test_lockups(node: Node) -> None:
    """CPU lockups and hung tasks.

    A hard lockup is a CPU that no longer handles interrupts. Soft lockups and stalls are CPUs held by one task for many
    seconds: a driver waiting for its device, or an overloaded host. A hung task waits for a device, a disk or a file
    server that does not answer.

    Remedy (reset or reboot): Reboot the node; replace it if a CPU locks up again. The log shows what the CPU was
    running.
    """
    say(node, "host.lockups", "no stalled CPU and no hung task")
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
    "journalctl -k -b | grep -E 'BUG:|kernel BUG at|Oops|general protection fault,|corruption|unstable|nobody cared'"
)
def test_kernel_oops(node: Node) -> None:
    """Kernel Oops.

    An Oops kills the task that was running and leaves behind what it held: locks, memory, half-finished changes.
    Anything that runs on such a kernel may hang or misbehave later, until the next boot. The line names where it
    happened, and the log what led there: usually a driver, sometimes bad memory. A clock that became unstable, an
    interrupt that was turned off and a BMC that does not answer are concerns.

    Remedy (reset or reboot): Reboot the node. If it returns, look at the call trace for the driver, and replace the
    node if no other node with the same kernel has it.
    """
    say(node, "host.kernel_oops", "no kernel error")
    require_whole_log(node)


@mark.hyperpod_node_debugger("N")
@evidence("journalctl -k -b -p err")
def test_unknown_errors(node: Node) -> None:
    """Kernel errors that no rule knows.

    What the kernel logged as an error, or as worse, about a GPU, a network adapter, a disk or a Neuron device, and for
    which the catalogue has no form. It is listed here and not evaluated.

    Remedy (investigate): Search for the message in the driver's source, and see whether other nodes log it too.
    """
    unknown = dict.fromkeys(event.kind for event in node.kernel_events if isinstance(event, NotKnown))
    if unknown:
        not_applicable(f"logged, and no rule says what it means: {in_list(unknown)}")
    require_whole_log(node)


@mark.hyperpod_performance_debugger("A")
@evidence("journalctl -k -b | grep 'temperature'; grep . /sys/devices/system/cpu/cpu0/thermal_throttle/package*")
def test_cpu_throttled(node: Node) -> None:
    """CPU thermal throttling.

    Data loaders, NCCL's proxy threads and kernel launches then wait for the CPU. Only throttling of a whole package
    is reported: single cores reach their limit briefly in normal work. A machine that shuts down because of heat
    fails.

    Remedy (investigate): Check fans, airflow and the machine's power cap; in a cloud, replace the node if it returns.
    """
    say(node, "host.cpu_throttled", "none slowed by heat")
    require_whole_log(node)
