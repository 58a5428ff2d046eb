"""`clusterproof gate`: the programs that a gate runs in a Kubernetes cluster, and the one that removes its traces."""

from __future__ import annotations

import argparse
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.command_line.gate_run import aws, log_line, run
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.errors import ClusterproofError, raised_at
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE, OneLineParser
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.evaluation.single_node import findings_digest
from clusterproof.plugins.inventory import with_expectations
from clusterproof.plugins.inventory.kubernetes import access_to
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.gate import UNKNOWN
from clusterproof.plugins.kubernetes.gate.wait import EXITS, FRESH_S, PATIENCE_S, Wait, outcome_text, waited
from clusterproof.plugins.kubernetes.gate.write import remove
from clusterproof.plugins.options import MAX_S, MIN_S
from clusterproof.plugins.options.table import Joined
from clusterproof.plugins.policy import find_policy
from clusterproof.plugins.suite.ending import EXIT_UNWRITTEN, INTERRUPTED
from clusterproof.plugins.transport.kubernetes.reporting import UnchangedFile, report_for_ever

MAX_EVERY_S = 3600
NODE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof gate`."""
    parser = OneLineParser(
        prog="clusterproof gate",
        usage="clusterproof gate run X [OPTION...] | agent [OPTION...] | wait X --node NAME | remove X",
        description="A gate of Kubernetes: run evaluates what agents report and writes it to the nodes, agent "
        "reports what is on its node, wait ends once its verdict on a node is known: 0 proven, 1 unfit, 10 not proven "
        "in time, 2 ended by a signal; and what removes it: remove takes its condition and taints from all nodes.",
        epilog="Any option of clusterproof check may follow gate run X, such as --k8s-gate taint.",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("run", "agent", "wait", "remove"), help="what to do")
    parser.add_argument("x", nargs="?", metavar="X", help="k8s:CONTEXT[/SELECTOR], k8s:in-cluster or eks:NAME")
    help_text = "seconds between reports, alike in both: 1 to 3600"
    parser.add_argument("--every", type=_interval_s, default=60, metavar="S", help=help_text)
    parser.add_argument("--listen", metavar="[HOST]:PORT", help="of run: answer Prometheus there, as '*:9188'")
    parser.add_argument("--probe-timeout", type=float, default=5.0, metavar="S", help="of agent: for one collector")
    help_text = "of agent: a file that is there while what checks say of the node is as before"
    parser.add_argument("--unchanged", metavar="FILE", help=help_text)
    help_text = "of agent: the gate's further options, of which --expect, --instance-type and --policy hold here too"
    parser.add_argument("--options", default="", metavar="WORDS", help=help_text)
    parser.add_argument("--node", type=_node, metavar="NAME", help="of wait: the node")
    help_text = f"of wait: how old a verdict may be ({FRESH_S:g})"
    parser.add_argument("--fresh", type=_positive_s, default=FRESH_S, metavar="S", help=help_text)
    help_text = f"of wait: how long to wait for one ({PATIENCE_S:g})"
    parser.add_argument("--timeout", type=_positive_s, default=PATIENCE_S, metavar="S", help=help_text)
    parser.add_argument("--region", default="", metavar="REGION", help="the AWS region")
    parser.add_argument("--profile", default="", metavar="NAME", help="the AWS profile")
    return parser


def gate(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code, and the text to print at the end. Raises SystemExit where argparse does."""
    own = parser()
    option, further = own.parse_known_args(arguments)
    if further and option.what != "run":
        own.error(f"unrecognized arguments: {' '.join(further)}")
    if (option.what == "agent") is bool(option.x):
        own.error("expected gate agent, or gate run X, gate wait X and gate remove X")
    if option.x and not option.x.startswith(("k8s:", "eks:")):
        expected = "expected k8s:CONTEXT, k8s:in-cluster or eks:NAME"
        return BAD_COMMAND_LINE, f"clusterproof gate: {option.x!r:.80} is no cluster of Kubernetes; {expected}\n"
    if not MIN_S <= option.probe_timeout <= MAX_S:
        own.error(f"--probe-timeout is {option.probe_timeout:g}; expected {MIN_S:g} to {MAX_S} s")
    if (option.what == "wait") is not bool(option.node):
        own.error("expected gate wait X --node NAME, and --node of nothing else")
    try:
        if option.what == "remove":
            return _removed(option)
        if option.what == "wait":
            return _waited(option, _over())
        return (_report if option.what == "agent" else run)(option, further, _over()), ""
    except ClusterproofError as wrong:
        return BAD_COMMAND_LINE, f"clusterproof gate: {wrong}\n"


def _interval_s(text: str) -> int:
    """An interval that an agent's readiness probe can use. Raises argparse.ArgumentTypeError."""
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_EVERY_S:
        return int(text)
    message = f"{text!r:.40}; expected a whole number of seconds from 1 to {MAX_EVERY_S} (EVERY, everySeconds)"
    raise argparse.ArgumentTypeError(message)


def _positive_s(text: str) -> float:
    """A positive number of seconds. Raises argparse.ArgumentTypeError."""
    if text.isascii() and text.isdecimal() and int(text):
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40}; expected a whole number of seconds, at least 1")


def _node(text: str) -> str:
    """A valid Kubernetes node name. Raises argparse.ArgumentTypeError."""
    if NODE_NAME.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r:.80}; expected the name of a node")


def _waited(option: argparse.Namespace, is_over: threading.Event) -> tuple[int, str]:
    """Wait for the verdict on a node. Raises AwsError, InventoryError, KubernetesError.

    Any other error would make Python exit with 1, which means that the node is unfit.
    """
    order = Wait(option.node, option.fresh, option.timeout)
    try:
        health = waited(open_api(_access(option)), order, log_line, is_over)
    except ClusterproofError:
        raise
    except Exception as broken:
        problem = f"the wait itself broke: {type(broken).__name__}: {broken} ({raised_at(broken)})"
        return BAD_COMMAND_LINE, f"gate: {problem}\n"
    if is_over.is_set() and health.status == UNKNOWN:
        return (
            INTERRUPTED,
            f"gate: the wait for {order.node} was ended by a signal: {health.reason}: {health.message}\n",
        )
    return EXITS[health.status], f"gate: {outcome_text(order, health)}\n"


def _access(option: argparse.Namespace) -> Mapping[str, str]:
    """The access to the API server of X. Raises AwsError, InventoryError, KubernetesError."""
    return access_to(option.x, aws(option))


def _removed(option: argparse.Namespace) -> tuple[int, str]:
    """Remove what the gate wrote. Raises AwsError, InventoryError, KubernetesError."""
    written = remove(open_api(_access(option)))
    lines = [
        *(f"gate: {line}" for line in written.lines),
        *(f"gate: not removed: {problem}" for problem in written.problems),
    ]
    return EXIT_UNWRITTEN if written.problems else 0, "".join(f"{line}\n" for line in lines)


def _report(option: argparse.Namespace, _: Sequence[str], is_over: threading.Event) -> int:
    """Report the state of this node until a signal ends it.

    Raises ClusterproofError for an invalid policy, InventoryError for invalid expectations.
    """
    policy, expected = _expected(option.options)
    probe = ProbeOptions(collector_s=option.probe_timeout, checkpoints=policy.checkpoints, mounts=policy.mounts)
    note = UnchangedFile(Path(option.unchanged), findings_digest(policy, expected)).note if option.unchanged else id
    report_for_ever(option.every, probe, is_over, note)
    return 0


def _expected(options: str) -> tuple[Policy, Target]:
    """The gate's policy, and what this node is expected to have according to the further options.

    Raises ClusterproofError for an invalid policy, InventoryError for invalid expectations.
    """
    of_gate = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--instance-type", "--policy"):
        of_gate.add_argument(flag, default="")
    of_gate.add_argument("--expect", action=Joined)
    parsed, _ = of_gate.parse_known_args(options.split())
    policy = find_policy(parsed.policy, Path.cwd())
    cluster = Cluster("here", "local", (Target("here"),))
    return policy, with_expectations(cluster, parsed.instance_type, parsed.expect or "", policy.expect).targets[0]


def _over() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    return is_over
