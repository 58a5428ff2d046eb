"""Visits one node: creates its pod once a quota has room, watches it to its end, and reads its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from clusterproof.plugins.agent.frame import has_end
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.kubernetes import NOT_FOUND, TOO_MANY
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.nodes import ApiNode
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.kubernetes import CONTAINER, RunObjects, image_on, pod
from clusterproof.plugins.transport.kubernetes.creation import create
from clusterproof.plugins.transport.kubernetes.log import NoLog, log_of
from clusterproof.plugins.transport.kubernetes.outcome import (
    LONGEST,
    after_the_end,
    has_begun,
    is_of_quota,
    is_settled,
    pod_failure,
    refused,
)
from clusterproof.plugins.transport.kubernetes.pod_watch import PodWatch

FREE_AGAIN_S = 2.0  # between retries for one node: Kubernetes updates quotas a moment after a pod has ended
COUNTED_S = 15.0  # this long after the run's last pod has ended, the quota no longer counts it


class PodSlots:
    """Limits the pods of a run that exist at once. Thread-safe."""

    def __init__(self, api: Api, run: RunObjects) -> None:
        self._api = api
        self._run = run
        self._count = 0
        self._left_at = float("-inf")  # time.monotonic(): when the last slot was released
        self._left: list[str] = []  # pods that are no longer needed
        self._is_short = False
        self._changed = threading.Condition()

    def occupy(self) -> None:
        """Count a pod that was created."""
        with self._changed:
            self._count += 1

    def release(self, name: str) -> None:
        """Release a pod that is no longer needed; if slots are short, it is deleted at once."""
        with self._changed:
            self._count -= 1
            self._left_at = time.monotonic()
            self._left.append(name)
        if self._is_short:
            self._delete()
        with self._changed:
            self._changed.notify()

    def wait(self) -> bool:
        """Wait briefly for a slot; False if none of the run's own pods could release one."""
        self._is_short = True
        self._delete()
        with self._changed:
            if not self._count and time.monotonic() > self._left_at + COUNTED_S:
                return False
            self._changed.wait(FREE_AGAIN_S)
            return True

    def _delete(self) -> None:
        """Delete the released pods: a quota of objects also counts those that have ended."""
        with self._changed:
            names, self._left = self._left, []
        for name in names:
            with suppress(KubernetesError):  # it is deleted with the run
                self._api.delete(self._run.pods, fieldSelector=f"metadata.name={name}", gracePeriodSeconds=0)


MIN_START_S = 30.0  # for a kubelet to start a pod, in addition to --connect-timeout
LOG_S = 5.0  # for a kubelet that is slow to return a log
LOG_END_S = 10.0  # for the end of a log: a container is reported as ended before its runtime has written all of it
RETRY_S = 0.1  # before a log is read again, doubled each time
SLACK_S = 30.0  # for a node's requests that the API server delays


@dataclass(slots=True)
class VisitContext:
    """What the visits of a run share; `nonce` marks the end of each answer, empty if nothing does."""

    api: Api
    run: RunObjects
    limits: Limits
    nodes: Mapping[str, ApiNode]
    nonce: str = ""
    refusal: str = ""  # why the API server refuses to let any node be asked
    is_admitted: bool = False  # whether it has admitted a pod: then what admission refuses is of one node
    watch: PodWatch = field(init=False)
    slots: PodSlots = field(init=False)

    def __post_init__(self) -> None:
        self.watch = PodWatch(self.api, self.run)
        self.slots = PodSlots(self.api, self.run)

    def is_refusal(self, answer: Answer) -> bool:
        """Whether a node was answered with what the API server refuses for all."""
        return answer.unreached is Unreached.API and bool(self.refusal) and answer.detail == self.refusal


# What a kubelet returns as a log, with status 200, if it has deleted the container: as when the disk is full.
DELETED = (b"unable to retrieve container logs for ", b"failed to try resolving symlinks in path ")
LISTED = (
    "the loader listed libraries and ran nothing, as the pod's image sets LD_TRACE_LOADED_OBJECTS; expected an image "
    "that does not: --k8s-image"
)


