"""Reports of a run, made from its results, without pytest.

This module: the wording of a result, shared by all reports; actions and their order; and which nodes are fit, not fit,
not proven, or interrupted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.result import ACTIONS, ALL_PAIRS, HARDWARE_ACTIONS, UNREACHABLE, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict

MAX_ATTRIBUTE = 500  # characters of a message; the element's text is complete


class Owned(Protocol):
    """A result or a check's metadata: what has an owner."""

    @property
    def owner(self) -> str:
        """The owning skill."""

    @property
    def section(self) -> str:
        """Its section, or empty."""


def result_text(result: Result) -> str:
    """A result for people: observed, expected, how to reproduce it, owner, remedy."""
    seen = [("", f"{result.node}: {line}") for line in result.message.split("\n")]  # no line begins with a node's text
    rows = [
        *seen,
        ("by hand", result.evidence),
        ("owner", owner_of(result)),
        ("means", result.meaning),
        ("do", result.remedy),
    ]
    return "\n".join(f"{word}: {text}" if word else text for word, text in rows if text)


def owner_of(result: Result) -> str:
    """The owner of a result: in a site's own words, the skill on HyperPod, or `hardware`."""
    return result.team or result.skill


OF_HYPERPOD = "on HyperPod the skill"


def extra_skill(result: Result) -> str:
    """The skill that a finding is routed to on HyperPod, if its owner is somebody else: for small print."""
    return f"{OF_HYPERPOD} {result.skill}" if result.skill and result.team not in ("", result.skill) else ""


def skill_of(owned: Owned) -> str:
    """`hyperpod-node-debugger § G`."""
    return f"{owned.owner} § {owned.section}" if owned.section else owned.owner


def legal(text: str) -> str:
    """The text without characters that are invalid in XML 1.0."""
    return _ILLEGAL.sub("�", text)


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


BROKEN = "tests.broken"  # the name in reports for tests that broke without a verdict


def with_broken(results: Sequence[Result], broken: int, cluster: str) -> list[Result]:
    """The results, plus one for broken tests, if any: what they should have checked is unknown."""
    if not broken:
        return list(results)
    count = f"{number_of(broken, 'test')} broke"
    message = f"{count}, and what they check is not known; expected a verdict of each; pytest's own lines say where"
    of_broken = Result(BROKEN, cluster, Verdict.INCOMPLETE, "Tests that broke", message, cause=count, subject="cluster")
    return [*results, of_broken]


COMMON_CAUSE = "find the common cause"
CANNOT_REACH = "cannot reach"
NOT_PROVEN = "not proven"
OTHER_FILES = "rules that need other files"
LOOK_AT = "look at"  # for concerns, which keep no node from work
_KNOWN = (COMMON_CAUSE, *ACTIONS, CANNOT_REACH, NOT_PROVEN, LOOK_AT)
_OF_RUN = (*_KNOWN[:-2], LOOK_AT, NOT_PROVEN)  # most rules of a run lack their files
_SUBJECTS = ("node", "pair", "run", "cluster")


def action_and_reason(result: Result, of_all: Collection[str]) -> tuple[str, str]:
    """The action for a finding, and the reason; `of_all` are the checks that all nodes fail."""
    name = result.check.rpartition(".")[2]
    if result.is_of_unreachable:
        return CANNOT_REACH, result.cause.removeprefix(UNREACHABLE)
    if result.verdict is Verdict.FAIL:
        action = result.action or ACTIONS[-1]
        return (COMMON_CAUSE if action in HARDWARE_ACTIONS and result.check in of_all else action), name
    if result.needs_other_files:
        return NOT_PROVEN, OTHER_FILES
    return (NOT_PROVEN, result.cause or name) if result.verdict is Verdict.INCOMPLETE else (LOOK_AT, name)


def action_rank(action: str, subject: str) -> tuple[int, int]:
    """Sort key of an action: the most severe first; actions that only a site knows last."""
    known = _OF_RUN if subject == "run" else _KNOWN
    return known.index(action if action in known else CANNOT_REACH), _SUBJECTS.index(subject)


def action_rank_of(result: Result, of_all: Collection[str]) -> tuple[int, int]:
    """Sort key of the action for a finding."""
    return action_rank(action_and_reason(result, of_all)[0], subject_in_a_word(result))


def subject_in_a_word(result: Result) -> str:
    """What it is about: a node, a pair, a run, or the cluster."""
    if result.is_of_run:
        return "run"
    return "cluster" if result.is_of_cluster else "pair" if result.is_of_pair else "node"


