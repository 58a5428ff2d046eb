"""Tests × nodes → items: light ones where a test asks for nothing but a node or its devices."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.check import Check, call, check_of, is_light, subjects_of
from clusterproof.plugins.facts.cluster import ClusterFacts
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.inventory import forms
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.result import ALL_PAIRS
from clusterproof.plugins.routing import SUBSYSTEMS
from clusterproof.plugins.state import (
    CLUSTER,
    CLUSTER_IS_MISSING,
    PAIRWISE,
    SLURM_LEAF,
    cluster_of,
    is_of_aws,
    is_of_slurm,
    nodes_of,
    pair_of,
)
from clusterproof.plugins.verdict import NotApplicable

if TYPE_CHECKING:
    from clusterproof.plugins.facts.pairwise import MeasuredPair, NoPairs

# Marks that only pytest's own protocol honours: a test that carries one takes pytest's usual way.
_USUAL_WAY = frozenset({"parametrize", "skip", "skipif", "xfail", "usefixtures"})


class CheckItem(pytest.Item):
    """A check on one node: one report where pytest's own items have three, and no fixtures."""

    def __init__(self, *, check: Check, node_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check
        self.node_name = node_name
        marks = getattr(check.function, "pytestmark", ())
        self.own_markers.extend(marks)
        self.keywords.update((mark.name, mark) for mark in marks)

    @property
    def obj(self) -> Any:
        """The test function."""
        return self.check.function

    def reportinfo(self) -> tuple[str, int, str]:
        """Where the check stands."""
        return self.check.path, self.check.line, self.name

    @property
    def location(self) -> tuple[str, int, str]:
        """Where the check stands, without pytest's search for it: it is asked for 40,000 times."""
        return self.nodeid.partition("::")[0], self.check.line, self.name

    def runtest(self) -> None:
        """Pytest's usual way, as `--pdb` takes it: the check alone, its exceptions let through."""
        subjects = list(subjects_of(self.check, self.owner))
        if not subjects:
            raise NotApplicable(f"no {self.check.subject} here")
        for subject in subjects:
            call(self.check, subject, self.owner)

    @property
    def owner(self) -> Node | ClusterFacts | MeasuredPair | NoPairs:
        """What the check is about: the node's facts, the cluster's, or a pair's."""
        if self.check.is_of_cluster:
            return cluster_of(self.config)
        if self.check.is_of_pair:
            return pair_of(self.config, self.node_name)
        return nodes_of(self.config)[self.node_name]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Collect a function whose one argument is a node or its device as one light item per node."""
    if not (isinstance(collector, pytest.Module) and _is_check(collector, name, obj)):
        return None
    marks = [*getattr(obj, "pytestmark", ()), *collector.iter_markers()]
    cluster = collector.config.stash.get(CLUSTER, None)
    if cluster is None:
        if any(mark.name in SUBSYSTEMS for mark in marks):
            collector.config.stash[CLUSTER_IS_MISSING] = True
            return []
        return None  # somebody else's test, who has a `node` of his own
    check = check_of(obj, marks)  # type: ignore[arg-type]
    if check.is_of_pair:
        return items_of_pairs(collector, name, check)
    if check.is_of_cluster:
        return [_item(collector, f"{name}[{cluster.name}]", check, cluster.name)] if can_tell(cluster, check) else []
    return [_item(collector, f"{name}[{target.name}]", check, target.name) for target in cluster.targets]


def items_of_pairs(collector: pytest.Collector, name: str, check: Check) -> list[CheckItem]:
    """One item for each pair that was measured; one that stands for all while nobody knows which they will be."""
    run = collector.config.stash.get(PAIRWISE, None)
    names = [pair.name for pair in run.pairs] if run else []
    return [_item(collector, f"{name}[{each}]", check, each) for each in names or [ALL_PAIRS]]


def with_measured_pairs(items: list[pytest.Item]) -> list[pytest.Item]:
    """The items, those that stand for all pairs replaced by one for each that was measured."""
    made: list[pytest.Item] = []
    for item in items:
        if isinstance(item, CheckItem) and item.parent and item.check.is_of_pair and item.node_name == ALL_PAIRS:
            made += items_of_pairs(item.parent, item.check.function.__name__, item.check)
        else:
            made.append(item)
    return made


def expand_pairs(session: pytest.Session) -> None:
    """Now it is known which pairs there are: a test for each."""
    made = with_measured_pairs(session.items)
    session.testscollected += len(made) - len(session.items)
    session.items[:] = made


def can_tell(cluster: Cluster, check: Check) -> bool:
    """Whether the cluster has the control plane that a check asks: of others there is nothing to ask."""
    if not (is_of_aws(cluster) or is_of_slurm(cluster)):
        return False  # known without a look at what the check needs
    return is_of_slurm(cluster) if check.control_leaves == {SLURM_LEAF} else is_of_aws(cluster)


def _item(collector: pytest.Collector, name: str, check: Check, node_name: str) -> CheckItem:
    """A check on one node. Pytest is given the id as text, and takes it apart at `[`: else `--lf` does not know it."""
    nodeid = f"{collector.nodeid}::{name}"
    return CheckItem.from_parent(collector, name=name, nodeid=nodeid, check=check, node_name=node_name)


NO_CLUSTER = f"no cluster to validate; say which: --cluster {forms()}"


def _is_check(collector: pytest.Module, name: str, obj: object) -> bool:
    """Whether a module's attribute is a test that can be a light item."""
    if not inspect.isfunction(obj) or not collector.funcnamefilter(name) or not is_light(obj):
        return False
    marks = [*getattr(obj, "pytestmark", ()), *collector.iter_markers()]
    return _USUAL_WAY.isdisjoint(mark.name for mark in marks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `node` and more pytest's usual way: one item per node."""
    cluster = metafunc.config.stash.get(CLUSTER, None)
    if cluster is None or "node" not in metafunc.fixturenames or _parametrizes_node(metafunc):
        return
    names = [target.name for target in cluster.targets]
    metafunc.parametrize("node", names, ids=names, indirect=True, scope="session")


def _parametrizes_node(metafunc: pytest.Metafunc) -> bool:
    """Whether the test brings nodes of its own."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any("node" in str(mark.args[0] if mark.args else mark.kwargs.get("argnames")) for mark in marks)
