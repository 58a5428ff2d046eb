"""What the kernel log tells of the kernel itself, and of the heat that it works in."""

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

    An Oops kills what ran and leaves behind what it held: locks, memory, half of a change. What runs on such a kernel
    may hang or go wrong later, until the next boot. The line names where, and the log what led there: a driver as a
    rule, bad memory at times.

    Remedy (reset or reboot): Reboot the node. If it returns, look at the call trace for the driver, and replace the
    node where no other node of the same kernel has it.
    """
    oopses = [event for event in node.kernel_events if isinstance(event, Oops)]
    said = in_list(in_words(oopses, lambda oops: oops.words, node))
    assert not oopses, f"the kernel says {said}; expected no error of the kernel's own"
    require_whole_log(node)


@mark.hyperpod_performance_debugger("A")
@evidence("journalctl -k -b | grep 'temperature'; grep . /sys/devices/system/cpu/cpu0/thermal_throttle/package*")
def test_cpu_throttled(node: Node) -> None:
    """CPU thermal throttling.

    Data loaders, NCCL's proxy threads and kernel launches then wait for the CPU. Told is a whole package, not single
    cores, which reach their limit for moments in normal work.

    Remedy (investigate): Look at fans, air flow and the power cap of the machine; replace the node in a cloud if it
    returns.
    """
    throttled = [event for event in node.kernel_events if isinstance(event, Throttled)]
    require_whole_log(node)
    if throttled:
        concern(f"a CPU package was above its temperature ({how_often(throttled, node)}); expected none slowed by heat")
