"""Reaches Kubernetes nodes by one pod each: created on the node itself, its answer read from its log.

Two requests for each node, and eight to eleven for a run; an incomplete log is read again. Nothing is left behind: the
run deletes its pods at the end, and if it cannot, Kubernetes does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from clusterproof.plugins.agent.packing import script_of
from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.kubernetes.pods import Pod, pods
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable
from clusterproof.plugins.transport.fan_out import fan_out
from clusterproof.plugins.transport.kubernetes import LONGEST, TTL_S, RunObjects, image_on, new_run
from clusterproof.plugins.transport.kubernetes.creation import create_owner
from clusterproof.plugins.transport.kubernetes.outcome import PodFailure, not_ready, refused
from clusterproof.plugins.transport.kubernetes.perf import (
    IMAGE_SETTING,
    NO_IMAGE_NAMED,
    PerfVisit,
    allocated,
    why_not_whole,
)
from clusterproof.plugins.transport.kubernetes.visit import PodVisit, VisitContext

NO_NODE = "Kubernetes has no node of this name; expected one of kubectl get nodes"
FEW = 8  # nodes that are requested one by one
UNKNOWN_IMAGE = "the kubelet reports no image on the node; expected --k8s-image"


class Kubernetes(Connection):
    """Runs the program in one pod on each node."""

    takes_stdin = False
    visit: type[PodVisit] = PodVisit
    image_setting = "k8s_image"
    prefix = "clusterproof"  # prefix of the names of a run's objects

    def longest_program(self, _limits: Limits) -> int:
        """What a ConfigMap can hold."""
        return LONGEST

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Api, RunObjects, frozenset[str]]] = {}  # in progress, by name; with their nodes

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable if access to the cluster is refused."""
        settings = limits.settings
        try:
            api = self.opened(settings)
            known = self.nodes(api, targets)
        except (AwsError, KubernetesError) as problem:
            raise Unusable(str(problem)) from None
        reached = []
        for target in targets:
            why = self.unreachable(known.get(target.name), settings)
            if why:
                answered(target, Answer(unreached=why.unreached, detail=why.detail))
            else:
                reached.append(target)
        if not reached:
            return
        rounds = -(-len(reached) // max(1, limits.fanout))
        run = new_run(settings, self.prefix, self.image_setting)
        self._runs[run.name] = (api, run, frozenset(target.name for target in reached))
        try:
            run = _begun(api, run, program, limits, rounds * self.visit.whole_s(limits))
            _visited(self.visit, VisitContext(api, run, limits, known, program.nonce), reached, answered)
        finally:
            self.end(api, run)

    def under_load(self) -> Connection:
        """Pods that request the devices they use from the scheduler: those of this connection request nothing."""
        return PerfPods()

    def opened(self, settings: Mapping[str, str]) -> Api:
        """The API of the cluster. Raises AwsError, KubernetesError."""
        return open_api(settings)

    def nodes(self, api: Api, _targets: Sequence[Target]) -> Mapping[str, ApiNode]:
        """The Kubernetes nodes, including at least these. Raises KubernetesError."""
        return {node.name: node for node in nodes(api)}

    def unreachable(self, node: ApiNode | None, settings: Mapping[str, str]) -> PodFailure | None:
        """Why no pod is sent to a node; None if one is."""
        return unreachable(node, settings)

    def end(self, api: Api, run: RunObjects) -> None:
        """Delete the run's objects."""
        end(api, run)
        self._runs.pop(run.name, None)

    def abandon(self) -> None:
        """Delete the objects of runs still in progress, which nobody waits for any more."""
        for api, run, _ in list(self._runs.values()):
            end(api, run)


class PerfPods(Kubernetes):
    """Runs the program in one pod on each node whose devices are all free, and holds them meanwhile.

    The API is opened once.
    """

    visit = PerfVisit
    image_setting = IMAGE_SETTING
    prefix = "clusterproof-perf"  # load.yaml grants people who only measure access to objects of this name

    def __init__(self) -> None:
        super().__init__()
        self._api: Api | None = None
        self._lock = threading.Lock()

    def under_load(self) -> PerfPods:
        """This connection itself."""
        return self

    def opened(self, settings: Mapping[str, str]) -> Api:
        """The API of the cluster. Raises AwsError, KubernetesError, Unusable."""
        if not settings.get(IMAGE_SETTING):
            raise Unusable(NO_IMAGE_NAMED)
        with self._lock:
            self._api = self._api or super().opened(settings)
            return self._api

    def nodes(self, api: Api, targets: Sequence[Target]) -> Mapping[str, ApiNode]:
        """The Kubernetes nodes, including at least these. Raises KubernetesError."""
        if len(targets) > FEW:
            return super().nodes(api, targets)
        return {node.name: node for target in targets for node in nodes(api, name=target.name)}

    def unreachable(self, node: ApiNode | None, _settings: Mapping[str, str]) -> PodFailure | None:
        """Why no pod is sent to a node; None if one is."""
        if node is None:
            return PodFailure(Unreached.NOT_READY, NO_NODE)
        detail = why_not_whole(node)
        return not_ready(node) or (PodFailure(Unreached.BUSY, detail) if detail else None)

    def leave(self, targets: Sequence[Target]) -> bool:
        """Delete the pods that run only on these nodes, if nobody waits for them any more."""
        left = frozenset(target.name for target in targets)
        for api, run, names in list(self._runs.values()):
            if names <= left:
                self.end(api, run)
        return True

    def unavailable(self, targets: Sequence[Target], settings: Mapping[str, str]) -> Mapping[str, str]:
        """Which of these nodes cannot be loaded now, and why. Raises Unusable."""
        try:
            api = self.opened(settings)
            known = self.nodes(api, targets)
            every = (
                pods(api) if len(targets) > FEW else [pod for target in targets for pod in pods(api, node=target.name)]
            )
        except (AwsError, KubernetesError) as problem:
            raise Unusable(str(problem)) from None
        by_node: dict[str, list[Pod]] = {}
        for pod in every:
            by_node.setdefault(pod.node, []).append(pod)
        why: dict[str, str] = {}
        for target in targets:
            node = known.get(target.name)
            missed = self.unreachable(node, settings)
            reason = missed.detail if missed else allocated(node, by_node.get(target.name, ())) if node else ""
            if reason:
                why[target.name] = reason
        return why


def unreachable(node: ApiNode | None, settings: Mapping[str, str]) -> PodFailure | None:
    """Why no pod is sent to a node; None if one is."""
    if node is None:
        return PodFailure(Unreached.NOT_READY, NO_NODE)
    if not (image_on(node) or settings.get("k8s_image")):
        return not_ready(node) or PodFailure(Unreached.NO_IMAGE, UNKNOWN_IMAGE)
    return not_ready(node)


def end(api: Api, run: RunObjects) -> None:
    """Delete a run's objects: what is left goes with the Job, at the latest by its time to live."""
    for path, query in (
        (f"{run.jobs}/{run.name}", {"propagationPolicy": "Background"}),
        (f"{run.config_maps}/{run.name}", {}),
        (run.pods, {"labelSelector": run.selector, "gracePeriodSeconds": 0}),
    ):
        try:
            api.delete(path, **query)
        except KubernetesError as problem:
            if not problem.status:  # the API server is gone, and would be waited for each time
                return


def _begun(api: Api, run: RunObjects, program: Program, limits: Limits, whole_s: float) -> RunObjects:
    """Create the Job and the program. Raises Unusable."""
    ttl_s = int(limits.settings.get("k8s_ttl_s") or max(TTL_S, whole_s))
    try:
        return create_owner(api, run, ttl_s, script_of(program.command))
    except KubernetesError as problem:
        raise Unusable(refused(problem, run.namespace)) from None


def _visited(
    visit: type[PodVisit], shared: VisitContext, targets: Sequence[Target], answered: Callable[[Target, Answer], None]
) -> None:
    """Visit all nodes, creating the first one's pod first. Raises Unusable if that, or every log, is refused."""
    shared.watch.start()
    names = {target.name: f"{shared.run.name}-{number}" for number, target in enumerate(targets)}
    is_answered = False

    def note(target: Target, answer: Answer) -> None:
        nonlocal is_answered
        is_answered = is_answered or not shared.is_refusal(answer)
        answered(target, answer)

    try:
        first = visit(shared, targets[0], names[targets[0].name])
        problem = first.create()
        if shared.refusal:
            raise Unusable(shared.refusal)
        if problem:
            answered(targets[0], problem)

        def begin(target: Target) -> PodVisit:
            return first if target is targets[0] else visit(shared, target, names[target.name])

        fan_out(targets[1:] if problem else targets, begin, shared.limits.fanout, note)
        if shared.refusal and not is_answered:
            raise Unusable(shared.refusal)
    finally:
        shared.watch.close()
