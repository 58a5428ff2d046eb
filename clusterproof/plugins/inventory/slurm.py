"""`--cluster slurm:[PARTITION | NODESET | job:ID]`: nodes known to Slurm, reached by one srun."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.nodeset import NodesetError, expand, fold, is_address, is_user, within
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import answer_of
from clusterproof.plugins.evidence.slurm.facts import SlurmCluster, SlurmNode
from clusterproof.plugins.evidence.slurm.facts_jobs import SlurmJobs
from clusterproof.plugins.inventory.file import MAX_PORT
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.srun import COLLECTOR, JOBS, SETTING, ask_slurm, submit_host
from clusterproof.plugins.transport.srun.places import TAKING_STEPS

FORM = "slurm:, slurm:PARTITION, slurm:NODESET or slurm:job:ID"
VIA = "controller, nodes, or ssh:[user@]HOST[:port]"
_SUBMIT_HOST = re.compile(r"ssh:(?:([^:]+)@)?([^@:]+)(?::([0-9]{1,5}))?")
_SHOWN = 5  # kinds of omitted nodes in the header


def slurm(rest: str, options: Mapping[str, str]) -> Cluster:
    """The nodes of a partition, a nodeset or a job; else of the job that this runs in, or the default partition.

    Options: `via` locates Slurm's commands, `include_drained` keeps nodes that take no jobs. Raises
    InventoryError.
    """
    via = options.get("via", "controller")
    if via not in ("controller", "auto", "nodes") and not _is_submit_host(via):
        raise InventoryError(f"--via {via!r:.80} is not a way to a Slurm cluster; expected {VIA}")
    settings = {SETTING: via if via.startswith("ssh:") else "local"}
    try:
        return _cluster(rest, via, settings, options)
    except Incomplete as problem:
        raise InventoryError(
            f"--cluster {'slurm:' + rest!r:.90}: {problem}; expected a host where scontrol works "
            "(--via ssh:HOST for another)"
        ) from None


def _cluster(rest: str, via: str, settings: dict[str, str], options: Mapping[str, str]) -> Cluster:
    """The cluster, as Slurm reports it on the configured host. Raises InventoryError, Incomplete."""
    collectors = ask_slurm(submit_host(settings), Limits(), (COLLECTOR, JOBS))
    cluster = SlurmCluster(answer_of(COLLECTOR, collectors[COLLECTOR]).value)
    jobs = SlurmJobs(answer_of(JOBS, collectors[JOBS]).value)
    name, nodes = _chosen(cluster, jobs, rest)
    kept = [node for node in nodes if node.takes_jobs or options.get("include_drained")]
    if not kept:
        raise InventoryError(
            f"--cluster {'slurm:' + rest!r:.90}: no node of it takes jobs ({_left_out(nodes)}); expected at least one, "
            "or --include-drained"
        )
    if name in {partition.name for partition in cluster.partitions}:
        settings["partition"] = name
    if name.startswith("job:"):
        settings["job"] = jobs.number_of(name.removeprefix("job:"))
    if options.get("include_drained"):
        settings["beside"] = "ssh"
    left = [node for node in nodes if node not in kept]
    not_validated = [*([_left_out(left)] if left else []), *_other_parts(jobs, name, is_named=bool(rest))]
    return Cluster(
        f"slurm:{name}",
        "ssh" if via == "nodes" else "srun",
        tuple(_target(node) for node in kept),
        settings,
        notes=tuple(f"not validated: {what}" for what in not_validated),
        is_part=len(kept) < len(cluster.nodes),
    )


def _other_parts(jobs: SlurmJobs, name: str, *, is_named: bool) -> Iterator[str]:
    """The parts of a job that its number does not stand for; `is_named` unless it is the job that this runs in."""
    if not name.startswith("job:"):
        return
    job = name.removeprefix("job:")
    if components := jobs.other_components_of(job):
        yield f"the other components of this heterogeneous job, {listed(components)}"
    tasks = [task for task in jobs.tasks_of(job) if jobs.number_of(task) != job]
    if tasks and is_named:
        yield f"the other tasks of this array, {listed(tasks)}"


def _is_submit_host(via: str) -> bool:
    """Whether it is `ssh:[user@]HOST[:port]`."""
    form = _SUBMIT_HOST.fullmatch(via)
    if not form:
        return False
    user, host, port = form.groups("")
    return (not user or is_user(user)) and is_address(host) and 1 <= int(port or 1) <= MAX_PORT


def _chosen(cluster: SlurmCluster, jobs: SlurmJobs, rest: str) -> tuple[str, Sequence[SlurmNode]]:
    """The cluster's name, and its nodes. Raises InventoryError."""
    shown = f"--cluster {'slurm:' + rest!r:.90}"
    nodes = {node.name: node for node in cluster.nodes}
    if not rest and jobs.job:
        rest = f"job:{jobs.job}"
    if rest.startswith("job:"):
        names = jobs.nodes_of(rest.removeprefix("job:"))
        if not names:
            state, tasks = jobs.state_of(rest.removeprefix("job:")), jobs.tasks_of(rest.removeprefix("job:"))
            idle = f"is an array whose tasks {listed(tasks)} have nodes" if tasks else "does not run"
            seen = f"is {state}" if state else idle
            raise InventoryError(f"{shown}: job {rest[4:]!r:.40} {seen}; expected one of squeue -t {TAKING_STEPS}")
        return rest, _known(nodes, names, shown)
    partitions = {partition.name: partition for partition in cluster.partitions}
    default = next((name for name, partition in partitions.items() if partition.is_default), "")
    if not rest and not default:
        raise InventoryError(f"{shown}: no partition is the default; expected one of {listed(partitions)}")
    name = rest or default
    if name in partitions:
        return name, [node for node in nodes.values() if name in node.partitions]
    try:
        return name, _known(nodes, expand(name), shown)
    except NodesetError as problem:
        raise InventoryError(f"{shown}: {problem}; expected {FORM}") from None
    except InventoryError:
        if any(character in name for character in "[],") or name[-1:].isdecimal():
            raise
        hint = nearest(name, list(partitions))
        raise InventoryError(
            f"{shown} is neither a partition nor a node{hint}; expected one of {listed(partitions)}"
        ) from None


def _known(nodes: Mapping[str, SlurmNode], names: Iterable[str], shown: str) -> list[SlurmNode]:
    """The nodes of these names, in Slurm's order. Raises InventoryError for one that Slurm does not know."""
    wanted = set(names)
    strangers = wanted - set(nodes)
    if strangers:
        raise InventoryError(
            f"{shown}: Slurm knows no {within(fold(strangers), 80)}; expected some of {within(fold(nodes), 200)}"
        )
    return [node for name, node in nodes.items() if name in wanted]


def _target(node: SlurmNode) -> Target:
    """The target for a node; its instance type if a feature names one, as in ParallelCluster."""
    known = instance_types()
    named = [feature.removeprefix("ml.") for feature in node.features]
    return Target(
        name=node.name,
        address=node.address if node.address != node.name else "",
        group=node.partitions[0] if node.partitions else "",
        instance_type=next((name for name in named if name in known), ""),
    )


def _left_out(nodes: Iterable[SlurmNode]) -> str:
    """`gpu[003-004] (IDLE+DRAIN: kernel upgrade)`, the largest kinds first."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        kinds[f"{node.state}: {node.reason:.60}" if node.reason else node.state].append(node.name)
    largest = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    shown = [f"{fold(names)} ({reason})" for reason, names in largest[:_SHOWN]]
    more = sum(len(names) for _, names in largest[_SHOWN:])
    return ", ".join([*shown, f"{more} more"] if more else shown)
