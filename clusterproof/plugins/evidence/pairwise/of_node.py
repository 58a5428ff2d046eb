"""What was measured between a node and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import collected_by

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node
    from clusterproof.plugins.evidence.pairwise.facts import PairsOfNode


@collected_by()
def pairwise(node: Node) -> PairsOfNode:
    """The measurements of pairs that it took part in. Raises Incomplete, NotApplicable."""
    if node.between is None:
        why = "nothing was measured between nodes"
        raise Incomplete(why, cause=why)
    return node.between.of_node(node.name)
