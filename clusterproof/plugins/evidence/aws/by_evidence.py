"""For nodes named without AWS, as by ssh: whether they are EC2 instances, and which, according to themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusterproof.plugins.core.cluster import INSTANCE_ID, Cluster
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable

SETTING = "ec2"  # of a recorded cluster: whether its nodes were asked if they are instances
EC2 = "Amazon EC2"  # the vendor in an instance's firmware
INSTANCE = re.compile(INSTANCE_ID)
REGION = re.compile(r"[a-z]{2,4}(-[a-z]{2,12}){1,3}-\d{1,2}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What the metadata service reports about an instance; missing values are empty."""

    instance_id: str
    instance_type: str
    region: str
    zone: str


@dataclass(slots=True)
class Instances:
    """Which nodes of a cluster are EC2 instances."""

    identities: dict[str, Identity] = field(default_factory=dict)  # by the node's name
    nameless: list[str] = field(default_factory=list)  # instances whose identity is unknown
    elsewhere: int = 0  # number of nodes that are no instances

    @classmethod
    def of(cls, nodes: Iterable[NodeEvidence]) -> Instances:
        """The EC2 instances among these nodes."""
        instances = cls()
        for evidence in nodes:
            instances.note(evidence)
        return instances

    def note(self, evidence: NodeEvidence) -> None:
        """Record what a node reported about itself."""
        identity, vendor = _identity(evidence), _word(_value(evidence, "platform").get("vendor"))
        if identity:
            self.identities[evidence.node] = identity
        elif vendor == EC2 or _status(evidence) is Status.READ:  # only an instance has a metadata service to ask
            self.nameless.append(evidence.node)
        elif vendor or _status(evidence) is Status.ABSENT:
            self.elsewhere += 1

    @property
    def region(self) -> str:
        """The most frequent region; empty if there is none."""
        regions = Counter(identity.region for identity in self.identities.values() if REGION.fullmatch(identity.region))
        return regions.most_common(1)[0][0] if regions else ""

    @property
    def zones(self) -> Mapping[str, str | None]:
        """The availability zone of each node with an identity; None if unknown."""
        return {name: identity.zone or None for name, identity in self.identities.items()}

    def require(self) -> None:
        """Raise NotApplicable if no node is an instance, Incomplete if none says what it is."""
        if self.identities or self.nameless:
            return
        if self.elsewhere:
            raise NotApplicable("no node of it is an EC2 instance")
        raise Incomplete(
            "no node says whether it is an EC2 instance", cause="no node says whether it is an EC2 instance"
        )

    def cluster(self, named: Cluster, region: str = "") -> Cluster:
        """The cluster for queries to AWS: with region, instance ids as addresses, and instance types."""
        settings = {**named.settings, SETTING: "by evidence"}
        if region or self.region:
            settings["region"] = region or self.region
        targets = []
        for target in named.targets:
            identity = self.identities.get(target.name)
            own = identity.instance_id if identity and INSTANCE.fullmatch(identity.instance_id) else ""
            kind = target.instance_type or (identity.instance_type if identity else "")
            targets.append(replace(target, address=own, instance_type=kind))
        return replace(named, targets=tuple(targets), settings=settings)


def may_be_on_ec2(cluster: Cluster) -> bool:
    """Whether only its nodes can tell if AWS knows them: its inventory did not come from AWS."""
    kind = CONNECTIONS.get(cluster.connection)
    is_unsaid = kind is not None and kind.may_be_on_ec2
    return "region" not in cluster.settings and (is_unsaid or SETTING in cluster.settings)


def _identity(evidence: NodeEvidence) -> Identity | None:
    document = _value(evidence, "imds").get("identity")
    if not isinstance(document, dict):
        return None
    names = ("instance_id", "instance_type", "region", "availability_zone")
    identity = Identity(*(_word(document.get(name)) for name in names))
    return identity if identity.instance_id else None


def _status(evidence: NodeEvidence) -> Status:
    """How its question to the metadata service ended."""
    collector = evidence.collectors.get("imds")
    return collector.status if collector else Status.NOT_ASKED


def _value(evidence: NodeEvidence, name: str) -> Mapping[str, Any]:
    """A collector's value; None if it failed. A node is not trusted."""
    collector = evidence.collectors.get(name)
    value = collector.value if collector and collector.status is Status.READ else None
    return value if isinstance(value, dict) else {}


def _word(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() and len(value) <= 100 else ""
