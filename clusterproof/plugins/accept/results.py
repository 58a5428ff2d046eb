"""Results of an acceptance's runs on nodes, pairs and the cluster, each with the location of its evidence."""

from __future__ import annotations

from clusterproof.plugins.accept import NodeRun
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import Result


@record
class Failure:
    """Why a node was rejected."""

    stage: str
    check: str
    words: str
    action: str
    folder: str


@record
class OwnResult:
    """A check's result on a node in a run: its evidence, and for stage `speed` the measurements."""

    result: Result
    folder: str
    seen: NodeRun | None


@record
class OtherResult:
    """A finding on a pair or the cluster: the nodes of its run, and the location of its evidence."""

    stage: str
    nodes: frozenset[str]
    folder: str
    result: Result

    def speaks_of(self, node: str) -> bool:
        """Whether it is about a pair that includes the node."""
        return self.result.is_of_pair and node in self.result.node.split("~")
