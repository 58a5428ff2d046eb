"""Earlier findings on repaired nodes: from the history, and from the cases of jobs that they ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.opened import path_exists
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.strict import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history.past import nodes_of, read_before
from clusterproof.reports.history.store import own_path

A_CASE = "what clusterproof case JOB --json prints"
MAX_CASE_BYTES = 1 << 24
MAX_SHOWN_CHARACTERS = 80
_PROOF = re.compile(r"[A-Za-z0-9_.]{1,100}(?: or [A-Za-z0-9_.]{1,100}){0,99}", re.ASCII)


@record
class EarlierFinding:
    """An earlier finding on a node: a check by id, or checks whose names contain one of these words; and its source."""

    words: tuple[str, ...]
    source: str

    @property
    def shown(self) -> str:
        """The words on one line, without control characters: a history may be another user's."""
        return _one_line(" or ".join(self.words), MAX_CASE_BYTES)

    def is_about(self, check: str) -> bool:
        """Whether this check shows if it is gone."""
        return check in self.words or any(word in check.rpartition(".")[2] for word in self.words)


def before(
    cluster: Cluster, nodes: Sequence[str], history: str | None, cases: Sequence[str]
) -> Mapping[str, Sequence[EarlierFinding]]:
    """What failed on each node in the history without passing since, and what cases suspect.

    Raises InventoryError, HistoryError.
    """
    findings: dict[str, list[EarlierFinding]] = {node: [] for node in nodes}
    last, states = read_before(Path(history) if history else own_path(cluster.name), cluster.name)
    if history and last is None:
        raise InventoryError(f"--history {history!r:.120} has no run over {cluster.name}; expected one that has")
    for (check, named), state in states.items():
        for node in named.split("~") if state.verdict is Verdict.FAIL else ():  # both nodes of a pair
            if node in findings:
                findings[node].append(EarlierFinding((check,), "the history"))
    for path in cases:
        for node, finding in _of_case(path, nodes):
            findings[node].append(finding)
    return findings


def _of_case(path: str, nodes: Sequence[str]) -> Iterator[tuple[str, EarlierFinding]]:
    """For each of these nodes, the checks and load that can confirm or refute a case. Raises InventoryError."""
    text = read_text(path, A_CASE, MAX_CASE_BYTES)
    try:
        document = json.loads(text)
        suspects = {str(node) for node in (*document["nodes"], *document["suspects"])}
        proofs = [document["proof"], document["load"]]
        source = f"the case of {_one_line(str(document['case']), MAX_SHOWN_CHARACTERS)}"
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InventoryError(f"--case {path!r:.120} is none; expected {A_CASE}") from None
    if not any(proofs):
        raise InventoryError(f"--case {path!r:.120} names nothing that proves it; return without it")
    if wrong := next((proof for proof in proofs if proof and not _is_proof(proof)), None):
        raise InventoryError(f"--case {path!r:.120} is proven by {wrong!r:.80}; expected names of checks, with `or`")
    suspected = [node for node in nodes if node in suspects or node.partition(".")[0] in suspects]
    if not suspected:
        named = fold(sorted(suspects)) or "no node"
        raise InventoryError(f"--case {path!r:.120} suspects {named:.200}; expected one of {fold(nodes):.200}")
    for node in suspected:
        yield from ((node, EarlierFinding(tuple(proof.split(" or ")), source)) for proof in proofs if proof)


def _is_proof(proof: object) -> bool:
    return isinstance(proof, str) and bool(_PROOF.fullmatch(proof))


def _one_line(text: str, most: int) -> str:
    return printable(" ".join(text.split()), most)


def without_history(cluster: Cluster, nodes: Sequence[str], history: str | None) -> Mapping[str, str]:
    """A statement for each node without runs in the history: earlier findings on it are unknown.

    Raises HistoryError.
    """
    path = Path(history) if history else own_path(cluster.name)
    known = nodes_of(path, cluster.name) if path_exists(path) else ()
    message = "what was found before is not known; expected --history FILE or --case FILE, where something was"
    return {node: f"no history of {node} at {path}: {message}" for node in nodes if node not in known}
