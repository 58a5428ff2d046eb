"""The items of a run: light ones for checks of a node, without pytest's fixtures; and the subject of any item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from clusterproof.plugins.core.marks import marks_of_pytest
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evaluation.check import SUBJECTS, Check, CheckOwner
from clusterproof.plugins.evaluation.evaluate import Examined, not_run, raised_by, verdict_on
from clusterproof.plugins.evaluation.routing import Route, route
from clusterproof.plugins.evidence.cluster import ClusterFacts, why_not_queried
from clusterproof.plugins.evidence.kubernetes.facts_cluster import NodeOfCluster
from clusterproof.plugins.suite.state import (
    CLUSTER,
    ROUTES,
    TRAINING_RUN,
    cluster_of,
    names_of,
    nodes_of,
    pair_of,
    policy_of,
)

# Attributes of every pytest item that light items create on demand: for 600,000 items they would take 1 GB.
_OF_PYTEST = frozenset(
    {"keywords", "own_markers", "extra_keyword_matches", "stash", "_store", "_report_sections", "user_properties"}
)


class CheckItem(pytest.Item):
    """A check of one node: one report instead of pytest's three, and no fixtures.

    It stores only what distinguishes it from others. Its name and id are computed on demand, and so is what pytest
    stores in an item.
    """

    __slots__ = (
        "check",
        "collector",
        "evaluated",
        "function_name",
        "is_whole",
        "kept_id",
        "marks",
        "node_name",
        "raised",
    )
    evaluated: Result | None  # set if it ran by pytest's own protocol
    raised: BaseException | None

    def __init__(
        self,
        *,
        parent: pytest.Collector,
        check: Check,
        function_name: str,
        node_name: str,
        marks: Sequence[pytest.Mark] | None = None,
    ) -> None:
        self.parent = self.collector = parent
        self.is_whole = False
        self.config = parent.config
        self.session = parent.session
        self.path = parent.path
        self.check = check
        self.function_name = function_name
        self.node_name = node_name
        self.marks = marks_of_pytest(check.function) if marks is None else marks  # of its function
        self.evaluated = None
        self.kept_id = ""
        self.raised = None

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PYTEST:
            self.is_whole = True
            super().__init__(self.name, self.parent, nodeid=self.nodeid)
            self.own_markers.extend(self.marks)
            self.keywords.update((mark.name, mark) for mark in self.marks)
            return getattr(self, name)
        if name == "name":
            return f"{self.function_name}[{self.node_name}]"
        if name == "_nodeid":
            return self.nodeid
        if name == "_id":  # of pytest from 9.1 on: split at `[`, else `--lf` does not recognize it
            return type(self.collector._id).parse(self.nodeid)  # noqa: SLF001
        raise AttributeError(name)

    @property
    def nodeid(self) -> str:
        """The pytest id: file, function and node."""
        return self.kept_id or f"{self.collector.nodeid}::{self.function_name}[{self.node_name}]"

    def keep_id(self) -> None:
        """From now on return the identical string object whenever the id is read."""
        self.kept_id = self.nodeid

    def on(self, node_name: str) -> CheckItem:
        """The same check on another node."""
        item = CheckItem.__new__(CheckItem)  # pytest's constructor takes twice as long, for 150,000 items
        CheckItem.__init__(
            item,
            parent=self.collector,
            check=self.check,
            function_name=self.function_name,
            node_name=node_name,
            marks=self.marks,
        )
        return item

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[pytest.Item | Any, pytest.Mark]]:
        """Its marks and those of its parents, without storing a list of its own if it has none."""
        for mark in self.own_markers if self.is_whole else self.marks:
            if name is None or mark.name == name:
                yield self, mark
        yield from self.collector.iter_markers_with_node(name)

    @property
    def obj(self) -> Any:
        """The test function."""
        return self.check.function

    def reportinfo(self) -> tuple[str, int, str]:
        """The location of the check."""
        return self.check.path, self.check.line, self.name

    @property
    def location(self) -> tuple[str, int, str]:
        """The location of the check, without pytest's search for it: it is read 40,000 times."""
        return self.collector.nodeid, self.check.line, self.name

    def runtest(self) -> None:
        """Called by pytest's own protocol for plugins that observe tests, and under `--pdb`.

        Raises the check's outcome: AssertionError, Incomplete or pytest's skip.
        """
        self.evaluated = self.result()
        self.raised = ended_as(self.evaluated)
        if self.raised and self.config.option.usepdb and self.evaluated.verdict.is_finding:
            self.raised = raised_by(self.check, self.owner, self.evaluated.verdict) or self.raised
        if self.raised:
            raise self.raised

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:  # noqa: ARG002
        """The check's message instead of pytest's traceback, which costs 50 ms each."""
        return str(excinfo.value)

    @property
    def owner(self) -> CheckOwner:
        """What the check is about."""
        return owner_of(self.config, self.check, self.node_name)

    @property
    def why_not_queried(self) -> str:
        """Why the cluster has no control plane for the check; empty if it needs none, or has it."""
        if not self.check.is_of_cluster:
            return ""
        return why_not_queried(self.config.stash[CLUSTER], self.check.control_collectors)

    def result(self, examined: Examined | None = None) -> Result:
        """Evaluate the check, or use `examined` if it was called already."""
        why, policy = self.why_not_queried, policy_of(self.config)
        if why:
            owner = cluster_of(self.config)
            result = replace(not_run(self.check, owner, why), subject=subject_of(self.check, owner))
            return result if policy.disables(result.check, result.node) else policy.read(result)
        return verdict_on(policy, self.check, self.owner, examined)


