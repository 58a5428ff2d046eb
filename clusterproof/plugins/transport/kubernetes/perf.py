"""Puts load on Kubernetes nodes: pods with an image of the user's, scheduled like those of a job.

Such a pod has all devices of its node, and sees nothing of the host but its network. The scheduler enforces its
requests: if a job holds a single GPU of the node, the pod is not scheduled, and while it runs, no job is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from clusterproof.plugins.catalog.kubernetes import perf_huge_pages, perf_requests
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.kubernetes.api import KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.collectors.k8s_pods import ACCELERATORS
from clusterproof.plugins.kubernetes.nodes import ApiNode
from clusterproof.plugins.kubernetes.pods import Pod, pods
from clusterproof.plugins.kubernetes.values import quantity
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.kubernetes import RunObjects, pod_with
from clusterproof.plugins.transport.kubernetes.outcome import LONGEST, is_settled
from clusterproof.plugins.transport.kubernetes.visit import PodVisit

EFA = "vpc.amazonaws.com/efa"
DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", EFA)
HUGE_PAGES = "hugepages-2Mi"
SHARING = "nvidia.com/gpu.sharing-strategy"  # a label: whether the device plugin shares GPUs
WHOLE = ("", "none")
PRODUCT = "nvidia.com/gpu.product"  # a label: of GPUs that are divided alike, also the part
PARTS = ("nvidia.com/mig-", "nvidia.com/gpu.shared")
CLAIM = "resource claim"
MEMORY = "/dev/shm"

IMAGE_SETTING, IMAGE_OPTION = "k8s_perf_image", "--k8s-perf-image"
NO_IMAGE_NAMED = (
    "Kubernetes' nodes are loaded by pods that ask for their GPUs, in an image with the programs that measure; "
    f"expected {IMAGE_OPTION} IMAGE"
)
PULL_S = 600.0  # for a node to pull an image with CUDA in it, which has several GB


def devices_of(node: ApiNode) -> Mapping[str, int]:
    """The devices that Kubernetes counts on a node, by resource."""
    return {name: count for name in DEVICES if (count := _count(node.capacity, name))}


def why_not_whole(node: ApiNode) -> str:
    """Why no pod could have all devices of a node, even an empty one; usually empty."""
    shared = node.labels.get(SHARING, "")
    if shared not in WHOLE:
        return f"its GPUs are shared ({SHARING}={shared}); expected whole ones, which a pod has to itself"
    divided = [
        f"{count} {name}"
        for name in sorted(node.capacity)
        if name.startswith(PARTS) and (count := _count(node.capacity, name))
    ]
    product = node.labels.get(PRODUCT, "")
    divided += [f"{PRODUCT}={product}"] if "-MIG-" in product else []
    if divided:
        return f"its GPUs are divided ({', '.join(divided)}); expected whole ones, which a pod has to itself"
    counted = devices_of(node)
    has_devices = product or any(name in node.capacity for name in DEVICES if name != EFA)
    if has_devices and counted.keys() <= {EFA}:
        return (
            "no device plugin counts its GPUs or Neuron devices; expected one, as a pod that requests none of them "
            "keeps no job away"
        )
    short = [
        f"{_count(node.allocatable, name)} of {count} {name}"
        for name, count in counted.items()
        if _count(node.allocatable, name) < count
    ]
    return f"{listed(short)} can be allocated; expected all" if short else ""


def allocated(node: ApiNode, pods: Iterable[Pod]) -> str:
    """The devices of a node that are taken, and by whose pods; empty if all are free."""
    holders: dict[str, dict[str, int]] = defaultdict(dict)
    for pod in pods:
        held = {name: count for name, count in pod.devices.items() if name.startswith((*ACCELERATORS, EFA))}
        for name, count in {**held, CLAIM: pod.claims}.items() if not pod.has_ended else ():
            if count:
                holders[name][f"{pod.namespace}/{pod.name}"] = count
    taken_devices = [
        f"{_of_all(node, name, sum(held.values()))} by {listed(held)}" for name, held in sorted(holders.items())
    ]
    return f"taken: {'; '.join(taken_devices)}; expected all free" if taken_devices else ""


def _of_all(node: ApiNode, name: str, count: int) -> str:
    """`2 of 8 nvidia.com/gpu`: without the node's number if Kubernetes does not know it."""
    if name == CLAIM:
        return number_of(count, CLAIM)
    there = _count(node.capacity, name)
    return f"{count} of {there} {name}" if there else f"{count} {name}"


