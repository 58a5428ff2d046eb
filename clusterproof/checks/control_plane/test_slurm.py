"""Slurm: node states, GRES, the network, and settings of slurm.conf that cause harm later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.slurm.facts import DOWN_OR_DRAINED, DRAINED, STATES, SlurmCluster, SlurmNode

pytestmark = [mark.control_plane, mark.preflight, mark.hyperpod_slurm_debugger]

KNOWN = STATES - {"UNKNOWN", "UNK"}


@evidence("scontrol show node NODE; sinfo -R")
def test_slurm_nodes(node: Node) -> None:
    """Slurm node state.

    A node that is down, drained or failing gets no jobs, nor does one with fewer resources than in slurm.conf. One that
    is powered down to save power, or powering up, need not answer. If a node's GRES differs from its instance type's
    GPUs, jobs cannot use all of them, or do not start.

    Remedy (fix configuration): Fix what the reason names, then resume the node (scontrol update nodename=NODE
    state=resume). Correct GRES in gres.conf and slurm.conf, and restart slurmd.
    """
    in_slurm = node.slurm_node
    with part:
        bad = in_slurm.states & DOWN_OR_DRAINED
        fail_if(bad, f"Slurm reports it as {in_slurm.state}{in_slurm.why}; expected a node that takes jobs")
        is_silent = not bad and not in_slurm.answers and not in_slurm.is_in_power_saving
        concern_if(
            is_silent, f"slurmctld gets no response from it ({in_slurm.state}{in_slurm.why}); expected slurmd to answer"
        )
        if not in_slurm.states or in_slurm.states - KNOWN:
            incomplete(f"Slurm reports it as {in_slurm.state or 'nothing'}; expected a known state")
    if in_slurm.has_divided_gpus:
        return
    gpus, expected = in_slurm.gpus, node.expected("gpus")
    concern_if(gpus != expected, f"GRES {in_slurm.gres or '(null)'}; expected {expected} GPUs")


OUR_REASON = "clusterproof:"  # how the health check begins its reason for a drain
NO_LIMIT = ("", "65534", "INFINITE", "UNLIMITED")


@evidence("sinfo -R; scontrol show node NODE")
def test_slurm_nodes_take_jobs(cluster: ClusterFacts) -> None:
    """Slurm nodes accepting jobs.

    A job that needs all of them waits. A node drained by clusterproof's own health check is a concern: its reason says
    which check failed. A node that is powered down to save power, or powering up, is neither: a job has it powered up.
    No job starts in a partition that is DOWN or INACTIVE, and one that is DRAIN takes no new jobs.

    Remedy (restore service): Fix what the reason names, then resume the node (scontrol update nodename=NODE
    state=resume), or open the partition (scontrol update partitionname=PARTITION state=up).
    """
    nodes = cluster.slurm.nodes_in_same_partitions(_names(cluster))
    out = [node for node in nodes if not (node.takes_jobs or node.is_in_power_saving)]
    foreign = [node for node in out if not _is_drained_by_us(node)]
    fail_if(foreign, f"{_by_state(foreign)}; expected nodes that take jobs")
    ours = [node for node in out if node not in foreign]
    concern_if(ours, f"{_by_state(ours)}; expected nodes that take jobs")
    unclear = [node for node in nodes if node.states - STATES and node not in out]
    with part:
        if unclear:
            incomplete(f"{_by_state(unclear)}; expected known states")
    closed = [
        f"{fold(names)}: {states}"
        for states, names in cluster.slurm.nodes_in_closed_partitions(_names(cluster)).items()
    ]
    fail_if(closed, f"{', '.join(closed)}; expected each node in a partition that is UP")


@evidence("sinfo -N -o '%N %G'; nvidia-smi -L | wc -l")
def test_slurm_gres(cluster: ClusterFacts) -> None:
    """GPUs in Slurm (GRES).

    A job for all GPUs of such a node never starts, or starts with fewer than the node has.

    Remedy (fix configuration): Correct Gres= in slurm.conf and gres.conf, then restart slurmd and reconfigure (scontrol
    reconfigure).
    """
    slurm = {node.name: node for node in cluster.slurm.nodes}
    wrong: dict[str, list[str]] = defaultdict(list)
    unknown: list[str] = []
    divided: list[str] = []
    for name, node in cluster.nodes.items():
        if name not in slurm:
            unknown.append(f"Slurm knows no node {name}")
            continue
        try:
            if slurm[name].has_divided_gpus:
                divided.append(name)
                continue
            has, expected = slurm[name].gpus, node.expected("gpus")
        except Incomplete as why:
            unknown.append(f"{name}: {why}")
            continue
        if has != expected:
            wrong[f"GRES {slurm[name].gres or '(null)'} and {expected} GPUs"].append(name)
    seen = [f"{fold(names)} has {counts}" for counts, names in wrong.items()]
    fail_if(seen, f"{', '.join(seen)}; expected the same number")
    if unknown:
        more = f"; and {number_of(len(unknown) - 1, 'more node')}" if len(unknown) > 1 else ""
        raise Incomplete(unknown[0] + more, cause="the GPUs to expect are not known")
    if divided and len(divided) == len(cluster.nodes):
        not_applicable(f"Slurm counts parts of GPUs (MIG) on {fold(divided)}")


@evidence("scontrol show topology; scontrol show config | grep Topology")
def test_slurm_topology(cluster: ClusterFacts) -> None:
    """Slurm topology.

    Without a topology Slurm spreads jobs over racks needlessly, and nodes that are under no switch cannot share a job
    with others.

    Remedy (fix configuration): Write topology.conf (on HyperPod from the network layers that EC2 reports), and set
    TopologyPlugin.
    """
    nodes = [node.name for node in cluster.slurm.nodes_in_same_partitions(_names(cluster))]
    held = cluster.slurm.nodes_in_topology
    if held is None:
        few = cluster.threshold("slurm.nodes_without_topology")
        concern_if(len(nodes) > few, f"{len(nodes)} nodes and no topology; expected one for more than {few:g} nodes")
        return
    missing = set(nodes) - held
    concern_if(missing, f"{fold(missing)} not in any switch or block; expected every node in topology.conf")


@evidence("scontrol show config | grep -E 'Prolog|Epilog|HealthCheck'")
def test_slurm_config(cluster: ClusterFacts) -> None:
    """slurm.conf settings.

    Without a time limit a hanging prolog holds its node forever; without a health check nothing looks at idle nodes;
    and without PrologFlags=Alloc a prolog runs only when a job's first step reaches the node.

    Remedy (fix configuration): Set PrologEpilogTimeout, HealthCheckProgram with HealthCheckInterval, and
    PrologFlags=Alloc.
    """
    seen = list(_risks(cluster.slurm))
    concern_if(seen, f"{', '.join(seen)}; expected limits, a health check, and a prolog that comes first")


def _risks(slurm: SlurmCluster) -> Iterator[str]:
    has_prolog = bool(slurm.program("Prolog"))
    for name in ("Prolog", "Epilog"):
        if slurm.program(name) and slurm.limit_of(name) in NO_LIMIT:
            yield f"{name} has no time limit"
    if has_prolog and "alloc" not in slurm.setting("PrologFlags").lower():
        yield f"PrologFlags is {slurm.setting('PrologFlags') or 'not set'}"
    if not slurm.setting("HealthCheckProgram"):
        yield "HealthCheckProgram is not set"
    elif slurm.setting("HealthCheckInterval") == "0":
        yield "HealthCheckInterval is 0"


def _is_drained_by_us(node: SlurmNode) -> bool:
    """Whether nothing but our drain keeps jobs away: of a node that went down since, Slurm keeps our reason."""
    is_only_drained = node.answers and bool(node.states & DRAINED) and node.states & DOWN_OR_DRAINED <= DRAINED
    return is_only_drained and node.reason.startswith(OUR_REASON)


def _names(cluster: ClusterFacts) -> list[str]:
    return [member.name for member in cluster.members]


def _by_state(nodes: list[SlurmNode]) -> str:
    """`gpu[003-004] (IDLE+DRAIN: kernel upgrade)`, by state and reason."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        kinds[f"{node.state}{node.why}"].append(node.name)
    return ", ".join(f"{fold(names)}: {state}" for state, names in kinds.items())