def about(result: Result) -> tuple[str, str]:
    """The subject by name: a cluster may have the name of its only node."""
    return subject_in_a_word(result), result.node


def failed_by_all(results: Sequence[Result], catalog: Catalog) -> set[str]:
    """The checks that all of several measured nodes fail: hardware does not fail everywhere at once."""
    least = catalog.threshold("configuration.suspected_minimum_nodes")
    hits = {(result.check, result.node) for result in results if result.verdict is Verdict.FAIL and result.is_of_node}
    failed = Counter(check for check, _ in hits)
    suspected = {check for check, count in failed.items() if count >= least}
    passed = {
        result.check
        for result in results
        if result.check in suspected and result.verdict in PROVEN and result.is_of_node
    }
    return suspected - passed


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
        f"{number:,} {state}" for number, state in counts if number
    )
    cluster_state_text, run = (
        next((state for verdict, state in _OF_ONE if verdict in of), "") for of in (of_cluster, of_run)
    )
    if of_cluster and not (cluster_state_text or worst or pairs or of_run):
        cluster_state_text = "none applies"
    return "; ".join(
        filter(
            None,
            (
                nodes if worst or not (of_cluster or pairs or of_run) else "",
                pairs,
                f"cluster-wide checks: {cluster_state_text.removeprefix('is ')}" if cluster_state_text else "",
                f"the training run {run or 'is not checked: no check applies'}" if of_run else "",
            ),
        )
    )


def worst_of(results: Iterable[Result]) -> dict[str, Verdict]:
    """The worst verdict on each node, or pair, in these results."""
    worst: dict[str, Verdict] = {}
    for result in results:
        before = worst.get(result.node)
        if before is None or result.verdict.rank < before.rank:
            worst[result.node] = result.verdict
    return worst


def pairs_by_verdict(results: Iterable[Result]) -> Counter[Verdict]:
    """The number of measured pairs, by the worst verdict on each."""
    of_pairs = (result for result in results if result.is_of_pair and result.node != ALL_PAIRS)
    return Counter(worst_of(of_pairs).values())


def _of_pairs(results: Iterable[Result], is_all: bool) -> str:
    """What is wrong with pairs; without nodes in the results, also that nothing is."""
    results = [result for result in results if result.is_of_pair]
    worst = pairs_by_verdict(results)
    if results and not worst:
        return "no pair of nodes was measured"
    counts = ((worst[Verdict.FAIL], "failed"), (worst[Verdict.INCOMPLETE], "not proven"))
    counts_in_words = [f"{number:,} {state}" for number, state in counts if number]
    if not counts_in_words and is_all:
        is_checked = worst[Verdict.PASS] or worst[Verdict.CONCERN]
        counts_in_words = ["fit" if is_checked else "not checked: no check applies"]
    return (
        f"{number_of(worst.total(), 'pair', 'pairs')} of nodes: {', '.join(counts_in_words)}"
        if worst and counts_in_words
        else ""
    )


def cluster_state(results: Iterable[Result]) -> str:
    """The whole cluster in a word or two: `not fit` for training, `not proven`, or `fit`."""
    verdicts = {result.verdict for result in results}
    if not verdicts - {Verdict.NOT_APPLICABLE}:
        return "not checked"
    if Verdict.FAIL in verdicts:
        return "not fit"
    return "not proven" if Verdict.INCOMPLETE in verdicts else "fit"


_OF_ONE = (  # subjects that exist once: the cluster, a training run
    (Verdict.FAIL, "failed"),
    (Verdict.INCOMPLETE, "is not proven (evidence is missing)"),
    (Verdict.CONCERN, "passed"),
    (Verdict.PASS, "passed"),
)


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A run that ended early: how many of its checks were complete, and on how many nodes."""

    ended: int
    chosen: int
    whole: int
    nodes: int

    @property
    def description(self) -> str:
        """`INTERRUPTED: 6,601 of 21,000 checks ended, all of them on 110 of 600 nodes`."""
        of_nodes = f", all of them on {self.whole:,} of {self.nodes:,} nodes" if self.nodes else ""
        return f"INTERRUPTED: {self.ended:,} of {self.chosen:,} checks ended{of_nodes}"


def cut_of(results: Iterable[Result]) -> EarlyEnd | None:
    """What of a run is missing; None where it evaluated all that was chosen."""
    results = [result for result in results if result.check != BROKEN]
    missing = [result for result in results if not result.is_evaluated]
    if not missing:
        return None
    nodes = {result.node for result in results if result.is_of_node}
    cut = {result.node for result in missing if result.is_of_node}
    return EarlyEnd(len(results) - len(missing), len(results), len(nodes - cut), len(nodes))
