"""Kubernetes nodes under load: pods in an image of the user's, which the scheduler places like those of a job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.api import KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.workloads import Pod, pods
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.kubernetes_outcome import LONGEST, is_settled
from clusterproof.plugins.transport.kubernetes_perf_pod import perf_pod, taken
from clusterproof.plugins.transport.kubernetes_visit import PodVisit

IMAGE_SETTING, IMAGE_OPTION = "k8s_perf_image", "--k8s-perf-image"
NO_IMAGE_NAMED = (
    "Kubernetes' nodes are loaded by pods that ask for their GPUs, in an image with the programs that measure; "
    f"expected {IMAGE_OPTION} IMAGE"
)
PULL_S = 600.0  # for a node to pull an image with CUDA in it, which has some GB


def has_place(pod: Pod) -> bool:
    """Whether the scheduler has placed it, or it never will run."""
    return bool(pod.node) or is_settled(pod)


class PerfVisit(PodVisit):
    """One node's turn: a pod with all its devices, where they are free."""

    image_option: ClassVar[str] = IMAGE_OPTION

    @classmethod
    def start_s(cls, limits: Limits) -> float:
        """How long its pod may take to start, once it has its place."""
        return PULL_S + limits.connect_s

    def pod(self) -> Mapping[str, Any]:
        """What is created for it."""
        return perf_pod(self.shared.run, self.name, self.shared.known[self.target.name], self.pod_s)

    def create(self) -> Answer | None:
        """Create the pod where nobody holds a device of the node; why not, where somebody does."""
        api, node = self.shared.api, self.shared.known[self.target.name]
        try:
            held = taken(node, pods(api, node=node.name))
        except KubernetesDenied as denied:
            return self.refused(denied)
        except KubernetesError as problem:
            return Answer(unreached=Unreached.API, detail=str(problem), seconds=self.seconds())
        if held:
            return Answer(unreached=Unreached.BUSY, detail=held, seconds=self.seconds())
        return PodVisit.create(self)

    def followed(self) -> Answer:
        """The answer of an existing pod; or the scheduler's message on why it is not placed."""
        wait_s = self.shared.limits.connect_s
        found, is_gone = self.shared.watch.wait(self.name, time.monotonic() + wait_s, has_place)
        if found and not is_gone and not has_place(found):
            said = found.scheduled or "it has not looked at it; expected one that runs (kube-scheduler)"
            words = f"the scheduler has not placed its pod within {wait_s:g} s: {said:.{LONGEST}}"
            return Answer(unreached=Unreached.BUSY, detail=words, seconds=self.seconds())
        return PodVisit.followed(self)
