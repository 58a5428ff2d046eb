"""Cores and memory that fail under stress-ng, and runs of it that prove nothing."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import NodeImage
from tests.testbed.load import loadable_p5, with_speed
from tests.testbed.node import without_file

CHECK = "host.stress_ng"


def fault(name: str, verdict: Verdict, message: str, *lines: str) -> Fault:
    """A fault in stress-ng's output, or in the kernel log during the run."""

    def put(image: NodeImage) -> NodeImage:
        return with_speed(image, *(f"stress {line}" for line in lines))

    return Fault(f"stress: {name}", put, {CHECK: verdict}, message, loadable_p5, loads=("stress_ng",), occasion="perf")


FAULTS = (
    fault(
        "memory that loses bits",
        FAIL,
        "vm: detected 24 bit errors while stressing memory; expected every result right",
        "fail vm: detected 24 bit errors while stressing memory",
        "exit 2",
    ),
    fault(
        "a core that computes wrong",
        FAIL,
        "cpu: ackermann error detected, ackermann(3,9) miscalculated; expected every result right",
        "fail stress-ng-cpu: ackermann error detected, ackermann(3,9) miscalculated",
        "exit 2",
    ),
    fault(
        "an uncorrected memory error that the kernel logs under load",
        FAIL,
        "the kernel logged under load: EDAC MC0: 1 UE memory read error",
        "kernel EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x30aa905)",
    ),
    fault(
        "a corrected memory error that the kernel logs under load",
        CONCERN,
        "the kernel logged under load: EDAC MC0: 1 CE memory read error",
        "kernel EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    ),
    fault(
        "a failure that is no wrong result, after which it proves nothing",
        INCOMPLETE,
        "stress-ng calls this a failure: metrics-check: stressor 0 corrupted bogo-ops counter",
        "fail metrics-check: stressor 0 corrupted bogo-ops counter",
        "exit 2",
    ),
    fault(
        "a stressor without resources",
        INCOMPLETE,
        "stress-ng ended with 3 (a stressor lacked resources): ",
        "says error: [4713] vm: gave up trying to mmap, no available memory",
        "exit 3",
    ),
    fault(
        "workers killed for lack of memory",
        INCOMPLETE,
        "workers of stress-ng were killed for lack of memory",
        "says info:  [4713] vm: assuming killed by OOM killer, restarting again (instance 3)",
    ),
    fault("memory that was not tested", INCOMPLETE, "stress-ng reports no bogo operations for vm", "idle vm"),
    Fault(
        "stress: a node without stress-ng",
        lambda image: without_file(image, "/usr/bin/stress-ng"),
        {CHECK: INCOMPLETE},
        "no stress-ng on PATH",
        loadable_p5,
        loads=("stress_ng",),
        occasion="perf",
    ),
)
