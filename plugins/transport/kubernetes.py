"""Nodes of a Kubernetes cluster, by one pod each: created on the node itself, its answer read from its log.

Two requests for a node, and eight to eleven for a run. Nothing is left of it: the run deletes its pods at the end, and
where nobody is left to do so, Kubernetes does.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clusterproof.plugins.aws.account import AwsError
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.nodes import KubernetesNode, nodes
from clusterproof.plugins.transport import Answer, Limits, Program, Unusable
from clusterproof.plugins.transport.fan_out import fan_out
from clusterproof.plugins.transport.kubernetes_outcome import (
    Missed,
    after_the_end,
    has_begun,
    is_settled,
    missed,
    not_ready,
)
from clusterproof.plugins.transport.kubernetes_pod import (
    CONTAINER,
    NAMESPACE,
    TTL_S,
    Run,
    config_map,
    image_on,
    job,
    pod,
)
from clusterproof.plugins.transport.kubernetes_watch import PodWatch

LEAST_START_S = 30.0  # for a kubelet to start a pod, beside --connect-timeout
LOG_S = 5.0  # for a kubelet that does not give a log at once
SLACK_S = 30.0  # for requests of a node that the API server lets wait
RBAC = "integrations/kubernetes/rbac.yaml grants what is needed (docs/kubernetes.md)"
NO_NODE = "Kubernetes has no node of this name; expected one of kubectl get nodes"
UNKNOWN_IMAGE = "the kubelet tells of no image on the node; expected --k8s-image"


class Kubernetes:
    """Runs the program in one pod on each node."""

    takes_stdin = False

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable where the cluster does not let us."""
        settings = limits.settings
        try:
            api = open_api(settings)
            known = {node.name: node for node in nodes(api)}
        except (AwsError, KubernetesError) as problem:
            raise Unusable(str(problem)) from None
        reached = []
        for target in targets:
            why = _unreachable(known.get(target.name), settings)
            if why:
                answered(target, Answer(unreached=why.unreached, detail=why.detail))
            else:
                reached.append(target)
        if not reached:
            return
        name = f"clusterproof-{secrets.token_hex(5)}"
        run = Run(name, settings.get("k8s_namespace") or NAMESPACE, settings.get("k8s_image", ""))
        try:
            run = _begun(api, run, program, limits, len(reached))
            Visits(api, run, limits, known).run(reached, answered)
        finally:
            _end(api, run)


def _unreachable(node: KubernetesNode | None, settings: Mapping[str, str]) -> Missed | None:
    """Why no pod is sent to a node."""
    if node is None:
        return Missed(Unreached.NOT_READY, NO_NODE)
    if not (image_on(node) or settings.get("k8s_image")):
        return not_ready(node) or Missed(Unreached.NO_IMAGE, UNKNOWN_IMAGE)
    return not_ready(node)


