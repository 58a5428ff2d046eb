"""What is collected by hand and not by the probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import captured_as, collected_by
from clusterproof.plugins.evidence.nccl.facts import NcclTests
from clusterproof.plugins.evidence.slurm.facts import SlurmNode, SlurmNodes

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


nccl_tests = captured_as("nccl_tests", NcclTests, "log of nccl-tests or NCCL")
slurm_nodes = captured_as("slurm_node", SlurmNodes, "answer of scontrol or sinfo")


@collected_by()
def slurm_node(node: Node) -> SlurmNode:
    """This node as Slurm has it, by the inventory's name or its own."""
    return node.slurm_nodes.named(node.name, *_own_name(node))


def _own_name(node: Node) -> list[str]:
    try:
        return [node.boot.hostname, node.boot.hostname.partition(".")[0]]
    except Incomplete:
        return []
