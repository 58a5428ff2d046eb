"""Storage of pods: the CSI drivers of a node, and claims that wait for a volume."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts import in_words
from clusterproof.plugins.evidence.kubernetes.facts_cluster import pods_on
from clusterproof.plugins.evidence.kubernetes.facts_pods import KubernetesPod
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode

pytestmark = [mark.control_plane, mark.preflight]

MOST = 10  # claims in words


@mark.hyperpod_node_debugger("M")
@evidence("kubectl get csinode NODE -o yaml; kubectl get pvc,pv -A")
def test_k8s_storage(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """CSI drivers of a node.

    A driver's pod registers with its node's kubelet. Until it has, pods with volumes of that driver (EBS, EFS, FSx, …)
    hang in ContainerCreating, or do not terminate.

    Remedy (restore service): Read the log of the driver's pod on the node and of its node-driver-registrar; if its
    daemon set does not cover the node, change that.
    """
    listed = k8s_node.listed
    own = cluster.kubernetes_storage.drivers.get(listed.name, frozenset())
    of_group = cluster.drivers_of_groups[listed.group]
    others = len(k8s_node.others)
    missing = [
        f"{driver}, as {having} of {others} others of its group have"
        for driver, having in sorted(of_group.items())
        if driver not in own and 2 * having > others
    ]
    wanted = list(_wanted(k8s_node, cluster))
    settle_minutes = cluster.threshold("kubernetes.settle_minutes")
    if (missing or wanted) and _age_s(k8s_node, cluster) < settle_minutes * 60:
        incomplete(
            f"no CSI driver {', '.join([*missing, *wanted][:MOST])} yet; the node, or a driver's pod on it, is new: "
            f"expected within {settle_minutes:g} min"
        )
    fail_if(missing, f"no CSI driver {', '.join(missing)}; expected the drivers of its group registered")
    words = f"no CSI driver {', '.join(wanted[:MOST])}; expected the drivers of its pods' volumes registered"
    concern_if(wanted, words)
    if not own and not of_group:
        not_applicable("no CSI driver has registered with a node of its group")


def _age_s(node: MemberNode, cluster: ClusterFacts) -> float:
    """The age of the node, or of the newest pod of a driver on it."""
    drivers = [pod.age_s for pod in pods_on(cluster, node.listed) if pod.role == "csi"]
    return min([node.listed.age_s(node.listed.created), *drivers])


def _wanted(node: MemberNode, cluster: ClusterFacts) -> Iterator[str]:
    """The drivers that its pods' volumes need and it does not have, each with the first pod that waits."""
    claims = cluster.kubernetes_storage.claims
    seen = set(cluster.kubernetes_storage.drivers.get(node.listed.name, ()))
    for pod in pods_on(cluster, node.listed):
        for name in pod.volume_claims:
            claim = claims.get(f"{pod.namespace}/{name}")
            if claim and claim.driver and claim.driver not in seen:
                seen.add(claim.driver)
                yield f"{claim.driver}, of which {pod.name} has the volume of claim {name}"


@mark.hyperpod_node_debugger("I")
@evidence("kubectl get pvc -A; kubectl get storageclass; kubectl describe pvc -n NAMESPACE CLAIM")
def test_k8s_volume_claims(cluster: ClusterFacts) -> None:
    """Volume claims of pods.

    A pod whose claim has no volume does not start. The check covers pods on the nodes and pods that wait for
    accelerators; a claim that is bound only once its pod has a node is not reported before.

    Remedy (investigate): Read the claim's events (kubectl describe pvc -n NAMESPACE CLAIM) and the log of its
    provisioner; name a storage class that exists.
    """
    allowed_s = cluster.threshold("kubernetes.pending_minutes") * 60
    storage, pods = cluster.kubernetes_storage, [pod for pod in cluster.kubernetes_pods if pod.volume_claims]
    if not pods:
        not_applicable("no pod on its nodes, or that waits for accelerators, has a volume claim")
    late = [
        f"{claim} of {pod.name}, {in_words(pod.age_s)} old: {why}"
        for claim, pod in _oldest(pods).items()
        if min(pod.age_s, storage.age_s(claim, pod.asked_at)) > allowed_s and (why := storage.why_unbound(claim))
    ]
    if late:
        more = f", and {len(late) - MOST} more" if len(late) > MOST else ""
        concern(f"{', '.join(late[:MOST])}{more}; expected claims that have a volume within {allowed_s / 60:g} min")


def _oldest(pods: list[KubernetesPod]) -> dict[str, KubernetesPod]:
    """Each claim with the oldest of the pods that have it and are to run, the oldest first."""
    found: dict[str, KubernetesPod] = {}
    for pod in sorted(pods, key=lambda pod: -pod.age_s):
        for name in () if pod.deleted or pod.gates else pod.volume_claims:
            found.setdefault(f"{pod.namespace}/{name}", pod)
    return found
