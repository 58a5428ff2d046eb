"""Groups results for people: one finding for each check, one gap for each cause, nodes folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import HARDWARE_ACTIONS, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import action_and_reason, action_rank_of, failed_by_all, owner_of

_NOUNS = {
    "gpu": ("GPU", "GPUs"),
    "efa_device": ("EFA device", "EFA devices"),
    "ib_device": ("device", "devices"),
    "mount": ("mount", "mounts"),
}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """A check's failures, or its concerns, over all nodes. `evaluated` counts the nodes that the check applied to."""

    results: tuple[Result, ...]
    evaluated: int
    is_probably_configuration: bool
    actions: tuple[str, ...] = ()  # requested actions, the most severe first

    @property
    def first(self) -> Result:
        """One of its results, for common values: title, owner, remedy."""
        return self.results[0]

    @property
    def of_each_cause(self) -> tuple[Result, ...]:
        """One of its results for each remedy: nodes are unreachable for several reasons."""
        return tuple({remedied_like(result): result for result in reversed(self.results)}.values())[::-1]

    @property
    def suspicion(self) -> str:
        """What it suggests that so many equal nodes are affected, or empty."""
        if self.first.is_of_unreachable:
            return _all_unreachable(self.results, self.evaluated)
        if not self.is_probably_configuration:
            return ""
        of_what = "pairs" if self.first.is_of_pair else "nodes"
        affected = f"{self.count:,} of {self.evaluated:,} {of_what} alike"
        if self.first.action in HARDWARE_ACTIONS:
            return f"{affected}: look first for what they share: image, driver, threshold, rack"
        return f"{affected}: probably configuration, not hardware"

    @property
    def count(self) -> int:
        """How many nodes, or pairs, it is about: a parametrized test has several results on each."""
        return len({result.node for result in self.results})

    @property
    def nodes(self) -> str:
        """Its nodes, folded."""
        return fold(result.node for result in self.results)

    def where(self, nodes: str) -> str:
        """`3 of 16 nodes (gpu[003,007-008]), 5 GPUs`; `nodes` overrides the nodeset."""
        if self.first.is_of_cluster:
            return f"cluster {nodes}"
        if self.first.is_of_run:
            return f"run {nodes}"
        of_what = ("pair", "pairs") if self.first.is_of_pair else ("node", "nodes")
        share = f"{self.count:,} of {number_of(self.evaluated, *of_what)} ({nodes})"
        devices = len({(result.node, device) for result in self.results for device in result.devices})
        noun = _NOUNS.get(self.first.subject)
        return f"{share}, {number_of(devices, *noun)}" if noun and devices else share

    @property
    def owner(self) -> str:
        """`hyperpod-node-debugger § G`."""
        return owner_of(self.first)

    @property
    def lines(self) -> list[str]:
        """The observations, one line for nodes with the same: `gpu[003-004]: GPU 2: 14 errors; expected 0`."""
        return [f"{nodes}: {message}" for nodes, message in self._nodes_and_messages()]

    def lines_within(self, most: int) -> list[str]:
        """The same in about so many characters each, without cutting node names or words."""
        return [
            line if len(line) <= most else f"{within(nodes, most // 2)}: {shortened(message, most // 2)}"
            for line, (nodes, message) in zip(self.lines, self._nodes_and_messages(), strict=True)
        ]

    def _nodes_and_messages(self) -> list[tuple[str, str]]:
        nodes: dict[str, list[str]] = defaultdict(list)
        for result in self.results:
            for line in result.message.split("\n"):
                nodes[line].append(result.node)
        return [(fold(names), line) for line, names in nodes.items()]


def remedied_like(result: Result) -> str:
    """What results of one check share that have one remedy: it names the node if that did not answer."""
    return result.cause if result.is_of_unreachable or not result.is_evaluated else result.remedy


@dataclass(frozen=True, slots=True)
class Gap:
    """One reason why verdicts are missing."""

    cause: str
    results: tuple[Result, ...]
    evaluated: int  # nodes
    is_joined: bool = False  # of several reasons, which its messages are
    is_told: bool = False  # by the check of reachability, which says why each of these nodes is not reached

    @property
    def nodes(self) -> str:
        """The affected nodes, folded."""
        return fold({result.node for result in self.results})

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks without a verdict."""
        return tuple(sorted({result.check for result in self.results}))

    @property
    def what(self) -> str:
        """`12 checks`, or a single check's id."""
        return self.checks[0] if len(self.checks) == 1 else f"{len(self.checks)} checks"

    @property
    def needs_other_files(self) -> bool:
        """Whether the reason is that no file of a run has what these checks evaluate."""
        return all(result.needs_other_files for result in self.results)

    @property
    def of_reaching(self) -> tuple[Result, ...]:
        """The finding on reaching the nodes, if that is the reason."""
        return tuple(result for result in self.results if result.reports_unreachable)

    @property
    def suspicion(self) -> str:
        """What it suggests that no node was reached, or empty."""
        return _all_unreachable(self.of_reaching, self.evaluated)

    @property
    def messages(self) -> list[str]:
        """What the checks said, where it is more than the cause; of nodes not reached, what reaching them met."""
        reported = self.of_reaching or (() if self.is_told else self.results)
        lines = {line for result in reported for line in result.message.split("\n")} - {self.cause, ""}
        return sorted(line.removeprefix(f"{self.cause}: ") for line in lines)

    @property
    def details(self) -> list[str]:
        """What the checks said beside a common cause; none if it is joined of several reasons."""
        return self.messages if self._has_cause and not self.is_joined else []

    @property
    def further(self) -> str:
        """` (and 2 more lines)`, where there is no common cause, and the first message stands for it."""
        lines = [] if self._has_cause else self.messages
        return f" (and {number_of(len(lines), 'more line')})" if lines else ""

    @property
    def _has_cause(self) -> bool:
        return any(result.cause for result in self.results)


