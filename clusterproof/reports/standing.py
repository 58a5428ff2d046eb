"""How a cluster stands: what of it is fit, what is not, what was not proven, what was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.result import ALL_PAIRS, Result
from clusterproof.plugins.core.verdict import Verdict


def headline(results: Iterable[Result]) -> str:
    """How many nodes are fit, and how many pairs are not, in one line."""
    results = list(results)
    worst = worst_of(result for result in results if result.is_of_node)
    pairs = _of_pairs(results, is_all=not worst)
    of_cluster = {result.verdict for result in results if result.is_of_cluster}
    of_run = {result.verdict for result in results if result.is_of_run}
    of = Counter(worst.values())
    counts = (
        (of[Verdict.PASS] + of[Verdict.CONCERN], "fit"),
        (of[Verdict.FAIL], "failed"),
        (of[Verdict.INCOMPLETE], "not proven (evidence is missing)"),
        (of[Verdict.NOT_APPLICABLE], "not checked: no check applies"),
    )
    nodes = f"{number_of(len(worst), 'node', 'nodes')}: " + ", ".join(
        f"{number} {words}" for number, words in counts if number
    )
    whole, run = (next((words for verdict, words in _OF_ONE if verdict in of), "") for of in (of_cluster, of_run))
    if of_cluster and not (whole or worst or pairs or of_run):
        whole = "none applies"
    return "; ".join(
        filter(
            None,
            (
                nodes if worst or not (of_cluster or pairs or of_run) else "",
                pairs,
                f"cluster-wide checks: {whole.removeprefix('is ')}" if whole else "",
                f"the training run {run or 'is not checked: no check applies'}" if of_run else "",
            ),
        )
    )


def worst_of(results: Iterable[Result]) -> dict[str, Verdict]:
    """The worst verdict on each node, or pair, that these results are about."""
    worst: dict[str, Verdict] = {}
    for result in results:
        before = worst.get(result.node)
        if before is None or result.verdict.rank < before.rank:
            worst[result.node] = result.verdict
    return worst


def pairs_by_verdict(results: Iterable[Result]) -> Counter[Verdict]:
    """How many pairs were measured, by the worst verdict on each."""
    of_pairs = (result for result in results if result.is_of_pair and result.node != ALL_PAIRS)
    return Counter(worst_of(of_pairs).values())


def _of_pairs(results: Iterable[Result], is_all: bool) -> str:
    """What is wrong with pairs; where there is no word of nodes also that nothing is."""
    results = [result for result in results if result.is_of_pair]
    worst = pairs_by_verdict(results)
    if results and not worst:
        return "no pair of nodes was measured"
    counts = ((worst[Verdict.FAIL], "failed"), (worst[Verdict.INCOMPLETE], "not proven"))
    data = [f"{number} {words}" for number, words in counts if number]
    if not data and is_all:
        is_checked = worst[Verdict.PASS] or worst[Verdict.CONCERN]
        data = ["fit" if is_checked else "not checked: no check applies"]
    return f"{number_of(worst.total(), 'pair', 'pairs')} of nodes: {', '.join(data)}" if worst and data else ""


def standing(results: Iterable[Result]) -> str:
    """The whole cluster in a word or two: `not fit` for training, `not proven`, or `fit`."""
    data = {result.verdict for result in results}
    if not data - {Verdict.NOT_APPLICABLE}:
        return "not checked"
    if Verdict.FAIL in data:
        return "not fit"
    return "not proven" if Verdict.INCOMPLETE in data else "fit"


_OF_ONE = (  # what is evaluated once: the cluster as a whole, a training run
    (Verdict.FAIL, "failed"),
    (Verdict.INCOMPLETE, "is not proven (evidence is missing)"),
    (Verdict.CONCERN, "passed"),
    (Verdict.PASS, "passed"),
)


@dataclass(frozen=True, slots=True)
class Cut:
    """How many of the chosen checks ended before the run did, and on how many of its nodes all of them."""

    ended: int
    chosen: int
    whole: int
    nodes: int

    @property
    def words(self) -> str:
        """`INTERRUPTED: 6,601 of 21,000 checks ended, all of them on 110 of 600 nodes`."""
        of_nodes = f", all of them on {self.whole:,} of {self.nodes:,} nodes" if self.nodes else ""
        return f"INTERRUPTED: {self.ended:,} of {self.chosen:,} checks ended{of_nodes}"


def cut_of(results: Iterable[Result]) -> Cut | None:
    """What of a run is missing; None where it evaluated all that was chosen."""
    results = list(results)
    missing = [result for result in results if not result.is_evaluated]
    if not missing:
        return None
    nodes = {result.node for result in results if result.is_of_node}
    return Cut(len(results) - len(missing), len(results), len(nodes - {result.node for result in missing}), len(nodes))
