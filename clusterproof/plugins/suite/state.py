"""The plugin's data in pytest's stash, and functions to access it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster, is_of_aws, is_of_kubernetes
from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.opened import DISK_FULL
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.evaluation.routing import OCCASIONS, Route
from clusterproof.plugins.evidence.aws.by_evidence import Instances, may_be_on_ec2
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kernel_log.window import window
from clusterproof.plugins.evidence.node import HEALTH_CHECK, Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.reports.topology import Topology, topology

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.facts import MeasuredPair, NoPairs, PairwiseRun
    from clusterproof.plugins.core.result import Result
    from clusterproof.plugins.training_run.run import TrainingRun

CLUSTER: pytest.StashKey[Cluster] = pytest.StashKey()
EVIDENCE: pytest.StashKey[dict[str, NodeEvidence]] = pytest.StashKey()
CONTROL_PLANE: pytest.StashKey[NodeEvidence] = pytest.StashKey()
CLUSTER_FACTS: pytest.StashKey[ClusterFacts] = pytest.StashKey()
NAMES: pytest.StashKey[frozenset[str]] = pytest.StashKey()
NODES: pytest.StashKey[Mapping[str, Node]] = pytest.StashKey()
POLICY: pytest.StashKey[Policy] = pytest.StashKey()
PAIRWISE: pytest.StashKey[PairwiseRun] = pytest.StashKey()
PAIRS: pytest.StashKey[Mapping[str, MeasuredPair]] = pytest.StashKey()
TRAINING_RUN: pytest.StashKey[TrainingRun] = pytest.StashKey()
UNWRITTEN: pytest.StashKey[dict[str, str]] = pytest.StashKey()  # by option, why a file could not be written
FULL: pytest.StashKey[bool] = pytest.StashKey()  # whether a full disk prevented a report
PYTEST_PROTOCOL: pytest.StashKey[bool] = pytest.StashKey()  # light items run by pytest's own protocol
ROUTES: pytest.StashKey[dict[Callable[..., Any], Route]] = pytest.StashKey()


_FREE_SPACE = "expected room for all of it: make room, or name another place, and run again"


def note_full(config: pytest.Config, problem: Exception) -> None:
    """Record a full disk if that prevented a report: the run then ends with an error."""
    if getattr(problem, "errno", None) in DISK_FULL or getattr(problem, "is_of_full_disk", False):
        config.stash[FULL] = True


def note_unwritten(config: pytest.Config, option: str, problem: OSError) -> None:
    """Keep the message about a file that could not be written: the run continues without it."""
    note_full(config, problem)
    where = f"{problem.filename}: " if problem.filename else ""
    config.stash.setdefault(UNWRITTEN, {}).setdefault(option, f"{where}{problem.strerror or problem}; {_FREE_SPACE}")


def tell_plugins(config: pytest.Config, result: Result) -> None:
    """Pass a result to every plugin that wants it. The run and its reports go on if a third party's breaks.

    A plugin may end the run by pytest.exit, but not when it is told what was not evaluated for that.
    """
    try:
        config.hook.pytest_cluster_result(config=config, result=result)
    except Exception as problem:
        if isinstance(problem, pytest.exit.Exception) and result.is_evaluated:
            raise
        note_full(config, problem)
        why = " ".join(f"{type(problem).__name__}: {problem} ({raised_at(problem)})".split())
        config.stash.setdefault(UNWRITTEN, {}).setdefault("what pytest_cluster_result passes on", why)


def policy_of(config: pytest.Config) -> Policy:
    """The site's policy, with displayable names; an empty one if there is none."""
    return config.stash.get(POLICY, NO_POLICY)


def catalog_of(config: pytest.Config) -> Catalog:
    """The thresholds that apply to the run."""
    return Catalog.of(policy_of(config))