def owner_of(config: pytest.Config, check: Check, name: str) -> CheckOwner:
    """What a check is about: the node's facts, the cluster's, a pair's, or a training run's."""
    if check.subject in SUBJECTS:
        return nodes_of(config)[name]
    if check.is_of_member and name in nodes_of(config):
        return NodeOfCluster(nodes_of(config)[name], cluster_of(config))
    if check.is_of_cluster:
        return cluster_of(config)
    if check.is_of_run:
        return config.stash[TRAINING_RUN]
    return pair_of(config, name)


def subject_of(check: Check, owner: CheckOwner) -> str:
    """What a result is about: where no control plane lists members for a check to look at, the cluster."""
    return "cluster" if check.is_of_member and isinstance(owner, ClusterFacts) else check.subject


def ended_as(result: Result) -> BaseException | None:
    """The outcome that pytest's own items would have, for plugins that observe tests; None if passed."""
    if result.verdict is Verdict.FAIL:
        return AssertionError(result.message)
    if result.verdict is Verdict.INCOMPLETE:
        return Incomplete(result.message, result.cause)
    if result.verdict is Verdict.NOT_APPLICABLE:
        return pytest.skip.Exception(result.message)
    return None


def route_of(item: pytest.Item) -> Route | None:
    """The route of an item, or None if it is not about a node."""
    if isinstance(item, CheckItem):
        return item.check.route
    if not node_name(item):
        return None
    routes = item.config.stash[ROUTES]
    function = item.function  # type: ignore[attr-defined]
    if function not in routes:
        routes[function] = route(function, item.iter_markers())
    return routes[function]


def node_name(item: pytest.Item) -> str:
    """The node that an item is about, else empty."""
    if isinstance(item, CheckItem):
        return item.node_name
    callspec = getattr(item, "callspec", None)
    if callspec is None or not asks_for_node(item):
        return ""
    name = str(callspec.params.get("node"))
    return name if name in names_of(item.config) else ""


def is_ours(made: Any) -> bool:
    """Whether a fixture definition is the suite's own."""
    return str(made.func.__module__) == "clusterproof.fixtures"


def asks_for_node(item: pytest.Item) -> bool:
    """Whether a test's `node` is ours: not overridden by a fixture that does not itself use ours."""
    info = getattr(item, "_fixtureinfo", None)
    for made in reversed(info.name2fixturedefs.get("node", ()) if info else ()):
        if is_ours(made):
            return True
        if "node" not in made.argnames:
            return False
    return False
