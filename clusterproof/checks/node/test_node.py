"""Whether the node answered, and every collector on it."""

from __future__ import annotations

from clusterproof.plugins.catalog.node import USER, unreached_rows, waits_for
from clusterproof.plugins.core.evidence import Status, Unreached
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import concern_if, fail, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import by_hand, evidence, over_ssm, remedied_by
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.node,
    mark.preflight,
    mark.prolog,
    mark.epilog,
    mark.ami,
]

OF_KUBERNETES = (
    Unreached.NOT_READY,
    Unreached.NOT_STARTED,
    Unreached.NO_IMAGE,
    Unreached.NO_LOG,
    Unreached.REMOVED,
    Unreached.API,
)

OF_SSH = {"config": "-F ", "identity_file": "-i ", "known_hosts": "-o UserKnownHostsFile="}  # settings, as options


def the_same_way(node: Node) -> str:
    """A command that reaches this node in the same way as the suite did."""
    unreached = node.evidence.unreached
    if not unreached:
        return ""
    from shlex import quote  # most nodes are reached

    if unreached in (Unreached.BUSY, Unreached.DRAINED, Unreached.DOWN):
        return f"scontrol show node {quote(node.name)}"
    if unreached in OF_KUBERNETES:
        return f"kubectl describe node {quote(node.name)}"
    if unreached is Unreached.NO_CONTAINER:
        by_srun = node.settings.get("srun_options", "")
        return f"srun -w {quote(node.name)} {by_srun} python3 -V" if by_srun else "COMMAND python3 -V"
    if unreached is Unreached.UNRECORDED:
        return f"ls -lR {quote(node.settings.get('recording') or node.settings.get('capture') or 'DIR')}"
    target, settings = node.target, node.settings
    port, user = target.port or settings.get("port", ""), target.user or settings.get("user", "")
    options = [f"{flag}{quote(settings[key])}" for key, flag in OF_SSH.items() if settings.get(key)]
    options += [f"-p {port}"] * bool(port)
    return " ".join(["ssh", *options, quote(f"{user}@" * bool(user) + (target.address or target.name)), "true"])


def remedy_by_cause(node: Node) -> str:
    """What to do about the reason for which this node was not reached."""
    unreached = node.evidence.unreached
    return unreached_rows()[unreached.value].remedy.replace("NODE", node.name) if unreached else ""


@mark.job
@mark.hyperpod_node_debugger("K")
@evidence("ssh NODE true")
@over_ssm("hyperpod-ssm", "aws ssm start-session --target TARGET")
@by_hand(the_same_way)
@remedied_by(remedy_by_cause)
def test_reachable(node: Node) -> None:
    """Reachability.

    Nothing is known about a node that does not answer: all its other checks are incomplete. If the cause is on this
    side (no accepted key, a name that does not resolve), this check is incomplete too, since the node has not failed.

    Remedy (cannot reach): Open a shell on the node the same way, and read the error.
    """
    answer = node.evidence
    if answer.probe.get("source") == "capture" and not answer.unreached:
        not_applicable("this is a capture: the node itself was not asked")
    if not answer.unreached:
        return
    reason = answer.unreached.value.replace("_", " ")
    if answer.unreached in (Unreached.BUSY, Unreached.DRAINED):
        expected = "" if "; expected " in answer.detail else "; expected a place on the node for a moment"
        incomplete(f"{reason}: {answer.detail}{expected}", node.why_unreached)
    expected = "" if "; expected " in answer.detail else "; expected an answer from the probe"
    message = f"{reason}: {answer.detail or 'no more is known'}{expected}"
    if not unreached_rows()[answer.unreached.value].speaks_against_node:
        incomplete(message, node.why_unreached)
    fail(message, cause=node.why_unreached)


@mark.job
@mark.hyperpod_node_debugger("G")
@evidence("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /^D/'")
def test_evidence_complete(node: Node) -> None:
    """Collected evidence.

    A collector that missed its deadline is abandoned. If its process cannot be killed (state D), a driver hangs or a
    file system is dead; a hang that users can cause, as with FUSE, is a concern. A broken or slow collector costs only
    the checks that need it.

    Remedy (investigate): Run the command shown by hand on the node. If a driver hangs, drain the node and reboot it.
    """
    collectors = node.collectors
    named = {
        name: f"{name} ({collector.detail})" if collector.detail else name for name, collector in collectors.items()
    }
    hanging = {
        name: waits_for(collector.waits) for name, collector in collectors.items() if collector.status is Status.STUCK
    }
    stuck = [named[name] for name, waits in hanging.items() if waits != USER]
    fail_if(stuck, f"hangs in the kernel and cannot be killed: {', '.join(stuck)}; expected an answer")
    silent = [
        named[name] for name, collector in collectors.items() if collector.status in (Status.TIMED_OUT, Status.BROKE)
    ]
    silent += [named[name] for name, waits in hanging.items() if waits == USER]
    concern_if(silent, f"no answer from {', '.join(silent)}; expected one from every kind of evidence")
    cut = {name: collector for name, collector in collectors.items() if collector.status is Status.CUT}
    with part:
        if any(collector.too_long for collector in cut.values()):
            incomplete(
                f"cut from the answer: {', '.join(cut)}; expected whole answers, as with --ssm-output s3://BUCKET"
            )
        if cut:
            reasons = "; ".join(dict.fromkeys(collector.detail for collector in cut.values() if collector.detail))
            incomplete(
                f"cut from the answer: {', '.join(cut)} ({reasons or 'no reason given'}); expected whole answers"
            )
    lacking = [name for name, collector in collectors.items() if collector.status is Status.UNCOLLECTED]
    if lacking:
        incomplete(f"the capture lacks {', '.join(lacking)}; expected every kind of evidence (docs/captures.md)")


@mark.hyperpod_node_debugger("D")
@evidence("cat /proc/uptime")
def test_uptime_settled(node: Node) -> None:
    """Uptime.

    For about two minutes after boot, NVML and the EFA driver may report too few devices, so counts taken then prove
    nothing.

    Remedy (investigate): Run the check again once the node has been up longer than the time shown.
    """
    window_s = node.threshold("settle.window_s")
    if node.boot.uptime_s < window_s:
        up, least = format_pair(node.boot.uptime_s, window_s)
        incomplete(f"up for {up} s; expected at least {least} s before counts are trusted")