@dataclass(slots=True)
class PodVisit:
    """The visit of one node: its pod, and its log."""

    context: VisitContext
    target: Target
    name: str
    deadline: float = field(init=False)
    started: float = field(init=False)
    is_created: bool = False
    image_option: ClassVar[str] = "--k8s-image"

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + self.whole_s(self.context.limits) + SLACK_S + SLACK_S

    @classmethod
    def start_s(cls, limits: Limits) -> float:
        """How long its pod may take to start."""
        return MIN_START_S + limits.connect_s

    @classmethod
    def whole_s(cls, limits: Limits) -> float:
        """How long the node may take."""
        return cls.start_s(limits) + limits.answer_s

    def pod(self) -> Mapping[str, Any]:
        """The pod to create."""
        node, run = self.context.nodes[self.target.name], self.context.run
        return pod(run, self.name, node, run.image or image_on(node), self.pod_s)

    @property
    def pod_s(self) -> int:
        """The deadline after which the kubelet kills its pod."""
        return int(self.whole_s(self.context.limits) + SLACK_S)

    def make(self) -> Answer:
        """Visit the node."""
        if self.context.refusal:
            return Answer(unreached=Unreached.API, detail=self.context.refusal)
        problem = None if self.is_created else self.create()
        if problem:
            return problem
        try:
            return self.followed()
        except KubernetesDenied as denied:
            return self.refused(denied)
        finally:
            self.context.slots.release(self.name)

    def abandon(self) -> None:
        """There is nothing to abort from outside: the run deletes its pods."""

    def create(self) -> Answer | None:
        """Create the pod once there is a slot; returns why that failed, if it did."""
        while not self.context.refusal:
            try:
                create(self.context.api, self.context.run.pods, self.pod())
            except (KubernetesDenied, KubernetesRefused) as problem:
                if is_of_quota(problem) and self.context.slots.wait():
                    self._begin()
                    continue
                is_of_node = isinstance(problem, KubernetesRefused) and self.context.is_admitted
                return self._failed(problem) if is_of_node else self.refused(problem)
            except KubernetesError as problem:
                if is_of_quota(problem) and self.context.slots.wait():  # other pods were counted at the same moment
                    continue
                return self._failed(problem)
            self.is_created = self.context.is_admitted = True
            self.context.slots.occupy()
            return None
        return Answer(unreached=Unreached.API, detail=self.context.refusal)

    def followed(self) -> Answer:
        """The answer of an existing pod. Raises KubernetesDenied."""
        limits, node = self.context.limits, self.context.nodes[self.target.name]
        wait_s = self.start_s(limits)
        pod, is_gone = self.context.watch.wait(self.name, time.monotonic() + wait_s, has_begun)
        if pod and has_begun(pod) and not is_gone:
            wait_s = limits.answer_s
            pod, is_gone = self.context.watch.wait(self.name, time.monotonic() + wait_s, is_settled)
        why = pod_failure(pod, is_gone, node, wait_s, bool(self.context.run.image), self.image_option)
        if why or pod is None:
            assert why
            return Answer(unreached=why.unreached, detail=why.detail, seconds=self.seconds())
        detail = after_the_end(pod)
        output = self._log() if detail else self._whole_log()
        if isinstance(output, Answer):
            ended = Answer(unreached=Unreached.REMOVED, detail=f"{detail}; {output.detail}", seconds=self.seconds())
            return ended if detail else output
        if f"=> {self.context.run.root}/".encode() in output and not self._is_whole(output):
            return Answer(unreached=Unreached.NO_IMAGE, detail=LISTED, seconds=self.seconds())
        return Answer(output, Unreached.CUT if detail else None, detail, self.seconds())

    def _whole_log(self) -> bytes | Answer:
        """What the pod printed, read again until its end is there. Raises KubernetesDenied."""
        until, pause_s = time.monotonic() + LOG_END_S, RETRY_S
        output = self._log()
        while isinstance(output, bytes) and not self._is_whole(output) and time.monotonic() + pause_s < until:
            time.sleep(pause_s)
            pause_s *= 2
            again = self._log()
            if isinstance(again, Answer):
                break  # an earlier part is better than nothing
            output = again
        return output

    def _is_whole(self, output: bytes) -> bool:
        nonce = self.context.nonce
        return not nonce or has_end(output, nonce) or len(output) >= self.context.limits.answer_bytes

    def _log(self) -> bytes | Answer:
        """The log as it is now. Raises KubernetesDenied."""
        pods, most = self.context.run.pods, self.context.limits.answer_bytes
        try:
            output = log_of(self.context.api, pods, self.name, most, LOG_S, container=CONTAINER)
            if not output.startswith(DELETED):
                return output
            why = output[:LONGEST].decode("utf-8", "replace")
            detail = f"its container's log was deleted before it was read: {printable(why, LONGEST)}"
            return Answer(unreached=Unreached.REMOVED, detail=detail, seconds=self.seconds())
        except KubernetesDenied:
            raise
        except KubernetesError as problem:
            if problem.status == NOT_FOUND:
                return Answer(
                    unreached=Unreached.REMOVED, detail=f"its pod was deleted before its log was read: {problem}"
                )
            if isinstance(problem, NoLog):
                detail = f"it ran; the control plane cannot read its log: {problem}; expected a way to port 10250 there"
                return Answer(unreached=Unreached.NO_LOG, detail=detail, seconds=self.seconds())
            return self._failed(problem)

    def refused(self, problem: KubernetesError) -> Answer:
        """The answer if permission is missing; no other node is visited then."""
        self.context.refusal = refused(problem, self.context.run.namespace)
        return Answer(unreached=Unreached.API, detail=self.context.refusal, seconds=self.seconds())

    def _failed(self, problem: KubernetesError) -> Answer:
        why, detail = Unreached.API, refused(problem, self.context.run.namespace)
        if problem.status == TOO_MANY:
            why, detail = Unreached.THROTTLED, f"{problem}; expected a smaller --fanout"
        return Answer(unreached=why, detail=detail, seconds=self.seconds())

    def seconds(self) -> float:
        """Seconds since the visit began."""
        return time.monotonic() - self.started
