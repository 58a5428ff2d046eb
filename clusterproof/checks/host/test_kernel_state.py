"""What the kernel log reports about the kernel itself, and about CPUs that get too hot."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.kernel_log.events_host import NotKnown
from clusterproof.plugins.evidence.kernel_log.wording import in_list, require_whole_log, say
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]


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

    Remedy (investigate): Look for the words in the driver's source and at other nodes.
    """
    unknown = dict.fromkeys(event.kind for event in node.kernel_events if isinstance(event, NotKnown))
    if unknown:
        not_applicable(f"logged, and no rule says what it means: {in_list(unknown)}")
    require_whole_log(node)


@mark.hyperpod_performance_debugger("A")
@evidence("journalctl -k -b | grep 'temperature'; grep . /sys/devices/system/cpu/cpu0/thermal_throttle/package*")
def test_cpu_throttled(node: Node) -> None:
    """CPU thermal throttling.

    Data loaders, NCCL's proxy threads and kernel launches then wait for the CPU. Only throttling of a whole package is
    reported: single cores reach their limit briefly in normal work. A machine that shuts down for its heat fails.

    Remedy (investigate): Check fans, airflow and the machine's power cap; in a cloud, replace the node if it returns.
    """
    say(node, "host.cpu_throttled", "none slowed by heat")
    require_whole_log(node)
