"""What a run asks people to do, in one line: `REPLACE gpu003 (row_remap) · CANNOT REACH gpu005 (refused) · 2 fit`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import ACTIONS, OF_HARDWARE, UNREACHABLE, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict
from clusterproof.reports.cut import cut_of
from clusterproof.reports.findings import shortened, within
from clusterproof.reports.standing import worst_of

COMMON_CAUSE = "find the common cause"
CANNOT_REACH = "cannot reach"
NOT_PROVEN = "not proven"
OTHER_FILES = "rules that need other files"
LOOK_AT = "look at"  # what is worth it; it keeps no node from work
MAX_NODES = 80  # characters of a nodeset
LEAST_TO_SHARE = 3  # failed nodes
MAX_REASONS = 2
MAX_REASON = 60  # characters of one


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do, for which nodes, and the checks or causes that ask for it, the most frequent first."""

    action: str
    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    of_what: str = "node"  # or pair, run, cluster
    titles: tuple[str, ...] = ()  # the same checks by their titles, and the same causes

    @property
    def words(self) -> str:
        """`FIX CONFIGURATION gpu[008-016] (memlock)`."""
        return f"{self.action.upper()} {self.where} ({self.why})"

    @property
    def where(self) -> str:
        """`gpu[008-016]`; with their number where there are too many names for a line."""
        if self.of_what == "cluster":
            return "the cluster"
        if self.of_what == "run":
            return f"run {self.nodes[0]}"
        nodes = within(fold(self.nodes), MAX_NODES)
        return f"{len(self.nodes)} {self.of_what}s ({nodes})" if nodes.endswith("…") else nodes

    @property
    def why(self) -> str:
        """`memlock, mtu, +3`."""
        return _some(self.reasons)

    @property
    def why_in_words(self) -> str:
        """`Locked memory limit, MTU, +3`."""
        return _some(self.titles)


def to_do(results: Iterable[Result], catalog: Catalog = PACKAGED) -> list[Task]:
    """Everything that there is to do, the gravest first; a node stands with each thing that it needs.

    What is only worth a look is named where there is nothing else.
    """
    results = list(results)
    of_all = _failed_by_all(results, catalog)
    findings = [one for result in results if result.verdict.is_finding for one in result.by_verdict]
    unfit = {result.node for result in findings if result.verdict is Verdict.FAIL or result.is_of_unreachable}
    if unfit and all(result.is_of_unreachable for result in results if result.is_of_node):
        unfit |= {result.node for result in findings if result.is_of_cluster}  # nothing is known of the whole
    asked: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for result in findings:
        action, reason = _asked(result)
        if action in OF_HARDWARE and result.check in of_all:
            action = COMMON_CAUSE
        if not (action == NOT_PROVEN and result.node in unfit):
            title = "" if action in (NOT_PROVEN, CANNOT_REACH) else result.title
            asked[action, _of_what(result)].append((result.node, reason, title or reason))
    tasks = []
    for (action, of_what), data in asked.items():
        nodes, reasons, titles = zip(*data, strict=True)
        tasks.append(
            Task(action, tuple(dict.fromkeys(nodes)), _by_frequency(reasons), of_what, titles=_by_frequency(titles))
        )
    graver = [task for task in tasks if task.action != LOOK_AT]
    return sorted(graver or tasks, key=_rank)


def to_do_line(results: Iterable[Result], catalog: Catalog = PACKAGED) -> str:
    """The same in one line, that the run was cut before all, and how many nodes are fit; empty without a result."""
    results = list(results)
    tasks, fit, cut = [task.words for task in to_do(results, catalog)], fit_nodes(results), cut_of(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    words = [*([cut.words] if cut else []), *(tasks or ["NOTHING TO DO"]), *([f"{fit} fit"] if has_nodes else [])]
    return " · ".join(words)


def shared_finding(results: Iterable[Result]) -> str:
    """`9 of 14 failed nodes share one finding: Locked memory limit`, where at least half of three or more do."""
    failed = [result for result in results if result.is_of_node and result.verdict is Verdict.FAIL]
    count = len({result.node for result in failed})
    found = Counter((result.check, result.title) for result in failed).most_common(1)
    if not found or count < LEAST_TO_SHARE or 2 * found[0][1] < count:
        return ""
    (check, title), nodes = found[0]
    return f"{nodes} of {count} failed nodes share one finding: {title or check}"


def fit_nodes(results: Iterable[Result]) -> int:
    """How many nodes are fit as far as they were checked."""
    of_nodes = worst_of(result for result in results if result.is_of_node)
    return sum(verdict in PROVEN for verdict in of_nodes.values())


def _failed_by_all(results: Sequence[Result], catalog: Catalog) -> set[str]:
    """The checks that all measured nodes fail, where these are not few: hardware fails one by one."""
    least = catalog.threshold("configuration.suspected_minimum_nodes")
    failed = Counter(one.check for one in results if one.verdict is Verdict.FAIL and one.is_of_node)
    suspected = {check for check, count in failed.items() if count >= least}
    passed = {one.check for one in results if one.check in suspected and one.verdict in PROVEN and one.is_of_node}
    return suspected - passed


def _asked(result: Result) -> tuple[str, str]:
    """The action that a finding asks for, and the reason."""
    name = result.check.rpartition(".")[2]
    if result.is_of_unreachable:
        return CANNOT_REACH, result.cause.removeprefix(UNREACHABLE)
    if result.verdict is Verdict.FAIL:
        return result.action or ACTIONS[-1], name
    if result.needs_other_files:
        return NOT_PROVEN, OTHER_FILES
    return (NOT_PROVEN, result.cause or name) if result.verdict is Verdict.INCOMPLETE else (LOOK_AT, name)


def _of_what(result: Result) -> str:
    if result.is_of_run:
        return "run"
    return "cluster" if result.is_of_cluster else "pair" if result.is_of_pair else "node"


def _by_frequency(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word, _ in Counter(words).most_common())


def _some(reasons: Iterable[str]) -> str:
    observed = list(dict.fromkeys(" ".join(reason.partition("; ")[0].split()) for reason in reasons))
    shown = [shortened(words, MAX_REASON) for words in observed[:MAX_REASONS]]
    more = [f"+{len(observed) - MAX_REASONS}"] if len(observed) > MAX_REASONS else []
    return ", ".join([*shown, *more])


def _rank(task: Task) -> tuple[int, int, int]:
    known = (COMMON_CAUSE, *ACTIONS, CANNOT_REACH, NOT_PROVEN, LOOK_AT)
    place = known.index(task.action) if task.action in known else known.index(CANNOT_REACH)
    return place, ("node", "pair", "run", "cluster").index(task.of_what), -len(task.nodes)
