"""Earlier findings on repaired nodes, from the history and from cases of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.opened import is_there
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.strict import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history.past import nodes_of, read_before
from clusterproof.reports.history.store import own_path

A_CASE = "what clusterproof case JOB --json prints"
MAX_CASE_BYTES = 1 << 24


@record
class EarlierFinding:
    """What was found on a node before its repair: a check's id, or words of check names; and the source."""

    words: tuple[str, ...]
    source: str

    def is_about(self, check: str) -> bool:
        """Whether this check tells if it is gone."""
        return check in self.words or any(word in check.rpartition(".")[2] for word in self.words)


def before(
    cluster: Cluster, nodes: Sequence[str], history: str | None, cases: Sequence[str]
) -> Mapping[str, Sequence[EarlierFinding]]:
    """What history says failed on each node and did not pass since, and what cases suspect.

    Raises InventoryError, HistoryError.
    """
    findings: dict[str, list[EarlierFinding]] = {node: [] for node in nodes}
    last, last_verdicts = read_before(Path(history) if history else own_path(cluster.name), cluster.name)
    if history and last is None:
        raise InventoryError(f"--history {history!r:.120} has no run over {cluster.name}; expected one that has")
    for (check, named), verdict in last_verdicts.items():
        for node in named.split("~") if verdict is Verdict.FAIL else ():  # of a pair both
            if node in findings:
                findings[node].append(EarlierFinding((check,), "the history"))
    for path in cases:
        for node, finding in _of_case(path, nodes):
            findings[node].append(finding)
    return findings


def _of_case(path: str, nodes: Sequence[str]) -> Iterator[tuple[str, EarlierFinding]]:
    """The checks and the load that are to prove what a case says, for each of these nodes. Raises InventoryError."""
    text = read_text(path, A_CASE, MAX_CASE_BYTES)
    try:
        document = json.loads(text)
        suspects = {str(node) for node in (*document["nodes"], *document["suspects"])}
        proofs = [document["proof"], document["load"]]
        source = f"the case of {printable(str(document['case']), 80)}"
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InventoryError(f"--case {path!r:.120} is none; expected {A_CASE}") from None
    if not any(proofs):
        raise InventoryError(f"--case {path!r:.120} names nothing that proves it; return without it")
    suspected = [node for node in nodes if node in suspects or node.partition(".")[0] in suspects]
    if not suspected or not all(isinstance(proof, str) for proof in proofs):
        named = fold(sorted(suspects)) or "no node"
        raise InventoryError(f"--case {path!r:.120} suspects {named:.200}; expected one of {fold(nodes):.200}")
    for node in suspected:
        yield from ((node, EarlierFinding(tuple(proof.split(" or ")), source)) for proof in proofs if proof)


def without_history(cluster: Cluster, nodes: Sequence[str], history: str | None) -> Mapping[str, str]:
    """Of each node that no run of the history has: that what was found on it before is not known.

    Raises HistoryError.
    """
    path = Path(history) if history else own_path(cluster.name)
    known = nodes_of(path, cluster.name) if is_there(path) else ()
    words = "what was found before is not known; expected --history FILE or --case FILE, where something was"
    return {node: f"no history of {node} at {path}: {words}" for node in nodes if node not in known}
