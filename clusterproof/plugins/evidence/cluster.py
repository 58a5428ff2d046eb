"""A cluster's evidence: what AWS, Slurm and Kubernetes report about it, and its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster, is_of_aws, is_of_hyperpod, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.aws.by_evidence import Instances, may_be_on_ec2
from clusterproof.plugins.evidence.aws.facts_ec2 import (
    Endpoint,
    Instance,
    InstanceTopology,
    Quota,
    RouteTable,
    SecurityGroup,
    Subnet,
)
from clusterproof.plugins.evidence.aws.facts_fsx import Metrics
from clusterproof.plugins.evidence.aws.facts_hyperpod import (
    DeepHealthCheckError,
    HyperpodCluster,
    HyperpodNode,
    NodeZone,
)
from clusterproof.plugins.evidence.fact import CollectorData, collected_as, collected_by, list_collected_as
from clusterproof.plugins.evidence.field import at_least_one, boolean, integer, objects, optional, readings
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS as OF_KUBERNETES
from clusterproof.plugins.evidence.kubernetes.facts import (
    DOMAINS,
    NODES,
    PODS,
    QUEUES,
    SLICES,
    STORAGE,
    ComputeDomain,
    Flavor,
    KubernetesNode,
    asked_at,
)
from clusterproof.plugins.evidence.kubernetes.facts_pods import (
    KubernetesPod,
    KubernetesStorage,
    ResourceSlice,
    storage_of,
)
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode, member_nodes
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.slurm.facts import SlurmCluster

SLURM_COLLECTOR = "slurm"
NOT_OF_AWS = OF_KUBERNETES | {SLURM_COLLECTOR}  # all other control-plane collectors are
HYPERPOD_COLLECTORS = frozenset(
    {"hyperpod", "hyperpod_nodes", "zones", "deep_health_checks"}
)  # of HyperPod clusters only


def is_of_instances(collectors: frozenset[str]) -> bool:
    """Whether AWS collectors apply to EC2 instances too, not only to HyperPod clusters."""
    return bool(collectors - HYPERPOD_COLLECTORS - NOT_OF_AWS)


def why_not_queried(cluster: Cluster, collectors: frozenset[str]) -> str:
    """Why the cluster has no control plane for these collectors; empty if it has, or may turn out to have one."""
    if collectors > NOT_OF_AWS:
        return ""  # a check that did not declare what it reads
    if not OF_KUBERNETES.isdisjoint(collectors):
        return "" if is_of_kubernetes(cluster) else f"{cluster.name} is not a Kubernetes cluster"
    if collectors == {SLURM_COLLECTOR}:
        return "" if is_of_slurm(cluster) else f"{cluster.name} is not a Slurm cluster"
    if is_of_aws(cluster):
        return ""
    if may_be_on_ec2(cluster):
        return "" if is_of_instances(collectors) else f"{cluster.name} is not a HyperPod cluster"
    return f"AWS was not queried: no region of {cluster.name} is known"


@record
class Member:
    """A checked node: its name, its group, and EC2's name of its instance type."""

    name: str
    group: str
    ec2_type: str


