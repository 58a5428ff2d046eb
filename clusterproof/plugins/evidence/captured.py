"""What a node has only where somebody captured it: logs of NCCL, and the node as Slurm has it.

The classes are loaded when there is something for them to read: in a prolog there is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import captured_as, collected_by

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node
    from clusterproof.plugins.evidence.perf.facts_logs import NcclTests
    from clusterproof.plugins.evidence.slurm.facts import SlurmNode, SlurmNodes


def _nccl_tests(logs: Mapping[str, Any]) -> NcclTests:
    """Every captured log of NCCL."""
    from clusterproof.plugins.evidence.perf.facts_logs import NcclTests

    return NcclTests(logs)


def _slurm_nodes(captured: Mapping[str, Any]) -> SlurmNodes:
    """The nodes that were captured: this one, or the whole cluster."""
    from clusterproof.plugins.evidence.slurm.facts import SlurmNodes

    return SlurmNodes(captured)


nccl_tests = captured_as("nccl_tests", _nccl_tests, "log of nccl-tests or NCCL")
slurm_nodes = captured_as("slurm_node", _slurm_nodes, "output of scontrol or sinfo")


@collected_by()
def slurm_node(node: Node) -> SlurmNode:
    """This node as Slurm has it, by the inventory's name or its own."""
    return node.slurm_nodes.named(node.name, *_own_names(node))


def _own_names(node: Node) -> list[str]:
    try:
        return [node.boot.hostname, node.boot.hostname.partition(".")[0]]
    except Incomplete:
        return []