def with_verdict(results: Iterable[Result], verdict: Verdict) -> Iterator[Result]:
    """The part of the results with this verdict."""
    return (part for result in results for part in result.by_verdict if part.verdict is verdict)


def parts(results: Iterable[Result]) -> Iterator[Result]:
    """The parts of the results by verdict, and of what is incomplete by cause."""
    for result in results:
        for part in result.by_verdict:
            yield from part.by_cause if part.verdict is Verdict.INCOMPLETE else (part,)


def findings(results: Sequence[Result], verdict: Verdict, catalog: Catalog) -> list[FindingGroup]:
    """The findings with one verdict by urgency, then by number of nodes."""
    evaluated: dict[str, set[str]] = defaultdict(set)
    for result in results:
        if result.verdict is not Verdict.NOT_APPLICABLE:
            evaluated[result.check].add(result.node)
    hits: dict[str, list[Result]] = defaultdict(list)
    for hit in with_verdict(results, verdict):
        hits[hit.check].append(hit)
    of_all = failed_by_all(results, catalog)
    findings = [
        FindingGroup(
            tuple(group),
            len(evaluated[check]),
            _is_probably_configuration(group, len(evaluated[check]), catalog),
            tuple(dict.fromkeys(action_and_reason(result, of_all)[0] for result in sorted(group, key=_placed(of_all)))),
        )
        for check, group in hits.items()
    ]
    return sorted(
        findings,
        key=lambda finding: (
            min(map(_placed(of_all), finding.results)),
            -finding.count,
            finding.first.check,
        ),
    )


def _placed(of_all: Collection[str]) -> Callable[[Result], tuple[int, int]]:
    return lambda result: action_rank_of(result, of_all)


def missing_evidence(results: Iterable[Result]) -> list[Gap]:
    """The reasons for missing verdicts: unreachable nodes first, then by number of checks."""
    results = list(results)
    nodes = len({result.node for result in results if result.is_of_node})
    causes: dict[str, list[Result]] = defaultdict(list)
    for hit in parts(results):
        if hit.verdict is Verdict.INCOMPLETE:
            causes[hit.cause or hit.message.partition("\n")[0]].append(hit)
    unreachable = {result.node for result in results if result.reports_unreachable}
    every = [
        Gap(
            cause,
            tuple(hit),
            nodes,
            is_told=hit[0].is_of_unreachable and unreachable.issuperset(result.node for result in hit),
        )
        for cause, hit in causes.items()
    ]
    return sorted(every, key=lambda gap: (not gap.results[0].is_of_unreachable, -len(gap.results), gap.cause))


def missing_evidence_in_short(results: Iterable[Result]) -> list[Gap]:
    """The same, with all rules of a run that lack files merged into one."""
    every = missing_evidence(results)
    others = [gap for gap in every if gap.needs_other_files]
    if len(others) < 2:
        return every
    hits = tuple(result for gap in others for result in gap.results)
    cause = f"{len({hit.check for hit in hits})} rules need other files; -v lists them and what writes them"
    return [*(gap for gap in every if gap not in others), Gap(cause, hits, others[0].evaluated, is_joined=True)]


def shortened(text: str, most: int) -> str:
    """A text in so many characters, cut between words if possible."""
    if len(text) <= most:
        return text
    before = text[:most].rpartition(" ")[0]
    if before.strip():
        return f"{before}…"
    word = text.partition(" ")[0]
    return f"{within(word, most) if '[' in word else text[:most]}…"


# Errors that the caller's side may cause; others are caused by the node, its scheduler or a recording.
_ON_THE_WAY = {
    Unreached.REFUSED,
    Unreached.TIMED_OUT,
    Unreached.NAME,
    Unreached.NO_ROUTE,
    Unreached.HOST_KEY,
    Unreached.AUTH,
    Unreached.NOT_CONNECTED,
    Unreached.API,
    Unreached.LOST,
}


def _all_unreachable(results: Sequence[Result], evaluated: int) -> str:
    """What it suggests that all nodes are unreachable for one reason; empty if they are not."""
    is_all = 1 < evaluated == len({result.node for result in results})
    causes = {result.unreached for result in results}
    has_one_cause = is_all and len(causes) == 1 and causes <= _ON_THE_WAY
    return (
        f"all {evaluated} nodes alike: look first at where you ask from: its key, user, network"
        if has_one_cause
        else ""
    )


def _is_probably_configuration(hit: Sequence[Result], evaluated: int, catalog: Catalog) -> bool:
    """Whether so many nodes share a failure that hardware is unlikely to be the cause.

    With four nodes, one slow node is in half of all pairs, and a slow rack in most: only a failure of all pairs counts.
    """
    share = 1 if hit[0].is_of_pair else catalog.threshold("configuration.suspected_share")
    nodes = len({result.node for result in hit})
    return evaluated >= catalog.threshold("configuration.suspected_minimum_nodes") and nodes >= evaluated * share
