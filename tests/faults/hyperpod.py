"""What HyperPod's deep health checks logged on a node that is not fit."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.aws.collect_deep_health_check_log import LOG, MAX_CHARACTERS
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.node import with_file

CHECK = "host.deep_health_check"
START = "2024-08-20T21:53:58Z info Executing Hardware stress check with command: stress-ng, and args: [--cpu 32]"
DCGM = (
    "2024-08-20T22:25:02Z\tinfo\tDCGM diagnostic health summary: dcgmCheckLevel: 0 dcgmVersion: 3.3.7 "
    "gpuDriverVersion: 535.183.01, gpuDeviceIds: [2237] replacementRequired: false rebootRequired:false"
)


def fault(name: str, verdict: Verdict, message: str, *lines: str) -> Fault:
    """A log with these lines on a node whose AWS account is not read."""
    log = "\n".join(lines) + "\n"
    return Fault(f"deep health checks: {name}", lambda image: with_file(image, LOG, log), {CHECK: verdict}, message)


FAULTS = (
    fault(
        "a node that has to be replaced",
        FAIL,
        "the deep health check of 2024-08-20T22:25:02Z requires the node's replacement",
        START,
        DCGM.replace("replacementRequired: false", "replacementRequired: true"),
    ),
    fault(
        "a node that has to be rebooted, and has not been",
        CONCERN,
        "the deep health check of 2999-08-20T22:25:02Z requires a reboot; expected one since then",
        START,
        DCGM.replace("rebootRequired:false", "rebootRequired:true").replace("2024", "2999"),
    ),
    fault(
        "a test with an error",
        CONCERN,
        "logged 2024-08-20T22:26:28Z: EFA Loopback check failed for device: rdmap0s29",
        START,
        DCGM,
        '{"level":"error","ts":"2024-08-20T22:26:28Z","msg":"EFA Loopback check failed for device: rdmap0s29"}',
    ),
    fault(
        "the beginning of the last check out of sight",
        INCOMPLETE,
        "does not show where the last check began",
        START,
        *["2024-08-20T22:26:28Z info EFA Loopback check passed for device: rdmap0s29"] * (MAX_CHARACTERS // 60),
    ),
)
