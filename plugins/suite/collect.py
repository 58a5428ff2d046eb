"""Tests × nodes → items: light ones where a test asks for nothing but a node or its devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, is_of_aws, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.marks import marks_of_pytest
from clusterproof.plugins.core.result import ALL_PAIRS
from clusterproof.plugins.evidence.cluster import SLURM_COLLECTOR
from clusterproof.plugins.evidence.ec2.by_evidence import may_be_on_ec2
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS as OF_KUBERNETES
from clusterproof.plugins.suite.check import Check, check_of, is_light
from clusterproof.plugins.suite.check_item import CheckItem
from clusterproof.plugins.suite.selected import are_alike, is_selected
from clusterproof.plugins.suite.state import CLUSTER, PAIRWISE, TRAINING_RUN, is_of_instances

EVERY_NODE = ""  # stands in the place of their names until all is collected
# Marks that only pytest's own protocol honours: a test that carries one takes pytest's usual way.
_USUAL_WAY = frozenset({"parametrize", "skip", "skipif", "xfail", "usefixtures"})


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Collect a function whose one argument is a node or its device as one light item per node."""
    if not (isinstance(collector, pytest.Module) and _is_check(collector, name, obj)):
        return None
    marks = [*marks_of_pytest(obj), *collector.iter_markers()]
    cluster = collector.config.stash[CLUSTER]
    check = check_of(obj, marks)  # type: ignore[arg-type]
    item = CheckItem.from_parent(collector, check=check, function_name=name, node_name=EVERY_NODE)
    if check.is_of_run:
        run = collector.config.stash.get(TRAINING_RUN, None)
        return [item.on(run.name)] if run else []
    if not cluster.targets:
        return []  # a training run is evaluated on its own
    if check.is_of_pair:
        return of_pairs(item)
    if check.is_of_cluster and not can_answer(cluster, check):
        return []
    if check.is_of_cluster and not check.is_of_member:
        return [item.on(cluster.name)]
    if not is_selected(collector.config, marks):
        return [item.on(target.name) for target in cluster.targets[:1]]
    return [item] if are_alike(collector.config) else of_nodes(item)


def of_nodes(item: CheckItem) -> list[CheckItem]:
    """Its check on each node."""
    return [item.on(target.name) for target in item.config.stash[CLUSTER].targets]


def of_pairs(item: CheckItem) -> list[CheckItem]:
    """Its check on each pair that was measured; one that stands for all until it is known which they are."""
    run = item.config.stash.get(PAIRWISE, None)
    names = [pair.name for pair in run.pairs] if run else []
    return [item.on(name) for name in names or [ALL_PAIRS]]


def with_every_node(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items, those that stand for every node replaced by one for each."""
    return _expanded(items, lambda item: item.node_name == EVERY_NODE, of_nodes)


def with_measured_pairs(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items, those that stand for all pairs replaced by one for each that was measured."""
    return _expanded(items, lambda item: item.check.is_of_pair and item.node_name == ALL_PAIRS, of_pairs)


def _expanded(
    items: Iterable[pytest.Item],
    stands_for_more: Callable[[CheckItem], bool],
    into: Callable[[CheckItem], list[CheckItem]],
) -> list[pytest.Item]:
    made: list[pytest.Item] = []
    for item in items:
        made += into(item) if isinstance(item, CheckItem) and stands_for_more(item) else [item]
    return made


def expand_pairs(session: pytest.Session) -> None:
    """Now it is known which pairs there are: a test for each."""
    made = with_measured_pairs(session.items)
    session.testscollected += len(made) - len(session.items)
    session.items[:] = made


def can_answer(cluster: Cluster, check: Check) -> bool:
    """Whether the cluster has, or may turn out to have, the control plane that a check asks."""
    by_evidence = may_be_on_ec2(cluster)
    if not (by_evidence or is_of_aws(cluster) or is_of_slurm(cluster) or is_of_kubernetes(cluster)):
        return False  # known without a look at what the check needs
    if not OF_KUBERNETES.isdisjoint(check.control_collectors):
        return is_of_kubernetes(cluster)
    if check.control_collectors == {SLURM_COLLECTOR}:
        return is_of_slurm(cluster)
    return is_of_aws(cluster) or (by_evidence and is_of_instances(check.control_collectors))


def _is_check(collector: pytest.Module, name: str, obj: object) -> bool:
    """Whether a module's attribute is a test that can be a light item."""
    if not inspect.isfunction(obj) or not collector.funcnamefilter(name) or not is_light(obj):
        return False
    marks = [*marks_of_pytest(obj), *collector.iter_markers()]
    return _USUAL_WAY.isdisjoint(mark.name for mark in marks) and not _needs_fixtures(collector, obj)


def _needs_fixtures(collector: pytest.Module, function: Callable[..., Any]) -> bool:
    """Whether a fixture that is not ours takes part: one of a device's name, which then wins, or an autouse one."""
    manager = collector.session._fixturemanager  # noqa: SLF001 - pytest has no public name for it
    data = manager.getfixtureinfo(collector, function, None)  # type: ignore[arg-type] # a module will do
    return any(not is_ours(made) for every in data.name2fixturedefs.values() for made in every)


def is_ours(made: Any) -> bool:
    """Whether a fixture definition is the suite's own."""
    return str(made.func.__module__).startswith("clusterproof.fixtures.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for `node` and more pytest's usual way: one item per node."""
    if not asks_for_node(metafunc.definition) or _parametrizes_node(metafunc):
        return
    names = [target.name for target in metafunc.config.stash[CLUSTER].targets]
    metafunc.parametrize("node", names, ids=names, indirect=True, scope="session")


def asks_for_node(item: pytest.Item) -> bool:
    """Whether a test's `node` is ours: no fixture of another stands before it that does not itself ask for it."""
    data = getattr(item, "_fixtureinfo", None)
    for made in reversed(data.name2fixturedefs.get("node", ()) if data else ()):
        if is_ours(made):
            return True
        if "node" not in made.argnames:
            return False
    return False


def _parametrizes_node(metafunc: pytest.Metafunc) -> bool:
    """Whether the test brings nodes of its own."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any("node" in str(mark.args[0] if mark.args else mark.kwargs.get("argnames")) for mark in marks)
