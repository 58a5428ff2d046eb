"""What the plugin keeps in pytest's stash, and how it is asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.evidence import NodeEvidence, Unreached
from clusterproof.plugins.facts.cluster import ClusterFacts
from clusterproof.plugins.facts.group import Group
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.facts.window import BOOT, Window, window
from clusterproof.plugins.inventory.model import Cluster
from clusterproof.plugins.policy.model import NO_POLICY, Policy
from clusterproof.plugins.routing import OCCASIONS, Route

if TYPE_CHECKING:
    from clusterproof.plugins.facts.pairwise import MeasuredPair, NoPairs, PairwiseRun

CLUSTER: pytest.StashKey[Cluster] = pytest.StashKey()
CLUSTER_IS_MISSING: pytest.StashKey[bool] = pytest.StashKey()  # a check was collected, and no --cluster given
EVIDENCE: pytest.StashKey[dict[str, NodeEvidence]] = pytest.StashKey()
CONTROL_PLANE: pytest.StashKey[NodeEvidence] = pytest.StashKey()
WHOLE: pytest.StashKey[ClusterFacts] = pytest.StashKey()
NAMES: pytest.StashKey[frozenset[str]] = pytest.StashKey()
NODES: pytest.StashKey[Mapping[str, Node]] = pytest.StashKey()
POLICY: pytest.StashKey[Policy] = pytest.StashKey()
PAIRWISE: pytest.StashKey[PairwiseRun] = pytest.StashKey()
PAIRS: pytest.StashKey[Mapping[str, MeasuredPair]] = pytest.StashKey()
SLURM_LEAF = "slurm"  # all others of a control plane are AWS's
ROUTES: pytest.StashKey[dict[Callable[..., Any], Route]] = pytest.StashKey()


def is_of_aws(cluster: Cluster) -> bool:
    """Whether AWS knows the cluster: its inventory came from there, now or when it was recorded."""
    return "region" in cluster.settings


def is_of_slurm(cluster: Cluster) -> bool:
    """Whether Slurm knows the cluster: there is a host where its commands are, now or when it was recorded."""
    return "submit_host" in cluster.settings


def cluster_of(config: pytest.Config) -> ClusterFacts:
    """The run's cluster, with what AWS told of it."""
    if WHOLE not in config.stash:
        cluster = config.stash[CLUSTER]
        told = config.stash.get(CONTROL_PLANE, None) or NodeEvidence(cluster.name)
        config.stash[WHOLE] = ClusterFacts(cluster, told, nodes_of(config), config.stash.get(POLICY, NO_POLICY))
    return config.stash[WHOLE]


def pair_of(config: pytest.Config, name: str) -> MeasuredPair | NoPairs:
    """A pair that was measured, by its name; what stands for all where none was."""
    if PAIRS not in config.stash:
        run = config.stash.get(PAIRWISE, None)
        config.stash[PAIRS] = {pair.name: pair for pair in run.pairs} if run else {}
    return config.stash[PAIRS].get(name) or _no_pairs(config, name)


def _no_pairs(config: pytest.Config, name: str) -> NoPairs:
    from clusterproof.plugins.facts.pairwise import NoPairs  # few runs measure pairs

    run = config.stash.get(PAIRWISE, None)
    return NoPairs(name, (run.why_not if run else "") or "nothing was measured between nodes")


def names_of(config: pytest.Config) -> frozenset[str]:
    """The names of the run's nodes."""
    if NAMES not in config.stash:
        config.stash[NAMES] = frozenset(target.name for target in config.stash[CLUSTER].targets)
    return config.stash[NAMES]


def nodes_of(config: pytest.Config) -> Mapping[str, Node]:
    """The nodes of the run by name, with what each told."""
    if NODES not in config.stash:
        cluster, evidence = config.stash[CLUSTER], config.stash.get(EVIDENCE, {})
        told = {target.name: evidence.get(target.name) or _not_asked(target.name) for target in cluster.targets}
        config.stash[NODES] = nodes(
            cluster,
            told,
            occasion_of(config.option.markexpr),
            config.stash.get(POLICY, NO_POLICY),
            window(config.option.since),
            config.stash.get(PAIRWISE, None),
        )
    return config.stash[NODES]


def nodes(
    cluster: Cluster,
    told: Mapping[str, NodeEvidence],
    occasion: str = "preflight",
    policy: Policy = NO_POLICY,
    since: Window = BOOT,
    between: PairwiseRun | None = None,
) -> dict[str, Node]:
    """The nodes of a cluster by name, each beside those of its group."""
    groups: dict[tuple[str, str], Group] = defaultdict(Group)
    made: dict[str, Node] = {}
    for target in cluster.targets:
        node = Node(target, told[target.name], occasion, policy, since, between=between)
        group = groups[target.group, node.type_name]
        made[target.name] = replace(node, group=group)
        group.nodes.append(made[target.name])
    return made


def _not_asked(name: str) -> NodeEvidence:
    return NodeEvidence(name, unreached=Unreached.LOST, detail="the run ended before this node answered")


def occasion_of(markexpr: str) -> str:
    """The one occasion that `-m` asks for, for rules that differ by it; preflight where it asks for none or several."""
    asked = _named(markexpr) & set(OCCASIONS)
    return asked.pop() if len(asked) == 1 else "preflight"


def is_named(markexpr: str, mark: str) -> bool:
    """Whether `-m` asks for a mark, and does not only rule it out."""
    return mark in _named(markexpr)


def _named(markexpr: str) -> set[str]:
    words = markexpr.replace("(", " ").replace(")", " ").split()
    return {word for before, word in zip(["", *words], words) if before != "not"}  # noqa: B905
