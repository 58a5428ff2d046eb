"""Kubernetes pods: daemon sets that a node needs, pods that hold GPUs or wait for them, and their volume claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from clusterproof.plugins.catalog.kubernetes import NeededDaemonSet, needed_daemon_set
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.gpu.facts_parts import GpuProcess
from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode, duration_text
from clusterproof.plugins.evidence.kubernetes.facts_cluster import pods_on, waiting_pods_left_out
from clusterproof.plugins.evidence.kubernetes.facts_pods import STUCK, KubernetesPod
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode

pytestmark = [mark.control_plane, mark.preflight]

MOST = 10  # pods or claims in words
CONTAINERS = 2  # of a pod
ROOM = ("memory", "host")  # what lies at /dev/shm where it is as large as memory
PODS_OF_NODE = "kubectl get pods -A -o wide --field-selector spec.nodeName=NODE"


def _first(words: Sequence[str]) -> str:
    """The first of these pods, claims or processes, and how many more there are."""
    return ", ".join(words[:MOST]) + (f", and {len(words) - MOST} more" if len(words) > MOST else "")


@mark.hyperpod_node_debugger("M")
@evidence(PODS_OF_NODE)
def test_k8s_system_pods(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """System pods of a node.

    Device plugins, network and storage agents, kube-proxy and GPU monitoring agents run as pods of daemon sets: if one
    is unhealthy or missing on a node, pods there lack what it provides.

    Remedy (restore service): Read its log (kubectl logs -n NAMESPACE POD --previous) and its events; delete the pod to
    let the daemon set make a new one.
    """
    listed = k8s_node.listed
    ready = listed.condition("Ready")
    if ready is not None and ready.status == "True":
        settle_s = cluster.threshold("kubernetes.settle_minutes") * 60
        _report([*_ill(pods_on(cluster, listed), settle_s), *_missing(k8s_node, cluster, settle_s)])
        return
    with part:
        if ready is not None and ready.status == "False":  # else its kubelet reports nothing of pods either
            _report([*_ill(pods_on(cluster, listed), inf)])
    seen = "is not known to be Ready" if ready is None else "is not Ready"
    incomplete(
        f"it {seen}, so the state of its pods is unknown; expected a node that is Ready",
        cause=f"the node {seen}",
    )


def _report(faults: list[tuple[NeededDaemonSet, str]]) -> None:
    bad = [fault for row, fault in faults if row.verdict == "fail"]
    fail_if(bad, f"{', '.join(bad)}; expected the system pods of a node ready")
    others = [fault for row, fault in faults if row.verdict != "fail"]
    concern_if(others, f"{', '.join(others)}; expected the system pods of a node ready")


def _ill(pods: list[KubernetesPod], settle_s: float) -> Iterator[tuple[NeededDaemonSet, str]]:
    """The pods of listed daemon sets that are not ready though they have had time, or that will not start any more."""
    for pod in pods:
        row = needed_daemon_set(pod.role)
        if row is None or pod.is_ready or pod.deleted:
            continue
        if pod.age_s > settle_s or any(container.reason in STUCK for container in pod.unready):
            shown = [container.description for container in pod.unready[:CONTAINERS]]
            more = f" and {len(pod.unready) - CONTAINERS} more" if len(pod.unready) > CONTAINERS else ""
            why = ", ".join(shown) + more or f"{pod.phase}, not ready"
            yield row, f"{pod.name}, which {row.purpose}: {why}"


def _missing(node: MemberNode, cluster: ClusterFacts, settle_s: float) -> Iterator[tuple[NeededDaemonSet, str]]:
    """The listed daemon sets that have a pod on most others like it, but not here."""
    listed = node.listed
    if listed.age_s(listed.created) < settle_s:
        return
    own = {pod.daemon_set for pod in pods_on(cluster, listed) if pod.role}  # users may give theirs the same names
    for (name, role), having in sorted(cluster.daemon_sets_of_groups[listed.group_and_type].items()):
        row = needed_daemon_set(role)
        if row and name not in own and 2 * having > len(node.alike):
            yield row, f"no pod of {name}, which {row.purpose}, as on {having} of {node.others_in_words}"


@mark.hyperpod_node_debugger("I")
@evidence("kubectl get pods -A --field-selector status.phase=Pending")
def test_k8s_pending_gpu_pods(cluster: ClusterFacts) -> None:
    """Pods waiting for accelerators.

    The scheduler's messages show whether the cluster is merely full, or whether nodes are closed to pods.

    Remedy (investigate): Read the pod's events (kubectl describe pod -n NAMESPACE POD), and look at the checks of the
    nodes they name.
    """
    allowed_s = cluster.threshold("kubernetes.pending_minutes") * 60
    late = [
        pod
        for pod in cluster.kubernetes_pods
        if not pod.node and pod.devices and not pod.gates and not pod.deleted and pod.age_s > allowed_s
    ]
    seen = [
        f"{pod.name} has been pending for {duration_text(pod.age_s)}: {pod.waits_for or 'no reason given'}"
        for pod in sorted(late, key=lambda pod: -pod.age_s)
    ]
    concern_if(seen, f"{_first(seen)}; expected pods that start within {allowed_s / 60:g} min")
    _require_all_waiting(cluster)


def _require_all_waiting(cluster: ClusterFacts) -> None:
    if left_out := waiting_pods_left_out(cluster):
        incomplete(f"{number_of(left_out, 'more pod')} waiting for accelerators not checked; expected fewer")


@mark.hyperpod_node_debugger("I")
@evidence(f"{PODS_OF_NODE}; on the node: nvidia-smi; cat /proc/PID/cgroup")
def test_k8s_gpu_pods(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """Who holds the GPUs of a Kubernetes node.

    A process outside any pod uses GPUs that Kubernetes allocates to others. A pod that does not terminate keeps its
    GPUs from the next. A pod that uses GPUs without requesting any takes them from those that did.

    Remedy (clean up): End the process on the node. For a pod that hangs, see what it is waiting for (kubectl describe
    pod), and force-delete it only once its processes are gone.
    """
    listed = k8s_node.listed
    pods = known(lambda: pods_on(cluster, listed), None)
    allowed_s = cluster.threshold("kubernetes.terminating_minutes") * 60
    late = [pod for pod in pods or () if pod.devices and pod.deleted and pod.overdue_s > allowed_s]
    seen = [f"{pod.name} should have ended {duration_text(pod.overdue_s)} ago and holds {pod.devices}" for pod in late]
    fail_if(seen, f"{_first(seen)}; expected pods that terminate")
    of_gpus = each(k8s_node.node.gpus, lambda gpu: [(gpu.label, process) for process in gpu.processes])
    held = [holder for holders in of_gpus for holder in holders]
    nvml = k8s_node.node.nvml
    located = list(each(held, lambda holder: (*holder, _is_of_a_pod(holder[1]))))
    others = [(label, process) for label, process, is_of_a_pod in located if not is_of_a_pod]
    outside = [*filter(None, each(others, lambda other: "" if other[1].serves_jobs(nvml) else _held_by(*other)))]
    fail_if(outside, f"{_first(outside)} belongs to no pod; expected only pods to use GPUs")
    if pods is None:
        return
    pods_by_uid = {pod.uid: pod for pod in pods}
    of_pods = [(label, process) for label, process, is_of_a_pod in located if is_of_a_pod]
    odd = [fault for faults in each(of_pods, lambda holder: [*_odd(*holder, pods_by_uid)]) for fault in faults]
    concern_if(odd, f"{_first(odd)}; expected only pods that request GPUs")


def _odd(label: str, process: GpuProcess, pods_by_uid: dict[str, KubernetesPod]) -> Iterator[str]:
    pod = pods_by_uid.get(process.pod or "")
    if pod is None:
        yield f"{_held_by(label, process)} belongs to a pod that Kubernetes does not list on this node"
    elif not (pod.accelerators or pod.claims or pod.daemon_set):
        yield f"{_held_by(label, process)} belongs to {pod.name}, which requests none"


def _is_of_a_pod(process: GpuProcess) -> bool:
    """Whether it runs in a pod. Raises Incomplete without its control group: it has ended, or a capture lacks that."""
    if not process.cgroup:
        incomplete(f"the control group of process {process.pid} was not reported; expected one while it runs")
    return process.is_of_a_job and bool(process.pod)


def _held_by(label: str, process: GpuProcess) -> str:
    return f"{label}: process {process.pid} ({process.name})"


@mark.hyperpod_node_debugger("I")
@evidence("kubectl get pod -n NAMESPACE POD -o yaml; in the pod: df -h /dev/shm")
def test_k8s_pod_shm(cluster: ClusterFacts) -> None:
    """Shared memory of pods with several GPUs.

    A container's /dev/shm has 64 MiB unless a volume is mounted there. NCCL and data loaders keep their buffers in it:
    if it is too small, jobs end with a bus error, or NCCL takes a slower path between the GPUs of a node.

    Remedy (fix configuration): Mount an emptyDir of medium Memory at /dev/shm in the pod's template.
    """
    names = {member.listed.name for member in cluster.kubernetes_members.values() if member.known}
    most = cluster.threshold("kubernetes.gpus_without_shm")
    bad = [
        f"{pod.name} with {pod.most_gpus} GPUs" + (" has it on disk" if pod.shm else "")
        for pod in cluster.kubernetes_pods
        if pod.node in names and pod.most_gpus > most and pod.shm not in ROOM
    ]
    concern_if(bad, f"{_first(bad)}; expected memory at /dev/shm of a container with several GPUs")


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
    of_group = cluster.drivers_of_groups[listed.group_and_type]
    missing = [
        f"{driver}, as {having} of {k8s_node.others_in_words} have"
        for driver, having in sorted(of_group.items())
        if driver not in own and 2 * having > len(k8s_node.alike)
    ]
    pods = known(lambda: pods_on(cluster, listed), None)
    if pods is None:  # one of a driver may be new
        concern_if(missing, f"no CSI driver {', '.join(missing)}; expected the drivers of its group registered")
        return
    wanted = list(_wanted(pods, own, cluster))
    settle_minutes = cluster.threshold("kubernetes.settle_minutes")
    if (missing or wanted) and _age_s(listed, pods) < settle_minutes * 60:
        incomplete(
            f"no CSI driver {_first([*missing, *wanted])} yet; the node, or a driver's pod on it, is new: "
            f"expected within {settle_minutes:g} min"
        )
    fail_if(missing, f"no CSI driver {', '.join(missing)}; expected the drivers of its group registered")
    message = f"no CSI driver {_first(wanted)}; expected the drivers of its pods' volumes registered"
    concern_if(wanted, message)
    cluster.kubernetes_storage.require_all_claims()
    if not own and not of_group:
        not_applicable("no CSI driver has registered with a node of its group")


def _age_s(listed: KubernetesNode, pods: list[KubernetesPod]) -> float:
    """The age of the node, or of the newest pod of a driver on it."""
    return min([listed.age_s(listed.created), *(pod.age_s for pod in pods if pod.role == "csi")])


def _wanted(pods: list[KubernetesPod], own: frozenset[str], cluster: ClusterFacts) -> Iterator[str]:
    """The drivers that these pods' volumes need but their node does not have, each with the first pod that waits."""
    claims = cluster.kubernetes_storage.claims
    seen = set(own)
    for pod in pods:
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
    with part:
        _require_all_waiting(cluster)
    if not pods:
        not_applicable("no pod on its nodes or waiting for accelerators has a volume claim")
    late = [
        f"{claim} of {pod.name}, {duration_text(pod.age_s)} old: {why}"
        for claim, pod in _oldest(pods).items()
        if min(pod.age_s, storage.age_s(claim, pod.asked_at)) > allowed_s and (why := storage.why_unbound(claim))
    ]
    concern_if(late, f"{_first(late)}; expected claims that have a volume within {allowed_s / 60:g} min")
    storage.require_all_claims()


def _oldest(pods: list[KubernetesPod]) -> dict[str, KubernetesPod]:
    """Each claim with the oldest of its pods that are to run, the oldest first."""
    oldest: dict[str, KubernetesPod] = {}
    for pod in sorted(pods, key=lambda pod: -pod.age_s):
        for name in () if pod.deleted or pod.gates else pod.volume_claims:
            oldest.setdefault(f"{pod.namespace}/{name}", pod)
    return oldest
