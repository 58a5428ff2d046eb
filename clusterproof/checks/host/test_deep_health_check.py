"""What HyperPod's own deep health checks found on the node."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, quoted
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.collect_deep_health_check_log import LOG
from clusterproof.plugins.evidence.aws.facts_deep_health_check import LogLine, deep_health_check_log
from clusterproof.plugins.evidence.field import known, reading_of
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.host, mark.preflight]

STARTS = "Executing Hardware stress check"  # with which an instance-level check begins
ERRORS = frozenset({"error", "dpanic", "panic", "fatal"})  # levels of zap, which HyperPod logs with


@mark.hyperpod_node_debugger("F")
@evidence(f"sudo cat {LOG}")
def test_deep_health_check(node: Node) -> None:
    """Deep health checks on the node.

    Evaluates what the last instance-level check wrote to the node's own log. DCGM's summary in it says whether the node
    has to be replaced or rebooted; a reboot since then has done the latter. Errors of other tests are a concern.

    Remedy (replace): Replace a node of which this is required: aws sagemaker batch-replace-cluster-nodes --cluster-name
    NAME --node-ids ID. Read the lines around an error, and repeat the check: aws sagemaker start-cluster-health-check.
    """
    if reading_of(node, "is_outside_ec2"):
        not_applicable("the node is outside EC2, where HyperPod has its nodes")
    log = deep_health_check_log.of(node)
    if not log.text.strip():
        not_applicable(f"HyperPod has logged no deep health check here, in {LOG}")
    lines = log.lines
    starts = [number for number, line in enumerate(lines) if line.text.startswith(STARTS)]
    last = lines[starts[-1] if starts else 0 :]
    for line in last:
        seen = f"the deep health check of {line.time} requires"
        fail_if(line.requires == "replacement", f"{seen} the node's replacement; expected a node that is fit")
        is_due = line.requires == "reboot" and not _has_booted_since(node, line)
        concern_if(is_due, f"{seen} a reboot; expected one since then")
    errors = [f"{line.time}: {quoted(line.text)}" for line in last if line.level in ERRORS]
    concern_if(errors, f"deep health checks logged {listed(reversed(errors))}; expected no error")
    if not last or (log.is_cut and not starts):
        incomplete(f"{LOG} does not show where the last check began; expected all of its lines")


def _has_booted_since(node: Node, line: LogLine) -> bool:
    return known(lambda: node.boot.booted > line.logged, False)