def _begun(api: Api, run: Run, program: Program, limits: Limits, count: int) -> Run:
    """Put the Job and the program there. Raises Unusable."""
    rounds = -(-count // max(1, limits.fanout))
    ttl_s = int(limits.settings.get("k8s_ttl_s") or max(TTL_S, rounds * _visit_s(limits)))
    try:
        made = api.create(run.jobs, job(run, ttl_s))
        run = replace(run, uid=str((made.get("metadata") or {}).get("uid") or ""))
        api.create(run.config_maps, config_map(run, program.command))
    except KubernetesError as problem:
        raise Unusable(_words(problem, run)) from None
    return run


def _end(api: Api, run: Run) -> None:
    """Delete the run's objects: what may not be deleted here, the Job's end deletes, at last by its time to live."""
    with suppress(KubernetesError):
        api.delete(run.pods, labelSelector=run.selector, gracePeriodSeconds=0)
    with suppress(KubernetesError):
        api.delete(f"{run.config_maps}/{run.name}")
    with suppress(KubernetesError):
        api.delete(f"{run.jobs}/{run.name}", propagationPolicy="Background")


def _visit_s(limits: Limits) -> float:
    return LEAST_START_S + limits.connect_s + limits.answer_s


def _words(problem: KubernetesError, run: Run) -> str:
    """One line for a request that was refused: the server's words, and the way out."""
    if isinstance(problem, KubernetesDenied):
        return f"{problem}; {RBAC}"
    if isinstance(problem, KubernetesRefused):
        return (
            f"{problem}; expected a namespace that admits privileged pods: kubectl label namespace {run.namespace} "
            "pod-security.kubernetes.io/enforce=privileged"
        )
    if problem.status == 404:
        return f"{problem}; expected the namespace {run.namespace}: {RBAC}"
    return str(problem)


@dataclass(slots=True)
class Visits:
    """All nodes' turns: what they share."""

    api: Api
    run_: Run
    limits: Limits
    known: Mapping[str, KubernetesNode]
    refusal: str = ""  # why the API server lets nobody be asked
    watch: PodWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = PodWatch(self.api, self.run_)

    def run(self, targets: Sequence[Target], answered: Callable[[Target, Answer], None]) -> None:
        """Visit all; the first one's pod before the others'. Raises Unusable where that is refused, or every log."""
        self.watch.start()
        names = {target.name: f"{self.run_.name}-{number}" for number, target in enumerate(targets)}
        told = False

        def note(target: Target, answer: Answer) -> None:
            nonlocal told
            told = told or not self.refusal
            answered(target, answer)

        try:
            first = PodVisit(self, targets[0], names[targets[0].name])
            problem = first.create()
            if self.refusal:
                raise Unusable(self.refusal)
            if problem:
                answered(targets[0], problem)

            def begin(target: Target) -> PodVisit:
                return first if target is targets[0] else PodVisit(self, target, names[target.name])

            fan_out(targets[1:] if problem else targets, begin, self.limits.fanout, note)
            if self.refusal and not told:
                raise Unusable(self.refusal)
        finally:
            self.watch.close()


@dataclass(slots=True)
class PodVisit:
    """One node's turn: its pod, and its log."""

    visits: Visits
    target: Target
    name: str
    deadline: float = field(init=False)
    started: float = field(init=False)
    is_created: bool = False

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + _visit_s(self.visits.limits) + SLACK_S + SLACK_S

    def make(self) -> Answer:
        """Visit the node."""
        if self.visits.refusal:
            return Answer(unreached=Unreached.API, detail=self.visits.refusal)
        problem = None if self.is_created else self.create()
        if problem:
            return problem
        try:
            return self._followed()
        except KubernetesDenied as denied:
            return self._refused(denied)

    def abandon(self) -> None:
        """Nothing to end from outside: the run deletes its pods."""

    def create(self) -> Answer | None:
        """Create the pod; why that failed, where it did."""
        node = self.visits.known[self.target.name]
        run, limits = self.visits.run_, self.visits.limits
        image = run.image or image_on(node)
        try:
            self.visits.api.create(run.pods, pod(run, self.name, node, image, int(_visit_s(limits) + SLACK_S)))
        except (KubernetesDenied, KubernetesRefused) as problem:
            return self._refused(problem)
        except KubernetesError as problem:
            if problem.status != 409:  # else it was created by a request whose answer was lost
                return self._failed(problem)
        self.is_created = True
        return None

    def _followed(self) -> Answer:
        """The answer of a pod that there is. Raises KubernetesDenied."""
        limits, node = self.visits.limits, self.visits.known[self.target.name]
        wait_s = LEAST_START_S + limits.connect_s
        found, is_gone = self.visits.watch.wait(self.name, time.monotonic() + wait_s, has_begun)
        if found and has_begun(found) and not is_gone:
            wait_s = limits.answer_s
            found, is_gone = self.visits.watch.wait(self.name, time.monotonic() + wait_s, is_settled)
        why = missed(found, is_gone, node, wait_s)
        if why or found is None:
            assert why
            return Answer(unreached=why.unreached, detail=why.detail, seconds=self._seconds())
        output = self._log()
        if isinstance(output, Answer):
            return output
        detail = after_the_end(found)
        return Answer(output, Unreached.CUT if detail else None, detail, self._seconds())

    def _log(self) -> bytes | Answer:
        """What the pod printed. Raises KubernetesDenied."""
        path = f"{self.visits.run_.pods}/{self.name}/log"
        most = self.visits.limits.answer_bytes
        try:
            return self.visits.api.text(path, most, LOG_S, container=CONTAINER, limitBytes=most)
        except KubernetesDenied:
            raise
        except KubernetesError as problem:
            if problem.status == 404:
                return Answer(
                    unreached=Unreached.REMOVED, detail=f"its pod was deleted before its log was read: {problem}"
                )
            if problem.status >= 500:
                words = f"it ran; the control plane cannot read its log: {problem}; expected a way to port 10250 there"
                return Answer(unreached=Unreached.NO_LOG, detail=words, seconds=self._seconds())
            return self._failed(problem)

    def _refused(self, problem: KubernetesError) -> Answer:
        """The answer where whoever asks may not; nobody else is asked then."""
        self.visits.refusal = _words(problem, self.visits.run_)
        return Answer(unreached=Unreached.API, detail=self.visits.refusal, seconds=self._seconds())

    def _failed(self, problem: KubernetesError) -> Answer:
        why = Unreached.THROTTLED if problem.status == 429 else Unreached.API
        words = (
            f"{problem}; expected a smaller --fanout" if problem.status == 429 else _words(problem, self.visits.run_)
        )
        return Answer(unreached=why, detail=words, seconds=self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self.started
