"""What a cluster needs of the account's service quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from clusterproof.plugins.catalog.aws import INTERFACES, NODES, PER_TYPE, SAGEMAKER, VOLUME, interfaces, quotas
from clusterproof.plugins.evidence.cluster import ClusterFacts


@dataclass(frozen=True, slots=True)
class Need:
    """What one quota must allow; `amount` is None where the catalogue does not know an instance type."""

    service: str
    name: str
    amount: int | None

    @property
    def key(self) -> tuple[str, str]:
        """What finds the quota."""
        return self.service, self.name


def needs(cluster: ClusterFacts) -> Iterator[Need]:
    """Every quota that the cluster depends on, once. Raises Incomplete."""
    counts = _counts(cluster)
    for row in quotas():
        if row.service == SAGEMAKER and not cluster.is_hyperpod:
            continue
        if row.needs == PER_TYPE:
            for name, count in sorted(counts.items()):
                yield Need(row.service, row.name.format(type=f"ml.{name}"), count)
        else:
            yield Need(row.service, row.name, _amount(row.needs, cluster, counts))


def _counts(cluster: ClusterFacts) -> Counter[str]:
    """How many nodes of each instance type there are or are wanted, controllers too."""
    if not cluster.is_hyperpod:
        return Counter(member.ec2_type for member in cluster.members)
    counts: Counter[str] = Counter()
    for group in cluster.hyperpod.groups:
        counts.update(group.counts)
    return counts


def _amount(what: str, cluster: ClusterFacts, counts: Counter[str]) -> int | None:
    if what == NODES:
        return counts.total()
    if what == VOLUME:
        sizes = (size for one in cluster.hyperpod.groups for size in one.volumes_gb)
        return max([int(cluster.threshold("quotas.ebs_gb")), *sizes])
    if what == INTERFACES:
        each = {name: interfaces(name, cluster.catalog) for name in counts}
        known = {name: number for name, number in each.items() if number is not None}
        return sum(known[name] * count for name, count in counts.items()) if len(known) == len(each) else None
    return 1
