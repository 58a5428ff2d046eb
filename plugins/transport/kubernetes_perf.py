"""Kubernetes' nodes under load: by pods in an image of the user's, which the scheduler places as it does a job's."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from clusterproof.plugins.aws.account import AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.nodes import KubernetesNode, nodes
from clusterproof.plugins.kubernetes.workloads import Pod, pods
from clusterproof.plugins.transport import Answer, Limits, Unusable
from clusterproof.plugins.transport.kubernetes import NO_NODE, Kubernetes
from clusterproof.plugins.transport.kubernetes_outcome import LONGEST, Missed, is_settled, not_ready
from clusterproof.plugins.transport.kubernetes_perf_pod import perf_pod, taken, why_not_whole
from clusterproof.plugins.transport.kubernetes_pod import Run
from clusterproof.plugins.transport.kubernetes_visit import PodVisit

IMAGE_SETTING, IMAGE_OPTION = "k8s_perf_image", "--k8s-perf-image"
NO_IMAGE_NAMED = (
    "Kubernetes' nodes are loaded by pods that ask for their GPUs, in an image with the programs that measure; "
    f"expected {IMAGE_OPTION} IMAGE"
)
PULL_S = 600.0  # for a node to pull an image with CUDA in it, which has some GB
FEW = 8  # nodes that are asked for one by one


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
        """The answer of a pod that there is; or the scheduler's words on why it has no place."""
        wait_s = self.shared.limits.connect_s
        found, is_gone = self.shared.watch.wait(self.name, time.monotonic() + wait_s, has_place)
        if found and not is_gone and not has_place(found):
            said = found.scheduled or "it has not looked at it; expected one that runs (kube-scheduler)"
            words = f"the scheduler has not placed its pod within {wait_s:g} s: {said:.{LONGEST}}"
            return Answer(unreached=Unreached.BUSY, detail=words, seconds=self.seconds())
        return PodVisit.followed(self)


class PerfPods(Kubernetes):
    """Runs the program in one pod on each node whose devices are all free; it holds them meanwhile.

    The API is opened once.
    """

    visit = PerfVisit
    image_setting = IMAGE_SETTING

    def __init__(self) -> None:
        super().__init__()
        self._api: Api | None = None
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Api, Run, frozenset[str]]] = {}  # by name; with the names of the nodes

    def under_load(self) -> PerfPods:
        """Themselves."""
        return self

    def opened(self, settings: Mapping[str, str]) -> Api:
        """The API of the cluster. Raises AwsError, KubernetesError, Unusable."""
        if not settings.get(IMAGE_SETTING):
            raise Unusable(NO_IMAGE_NAMED)
        with self._lock:
            self._api = self._api or super().opened(settings)
            return self._api

    def nodes(self, api: Api, targets: Sequence[Target]) -> Mapping[str, KubernetesNode]:
        """What Kubernetes has of these nodes, at least. Raises KubernetesError."""
        if len(targets) > FEW:
            return super().nodes(api, targets)
        return {node.name: node for target in targets for node in nodes(api, name=target.name)}

    def unreachable(self, node: KubernetesNode | None, _settings: Mapping[str, str]) -> Missed | None:
        """Why no pod is sent to a node."""
        if node is None:
            return Missed(Unreached.NOT_READY, NO_NODE)
        words = why_not_whole(node)
        return not_ready(node) or (Missed(Unreached.BUSY, words) if words else None)

    def begun(self, api: Api, run: Run, targets: Sequence[Target]) -> None:
        """Take note of a run."""
        with self._lock:
            self._running[run.name] = (api, run, frozenset(target.name for target in targets))

    def end(self, api: Api, run: Run) -> None:
        """Delete the run's objects."""
        super().end(api, run)
        with self._lock:
            self._running.pop(run.name, None)

    def leave(self, targets: Sequence[Target]) -> None:
        """Delete the pods that still run on these nodes alone, where nobody waits for them any more."""
        left = frozenset(target.name for target in targets)
        with self._lock:
            running = [(api, run) for api, run, names in self._running.values() if names <= left]
        for api, run in running:
            self.end(api, run)

    def unavailable(self, targets: Sequence[Target], settings: Mapping[str, str]) -> Mapping[str, str]:
        """Which of these nodes cannot be loaded now, and why. Raises Unusable."""
        try:
            api = self.opened(settings)
            known = self.nodes(api, targets)
            every = pods(api) if len(targets) > FEW else [pod for one in targets for pod in pods(api, node=one.name)]
        except (AwsError, KubernetesError) as problem:
            raise Unusable(str(problem)) from None
        by_node: dict[str, list[Pod]] = {}
        for pod in every:
            by_node.setdefault(pod.node, []).append(pod)
        why: dict[str, str] = {}
        for target in targets:
            node = known.get(target.name)
            missed = self.unreachable(node, settings)
            words = missed.detail if missed else taken(node, by_node.get(target.name, ())) if node else ""
            if words:
                why[target.name] = words
        return why