@record
class ClusterFacts:
    """A cluster known to AWS, Slurm or Kubernetes.

    A fact raises Incomplete if the control plane did not report it, NotApplicable if it is meaningless.
    """

    cluster: Cluster
    evidence: NodeEvidence
    nodes: Mapping[str, Node]
    policy: Policy = NO_POLICY
    instances: Instances | None = None  # if only the nodes themselves can tell whether they are in AWS
    facts: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.name

    @property
    def type_name(self) -> str:
        """Empty: a cluster has no instance type of its own."""
        return ""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Empty: a cluster has no GPUs of its own."""
        return ()

    @property
    def collectors(self) -> Mapping[str, Collected]:
        """The control plane's answers, by collector."""
        return self.evidence.collectors

    def collector(self, name: str) -> Collected:
        """One collector's answer. Raises NotApplicable without a control plane or a key, and as `require_instances`."""
        collector = self.evidence.collectors.get(name) or Collected(Status.NOT_ASKED)
        why = why_not_queried(self.cluster, frozenset({name}))
        if why and collector.status is Status.NOT_ASKED:
            raise NotApplicable(why)
        if name not in NOT_OF_AWS:
            self.require_instances()
            if collector.status is Status.NOT_ASKED and collector.detail:
                raise NotApplicable(f"AWS was not queried: {collector.detail}")
        return collector

    @property
    def if_denied(self) -> str:
        """Empty: a refusal by AWS, Slurm or Kubernetes names the missing permission."""
        return ""

    def require_instances(self) -> None:
        """Raise NotApplicable if AWS was not queried because no node is an instance; Incomplete if unknown."""
        if self.instances:
            self.instances.require()

    @property
    def catalog(self) -> Catalog:
        """The catalogue with the site's overrides."""
        return Catalog.of(self.policy)

    def threshold(self, name: str) -> float:
        """A number by `table.key` (`shm.minimum_gib`), in the unit of its row; a site's own before the catalogue's."""
        return self.catalog.threshold(name)

    @property
    def members(self) -> tuple[Member, ...]:
        """The checked nodes, from the inventory."""
        targets = self.cluster.targets
        return tuple(Member(target.name, target.group, target.instance_type.removeprefix("ml.")) for target in targets)

    @property
    def is_hyperpod(self) -> bool:
        """Whether SageMaker manages the nodes; else they are EC2 instances of the account."""
        return is_of_hyperpod(self.cluster)

    def require_hyperpod(self) -> None:
        """Raise NotApplicable unless it is a HyperPod cluster."""
        if not self.is_hyperpod:
            raise NotApplicable(f"{self.name} is not a HyperPod cluster")

    hyperpod = collected_as("hyperpod", HyperpodCluster)

    @collected_by("hyperpod_nodes")
    def hyperpod_nodes(self, hyperpod: CollectorData) -> tuple[HyperpodNode, ...]:
        """The nodes that SageMaker lists, at least one. Raises Incomplete."""
        return tuple(HyperpodNode(entry) for entry in at_least_one(hyperpod.get("nodes", objects), "node"))

    deep_health_check_errors = list_collected_as("deep_health_checks", "errors", DeepHealthCheckError)
    node_zones = list_collected_as("zones", "nodes", NodeZone)

    @collected_by("instances")
    def ec2_instances(self, ec2: CollectorData) -> tuple[Instance, ...]:
        """The checked nodes that AWS describes as EC2 instances of the account, at least one. Raises Incomplete."""
        names = {None, *(member.name for member in self.members)}  # perhaps only some of those described
        described = [Instance(entry) for entry in ec2.get("instances", objects)]
        checked = [instance for instance in described if readings(instance, "hostname")[0].get("hostname") in names]
        return tuple(at_least_one(checked, "instance"))

    instance_topologies = list_collected_as("instance_topology", "instances", InstanceTopology)

    slurm = collected_as("slurm", SlurmCluster)

    # From Kubernetes

    @collected_by(NODES)
    def kubernetes_nodes(self, nodes: CollectorData) -> tuple[KubernetesNode, ...]:
        """Its nodes in Kubernetes. Raises Incomplete."""
        now = asked_at(nodes.value, NODES)
        # nodes that were described one by one each have their own time
        return tuple(
            KubernetesNode(entry, asked_at(entry, NODES) if "asked_at" in entry else now)
            for entry in nodes.get("nodes", objects)
        )

    @collected_by(PODS)
    def kubernetes_pods(self, pods: CollectorData) -> tuple[KubernetesPod, ...]:
        """The pods on its nodes, and those waiting for accelerators. Raises Incomplete."""
        now = asked_at(pods.value, PODS)
        if pods.get("is_cut", boolean):
            raise Incomplete("there are more pods than were read", cause="there are more pods than were read")
        return tuple(KubernetesPod(entry, now) for entry in pods.get("pods", objects))

    @collected_by()
    def kubernetes_members(self) -> Mapping[str, MemberNode]:
        """Each node with its state in Kubernetes and its own evidence, by name. Raises Incomplete, NotApplicable."""
        return {member.label: member for member in member_nodes(self.kubernetes_nodes, self.nodes)}

    @collected_by()
    def pods_by_node(self) -> Mapping[str, list[KubernetesPod]]:
        """The pods by node, under its Kubernetes name. Raises Incomplete."""
        by_node: dict[str, list[KubernetesPod]] = {}
        for pod in self.kubernetes_pods:
            by_node.setdefault(pod.node, []).append(pod)
        return by_node

    @collected_by()
    def daemon_sets_of_groups(self) -> Mapping[tuple[str, str], Counter[tuple[str, str]]]:
        """By group and type: the number of nodes with a daemon set's pod, by its name and role. Raises Incomplete."""
        counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
        for node in self.kubernetes_nodes:
            pods = self.pods_by_node.get(node.name, ())
            own = {(pod.daemon_set, pod.role) for pod in pods if pod.role}
            counts.setdefault(node.group_and_type, Counter()).update(own)
        return counts

    @collected_by()
    def taints_of_groups(self) -> Mapping[str, Counter[tuple[str, str]]]:
        """The number of nodes of each group with a taint, by its key and effect. Raises Incomplete."""
        by_group: dict[str, Counter[tuple[str, str]]] = {}
        for node in self.kubernetes_nodes:
            by_group.setdefault(node.group, Counter()).update({(taint.key, taint.effect) for taint in node.taints})
        return by_group

    kubernetes_slices = list_collected_as(SLICES, "slices", ResourceSlice)

    @collected_by(QUEUES)
    def kueue_flavors(self, queues: CollectorData) -> tuple[Flavor, ...]:
        """Kueue's flavors. Raises Incomplete, NotApplicable."""
        if not queues.get("is_installed", boolean):
            raise NotApplicable("Kueue is not installed")
        return tuple(map(Flavor, queues.get("flavors", objects)))

    @collected_by(QUEUES)
    def kueue_flavors_left_out(self, queues: CollectorData) -> int:
        """How many more flavors Kueue has. Raises Incomplete."""
        return queues.get("left_out", optional(integer)) or 0  # None in older recordings

    @collected_by(DOMAINS)
    def compute_domains(self, domains: CollectorData) -> tuple[ComputeDomain, ...]:
        """The compute domains of NVIDIA's DRA driver. Raises Incomplete, NotApplicable."""
        if not domains.get("is_installed", boolean):
            raise NotApplicable("NVIDIA's DRA driver, which makes compute domains, is not installed")
        now = asked_at(domains.value, DOMAINS)
        return tuple(ComputeDomain(entry, now) for entry in domains.get("domains", objects))

    @collected_by(DOMAINS)
    def compute_domains_left_out(self, domains: CollectorData) -> int:
        """How many more compute domains there are. Raises Incomplete."""
        return domains.get("left_out", integer)

    @collected_by(STORAGE)
    def kubernetes_storage(self, storage: CollectorData) -> KubernetesStorage:
        """Its volume claims, and related storage objects. Raises Incomplete."""
        return storage_of(storage)

    @collected_by()
    def drivers_of_groups(self) -> Mapping[tuple[str, str], Counter[str]]:
        """By group and type: the number of nodes on which a CSI driver is registered. Raises Incomplete."""
        counts: dict[tuple[str, str], Counter[str]] = {}
        for node in self.kubernetes_nodes:
            registered = self.kubernetes_storage.drivers.get(node.name, ())
            counts.setdefault(node.group_and_type, Counter()).update(registered)
        return counts

    # Its network

    vpc_subnets = list_collected_as("subnets", "subnets", Subnet)
    security_groups = list_collected_as("security_groups", "groups", SecurityGroup)
    route_tables = list_collected_as("route_tables", "tables", RouteTable)
    vpc_endpoints = list_collected_as("vpc_endpoints", "endpoints", Endpoint)

    service_quotas = list_collected_as("quotas", "quotas", Quota)

    # Storage

    fsx_systems = list_collected_as("fsx", "file_systems", dict)
    fsx_metrics = collected_as("fsx_metrics", Metrics)