def perf_pod(run: RunObjects, name: str, node: ApiNode, deadline_s: int) -> Mapping[str, Any]:
    """The pod for one node: the scheduler may place it only there, whatever the node's taints."""
    devices = {resource: str(count) for resource, count in devices_of(node).items()}
    pages = _huge_pages(node)
    container = {
        "image": run.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", run.script],
        "env": run.variables,
        "securityContext": {"runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}},
        "resources": {"requests": {**perf_requests(), **pages}, "limits": {**devices, **pages}},
        "volumeMounts": [{"name": "shm", "mountPath": MEMORY}],
    }
    there = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}]
    }
    spec = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": there}},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    return pod_with(run, name, deadline_s, container, spec)


def _huge_pages(node: ApiNode) -> Mapping[str, str]:
    """The huge pages that EFA's library needs, or as many as there are; none on a node without EFA."""
    there, wanted = node.allocatable.get(HUGE_PAGES, ""), perf_huge_pages()
    if EFA not in devices_of(node) or not _count({HUGE_PAGES: there}, HUGE_PAGES):
        return {}
    return {HUGE_PAGES: min(there, wanted, key=lambda amount: _count({HUGE_PAGES: amount}, HUGE_PAGES))}


def _count(resources: Mapping[str, str], name: str) -> int:
    value = quantity(resources.get(name, ""))
    return value if isinstance(value, int) else 0


def is_scheduled(pod: Pod) -> bool:
    """Whether the pod is scheduled, or never will run."""
    return bool(pod.node) or is_settled(pod)


class PerfVisit(PodVisit):
    """The visit of one node: a pod with all its devices, if they are free."""

    image_option: ClassVar[str] = IMAGE_OPTION

    @classmethod
    def start_s(cls, limits: Limits) -> float:
        """How long its pod may take to start once it is scheduled."""
        return PULL_S + limits.connect_s

    def pod(self) -> Mapping[str, Any]:
        """The pod to create."""
        return perf_pod(self.context.run, self.name, self.context.nodes[self.target.name], self.pod_s)

    def create(self) -> Answer | None:
        """Create the pod if no device of the node is held; else return why not."""
        api, node = self.context.api, self.context.nodes[self.target.name]
        try:
            held = allocated(node, pods(api, node=node.name))
        except KubernetesDenied as denied:
            return self.refused(denied)
        except KubernetesError as problem:
            return Answer(unreached=Unreached.API, detail=str(problem), seconds=self.seconds())
        if held:
            return Answer(unreached=Unreached.BUSY, detail=held, seconds=self.seconds())
        return PodVisit.create(self)

    def followed(self) -> Answer:
        """The answer of an existing pod; or the scheduler's message on why it is not scheduled."""
        wait_s = self.context.limits.connect_s
        pod, is_gone = self.context.watch.wait(self.name, time.monotonic() + wait_s, is_scheduled)
        if pod and not is_gone and not is_scheduled(pod):
            message = pod.scheduled or "it has not looked at it; expected one that runs (kube-scheduler)"
            detail = f"the scheduler has not placed its pod within {wait_s:g} s: {message:.{LONGEST}}"
            return Answer(unreached=Unreached.BUSY, detail=detail, seconds=self.seconds())
        return PodVisit.followed(self)
