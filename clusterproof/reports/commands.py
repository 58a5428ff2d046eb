"""Lines to copy: what does what an action asks for, in the words of the cluster, and what runs checks again.

They are printed, never run. An action has none where no one command is right: a configuration is fixed in its image,
and a node that cannot be reached may be running. Names come from nodes, inventories and recordings: one that is not
plain keeps the line from being printed. A scheduler is told to give the node no more jobs; only what `clusterproof
return` has proven is given back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import join, quote

from clusterproof.plugins.core.cluster import Cluster, Target, is_of_hyperpod, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import OF_HARDWARE
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.findings import with_verdict
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import Task

MAX_IDS = 25  # nodes in one call of BatchRebootClusterNodes or BatchReplaceClusterNodes
MAX_CHECKS = 40  # by name; more of them are run all
MAX_COMMAND = 2_000  # characters that fill half a screen; the page has every command whole
REPLACE, REBOOT = OF_HARDWARE
_IS_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}").fullmatch
_INSTANCE = re.compile(r"(?:^|-)(i-[0-9a-f]{8,17})$")


def commands(task: Task, cluster: Cluster | None) -> list[str]:
    """What a shell takes to do it, a command a line; none where there is no command for it."""
    if cluster is None or task.action not in OF_HARDWARE or task.of_what != "node":
        return []
    if not all(map(_IS_NODE, task.nodes)):
        return []
    lines = list(_lines(task, cluster))
    if not all(map(str.isprintable, lines)):
        return []
    is_demo = cluster.connection == "replay" and cluster.name == "demo"  # whose names may be those of real nodes
    return [f"# {line}" for line in lines] if is_demo else lines


def short_commands(task: Task, cluster: Cluster | None) -> list[str]:
    """The same, where they are not too long for a screen or a mail."""
    lines = commands(task, cluster)
    return lines if sum(map(len, lines)) <= MAX_COMMAND else []


def _lines(task: Task, cluster: Cluster) -> Iterator[str]:
    targets = {target.name: target for target in cluster.targets}
    asked = [targets[node] for node in task.nodes if node in targets]
    instances = [named[1] for target in asked if (named := _INSTANCE.search(target.address))]
    if len(asked) < len(task.nodes):
        return
    if is_of_hyperpod(cluster) and len(instances) == len(asked):
        yield from _of_hyperpod(task.action, cluster, instances)
    elif is_of_slurm(cluster):
        yield _of_slurm(task)
    elif is_of_kubernetes(cluster):
        yield join(["kubectl", *_context(cluster.settings), "cordon", *task.nodes])
    elif task.action == REBOOT and len(instances) == len(asked):
        yield join(["aws", "ec2", "reboot-instances", *_where(cluster.settings), "--instance-ids", *instances])
    elif task.action == REBOOT and "ssh" in (cluster.connection, cluster.settings.get("recorded_by")):
        yield from _by_ssh(asked)


def _of_hyperpod(action: str, cluster: Cluster, instances: Sequence[str]) -> Iterator[str]:
    call = "batch-replace-cluster-nodes" if action == REPLACE else "batch-reboot-cluster-nodes"
    words = ["aws", "sagemaker", call, *_where(cluster.settings), "--cluster-name", _name(cluster), "--node-ids"]
    for first in range(0, len(instances), MAX_IDS):
        yield join([*words, *instances[first : first + MAX_IDS]])


def _name(cluster: Cluster) -> str:
    """The name of a HyperPod cluster, or its ARN where another inventory has given it another name."""
    return cluster.name if re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9-]{0,62}", cluster.name) else cluster.settings["arn"]


def _of_slurm(task: Task) -> str:
    reason = quote(f"clusterproof: {task.why}")
    return f"scontrol update nodename={quote(fold(task.nodes))} state=drain reason={reason}"


def give_back(nodes: Sequence[str], cluster: Cluster) -> list[str]:
    """What lets a scheduler give jobs to these nodes again; none where it is not known which it is."""
    if not nodes or not all(map(_IS_NODE, nodes)):
        return []
    if is_of_slurm(cluster):
        return [f"scontrol update nodename={quote(fold(nodes))} state=resume"]
    if is_of_kubernetes(cluster):
        return [join(["kubectl", *_context(cluster.settings), "uncordon", *nodes])]
    return []


def _context(settings: Mapping[str, str]) -> list[str]:
    way, _, name = settings["kubernetes"].partition(":")
    return [f"--context={name}"] if way == "context" and name else []


def _where(settings: Mapping[str, str]) -> Iterator[str]:
    for name in ("region", "profile"):
        if settings.get(name):
            yield from (f"--{name}", settings[name])


def _by_ssh(asked: Iterable[Target]) -> Iterator[str]:
    """One line for the nodes that are reached as the same user at the same port."""
    alike: dict[tuple[str, int], list[str]] = {}
    for target in asked:
        address = target.address or target.name
        if not _IS_NODE(address):
            return
        alike.setdefault((target.user, target.port), []).append(address)
    for (user, port), addresses in alike.items():
        as_user = ["-l", user] if user else []
        at_port = ["-o", f"-p {port}"] if port else []
        yield join(["clush", *as_user, *at_port, "-w", fold(addresses), "sudo systemctl reboot"])


def again(run: Run, verdict: Verdict) -> str:
    """What a shell takes to run again the checks that have this verdict, on the nodes that do; empty: none.

    A check that is evaluated by pairs is run on all nodes: what is normal for one depends on the others.
    """
    results = list(with_verdict(run.results, verdict))
    if not results:
        return ""
    nodes = {result.node for result in results if _IS_NODE(result.node)}
    checks = list(dict.fromkeys(result.check.rpartition(".")[2] for result in results))
    words = list(run.command)
    if (
        nodes
        and all(result.is_of_node for result in results)
        and run.evaluated_by_pairs.isdisjoint(result.check for result in results)
    ):
        words += ["--nodes", fold(nodes)]
    if len(checks) <= MAX_CHECKS:
        words += ["-k", " or ".join(f"test_{name}" for name in checks)]
    return join(words)
