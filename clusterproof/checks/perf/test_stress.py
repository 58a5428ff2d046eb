"""stress-ng: whether cores and memory compute correctly under load, and what the kernel logs meanwhile."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.stress import ENDINGS, STRESSORS, StressNg

pytestmark = [mark.perf]

MIN_SHARE = 0.9  # of the time that it was to run


@mark.host
@mark.hyperpod_node_debugger("F")
@evidence("stress-ng --cpu 0 --vm 0 --vm-bytes 50% --vm-keep --verify --metrics-brief --timeout 60; echo exit: $?")
def test_stress_ng(node: Node) -> None:
    """CPU and memory under stress-ng.

    Runs stress-ng for --stress-s seconds: on each core, one worker computes and one writes memory patterns, and
    stress-ng verifies both. Memory and CPU errors in the kernel log during the run count too. Bogo operations are not
    compared between nodes: stress-ng's manual says they are not a benchmark.

    Remedy (replace): Drain the node. Run the check again for longer and with exact arithmetic (--stress-s 3600 -k
    "stress or cpu_exact"), and have the node replaced even if the fault does not show again.
    """
    ran = node.stress_ng
    with part:
        fail_if(ran.wrong, f"{listed(ran.wrong)}; expected every result right")
    with part:
        say_hardware_errors(node, ran)
    with part:
        others = [failure for failure in ran.failed if failure not in ran.wrong]
        concern_if(others, f"stress-ng calls this a failure: {listed(others)}; expected none")
    with part:
        require_kernel_log(ran)
    require_end(ran)


def say_hardware_errors(node: Node, ran: StressNg) -> None:
    """Report the kernel's errors of memory and CPUs under load; a concern if users may have written them."""
    errors = [error for error in ran.hardware_errors if not error.is_of_previous_boot]
    lost = listed(error.words for error in errors if not error.is_corrected)
    if lost:
        message = f"the kernel logged under load: {lost}; expected no error"
        may_be_of_users = known(lambda: node.neuron_devices_due, 0)  # of Neuron's driver, whoever may open a device
        concern_if(may_be_of_users, message)
        fail_if(not may_be_of_users, message)
    corrected = listed(error.words for error in errors if error.is_corrected)
    concern_if(corrected, f"the kernel logged under load: {corrected}; expected no error, corrected or not")


def require_kernel_log(ran: StressNg) -> None:
    """Report if errors may have been logged that were not read."""
    with part:
        if ran.kernel_unread:
            incomplete(
                f"the kernel log could not be followed under load: {ran.kernel_unread[:200]}; expected root or --sudo"
            )
    if ran.kernel_lost:
        incomplete(f"{ran.kernel_lost} or more records of the kernel log were lost under load; expected all of them")


def require_end(ran: StressNg) -> None:
    """Report why it did not verify both stressors on every CPU for the whole time."""
    with part:
        if ran.online and ran.cores < ran.online:
            incomplete(f"{ran.cores} of {ran.online} CPUs were stressed; expected all of them")
    with part:
        if ran.exit is None:
            incomplete(
                f"stress-ng still ran after its {ran.budget_s} s and was killed: {ran.last_output}; expected its end"
            )
        if ran.exit and not ran.wrong:
            how = f"{ran.exit} ({ENDINGS.get(ran.exit, 'which its manual does not explain')})"
            incomplete(f"stress-ng ended with {how}: {ran.last_output or 'it printed nothing'}; expected 0")
    with part:
        if ran.lacked_memory:
            incomplete("workers of stress-ng were killed for lack of memory; expected them to run to their end")
    with part:
        idle = [name for name in STRESSORS if not ran.done.get(name)]
        if idle and not ran.wrong:
            incomplete(f"stress-ng reports no bogo operations for {listed(idle)}; expected both stressors to run")
    if ran.seconds < MIN_SHARE * ran.budget_s:
        incomplete(f"stress-ng ran for {ran.seconds:.1f} s; expected {ran.budget_s}")
