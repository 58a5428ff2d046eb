"""Results of the runs of an acceptance, each with the folder of its evidence."""

from __future__ import annotations

from clusterproof.plugins.accept import NodeRun
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import Result


@record
class Failure:
    """Why a node was excluded."""

    stage: str
    check: str
    words: str
    action: str
    folder: str


@record
class OwnResult:
    """A check's result on a node in one run, with its folder; in the stage `speed`, with the measured values."""

    result: Result
    folder: str
    seen: NodeRun | None


@record
class OtherResult:
    """A finding about a pair or the cluster: the nodes of its run, and the folder of its evidence."""

    stage: str
    nodes: frozenset[str]
    folder: str
    result: Result

    def speaks_of(self, node: str) -> bool:
        """Whether it is of a pair that the node is one of."""
        return self.result.is_of_pair and node in self.result.node.split("~")