def cluster_of(config: pytest.Config) -> ClusterFacts:
    """The run's cluster, with what its control plane reported."""
    if CLUSTER_FACTS not in config.stash:
        cluster = config.stash[CLUSTER]
        evidence = config.stash.get(CONTROL_PLANE, None) or NodeEvidence(cluster.name)
        instances = Instances.of(config.stash.get(EVIDENCE, {}).values()) if may_be_on_ec2(cluster) else None
        seen = instances.cluster(cluster) if instances else cluster
        config.stash[CLUSTER_FACTS] = ClusterFacts(seen, evidence, nodes_of(config), policy_of(config), instances)
    return config.stash[CLUSTER_FACTS]


def topology_of(config: pytest.Config) -> Topology | None:
    """The locations of the run's nodes, as far as known; None unless the cluster is in AWS or Kubernetes."""
    cluster = config.stash[CLUSTER]
    return topology(cluster_of(config)) if is_of_aws(cluster) or is_of_kubernetes(cluster) else None


def pair_of(config: pytest.Config, name: str) -> MeasuredPair | NoPairs:
    """A measured pair by name; the placeholder for all if none was measured."""
    if PAIRS not in config.stash:
        run = config.stash.get(PAIRWISE, None)
        config.stash[PAIRS] = {pair.name: pair for pair in run.pairs} if run else {}
    return config.stash[PAIRS].get(name) or _no_pairs(config, name)


def _no_pairs(config: pytest.Config, name: str) -> NoPairs:
    from clusterproof.plugins.benchmarks.pairwise.facts import NoPairs  # few runs measure pairs

    run = config.stash.get(PAIRWISE, None)
    return NoPairs(name, (run.why_not if run else "") or "nothing was measured between nodes")


def names_of(config: pytest.Config) -> frozenset[str]:
    """The names of the run's nodes."""
    if NAMES not in config.stash:
        config.stash[NAMES] = frozenset(target.name for target in config.stash[CLUSTER].targets)
    return config.stash[NAMES]


def nodes_of(config: pytest.Config) -> Mapping[str, Node]:
    """The nodes of the run by name, with their evidence."""
    if NODES not in config.stash:
        cluster, evidence = config.stash[CLUSTER], config.stash.get(EVIDENCE, {})
        evidence_by_node = {
            target.name: evidence.get(target.name) or _not_queried(target.name) for target in cluster.targets
        }
        config.stash[NODES] = nodes(
            cluster,
            evidence_by_node,
            occasion_of(config.option.markexpr),
            policy_of(config),
            window(config.option.since),
            config.stash.get(PAIRWISE, None),
        )
    return config.stash[NODES]


def _not_queried(name: str) -> NodeEvidence:
    return NodeEvidence(name, unreached=Unreached.LOST, detail="the run ended before this node answered")


_WORD = re.compile(r"[()]|[^\s()]+")


def occasion_of(markexpr: str) -> str:
    """The occasion that `-m` selects, for rules that depend on it: a health check includes all those around jobs.

    Preflight if it selects none, or several.
    """
    named = _named(markexpr) & set(OCCASIONS)
    if named == {"prolog", "epilog"}:
        return HEALTH_CHECK
    return named.pop() if len(named) == 1 else "preflight"


def is_named(markexpr: str, mark: str) -> bool:
    """Whether `-m` names a mark other than to exclude it."""
    return mark in _named(markexpr)


def requires(markexpr: str, mark: str) -> bool:
    """Whether `-m` selects only tests with a mark."""
    return is_named(markexpr, mark) and "or" not in markexpr.replace("(", " ").replace(")", " ").split()


def _named(markexpr: str) -> set[str]:
    """The words of an expression, without the marks that it excludes, alone or in brackets: `not (perf or ami)`."""
    named: set[str] = set()
    are_excluded, is_not = [False], False  # in each bracket that is open; behind a `not`
    for word in _WORD.findall(markexpr):
        if word == "not":
            is_not = not is_not
            continue
        if word == "(":
            are_excluded.append(are_excluded[-1] != is_not)
        elif word == ")":
            are_excluded = are_excluded[:-1] or [False]
        elif are_excluded[-1] == is_not:
            named.add(word)
        is_not = False
    return named
