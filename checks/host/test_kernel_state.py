"""What the kernel log reports about the kernel itself, and about CPUs that get too hot."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern
from clusterproof.plugins.evidence.kernel_log.events_host import Oops, Throttled
from clusterproof.plugins.evidence.kernel_log.wording import how_often, in_list, in_words, require_whole_log
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.host, mark.preflight]


@mark.hyperpod_node_debugger("N")
@evidence("journalctl -k -b | grep -E 'BUG:|kernel BUG at|Oops|general protection fault,'")
def test_kernel_oops(node: Node) -> None:
    """Kernel Oops.

    An Oops kills the task that was running and leaves behind what it held: locks, memory, half-finished changes.
    Anything that runs on such a kernel may hang or misbehave later, until the next boot. The line names where it
    happened, and the log what led there: usually a driver, sometimes bad memory.

    Remedy (reset or reboot): Reboot the node. If it returns, look at the call trace for the driver, and replace the
    node if no other node with the same kernel has it.
    """
    oopses = [event for event in node.kernel_events if isinstance(event, Oops)]
    said = in_list(in_words(oopses, lambda oops: oops.words, node))
    assert not oopses, f"the kernel says {said}; expected no error of the kernel's own"
    require_whole_log(node)


@mark.hyperpod_performance_debugger("A")
@evidence("journalctl -k -b | grep 'temperature'; grep . /sys/devices/system/cpu/cpu0/thermal_throttle/package*")
def test_cpu_throttled(node: Node) -> None:
    """CPU thermal throttling.

    Data loaders, NCCL's proxy threads and kernel launches then wait for the CPU. Only throttling of a whole package is
    reported: single cores reach their limit briefly in normal work.

    Remedy (investigate): Check fans, airflow and the machine's power cap; in a cloud, replace the node if it returns.
    """
    throttled = [event for event in node.kernel_events if isinstance(event, Throttled)]
    require_whole_log(node)
    if throttled:
        concern(f"a CPU package was above its temperature ({how_often(throttled, node)}); expected none slowed by heat")
