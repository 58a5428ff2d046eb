"""What runs of an acceptance say of nodes, of pairs and of the cluster, each with where its evidence is."""

from __future__ import annotations

from clusterproof.plugins.accept import NodeRun
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import Result


@record
class Failure:
    """Why a node was taken out."""

    stage: str
    check: str
    words: str
    action: str
    folder: str


@record
class OwnResult:
    """What a check said of a node in a run: where its evidence is, and of the stage `speed` what was measured."""

    result: Result
    folder: str
    seen: NodeRun | None


@record
class OtherResult:
    """What a check of a pair or of the cluster does not call fine: the nodes of its run, and where its evidence is."""

    stage: str
    nodes: frozenset[str]
    folder: str
    result: Result

    def speaks_of(self, node: str) -> bool:
        """Whether it is of a pair that the node is one of."""
        return self.result.is_of_pair and node in self.result.node.split("~")
