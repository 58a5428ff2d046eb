"""The nodes of a run, each with the others of its group and all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.evidence.group import Group
from clusterproof.plugins.evidence.kernel_log.window import BOOT, Window
from clusterproof.plugins.evidence.node import Node

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.pairs import Between


def nodes(
    cluster: Cluster,
    evidence: Mapping[str, NodeEvidence],
    occasion: str = "preflight",
    policy: Policy = NO_POLICY,
    since: Window = BOOT,
    between: Between | None = None,
) -> dict[str, Node]:
    """The nodes of a cluster by name, each beside those of its group and all others."""
    catalog = Catalog.of(policy)
    groups: dict[tuple[str, str], Group[Node]] = defaultdict(lambda: Group(catalog=catalog, is_part=cluster.is_part))
    run: Group[Node] = Group(catalog=catalog, is_part=cluster.is_part)
    made: dict[str, Node] = {}
    for target in cluster.targets:
        node = Node(target, evidence[target.name], occasion, policy, since, between=between, settings=cluster.settings)
        group = groups[target.group, node.type_name]
        made[target.name] = replace(node, group=group, run=run)
        group.nodes.append(made[target.name])
        run.nodes.append(made[target.name])
    return made
