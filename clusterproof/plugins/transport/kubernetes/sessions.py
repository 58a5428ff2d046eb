"""Runs a program on a Kubernetes node in a pod, whose log is followed for as long as it lasts.

If the log breaks off and the pod continues, it is read again from some seconds earlier: lines then arrive twice, and
the reader skips duplicates by their numbers.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.api import KubernetesError, Stream
from clusterproof.plugins.kubernetes.nodes import ApiNode
from clusterproof.plugins.transport import PROGRAM_ENDED, Limits, NodeSession, Program, Received
from clusterproof.plugins.transport.kubernetes import CONTAINER, image_on, pod
from clusterproof.plugins.transport.kubernetes.connection import unreachable
from clusterproof.plugins.transport.kubernetes.creation import create
from clusterproof.plugins.transport.kubernetes.outcome import (
    after_the_end,
    has_begun,
    is_settled,
    misplaced,
    pod_failure,
    refused,
)
from clusterproof.plugins.transport.kubernetes.owner import CurrentJob, JobOwner
from clusterproof.plugins.transport.kubernetes.visit import MIN_START_S

POD_S = 6 * 3600  # the kubelet ends a pod after this time in any case; then another starts
SETTLED_S = 2.0  # for the API server to report that a pod has ended, as its log does
BEFORE_S = 10  # how much of a log is read again
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
MAX_LINE_BYTES = 1 << 20
DELETED = "its pod was deleted meanwhile"


class NoPod(Exception):  # noqa: N818 - what is so
    """No pod runs on the node; the message says why."""


class PodSessions:
    """Sessions with a pod on each node."""

    has_input = False  # only a pod's log is read: nothing can be sent to it

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._owner = JobOwner(limits.settings)
        self._slots = threading.Semaphore(limits.fanout)

    def open(self, text: str) -> None:
        """As in Sessions."""
        self._owner.open(text)

    def on_node(self, interrupted: Callable[[str], object]) -> NodeSession:
        """As in Sessions."""
        return PodSession(self._owner, self._limits, self._slots, interrupted)

    def close(self) -> None:
        """As in Sessions."""
        self._owner.close()


class PodSession:
    """A session on one node."""

    has_input = False

    def __init__(
        self, owner: JobOwner, limits: Limits, slots: threading.Semaphore, interrupted: Callable[[str], object]
    ) -> None:
        self._owner, self._limits, self._slots, self._interrupted = owner, limits, slots, interrupted
        self._is_over = threading.Event()
        self._stream: Stream | None = None

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str:
        """As in NodeSession."""
        owned = self._owner.current_job
        try:
            node = self._node(target)
            name = self._owner.name()
            try:
                with self._slots:
                    if self._is_over.is_set():
                        return ""
                    self._start(owned, name, node, program)
                return self._followed(owned, name, LineSplitter(received), dead_s)
            finally:
                if not self._is_over.is_set():  # else all pods are deleted together
                    self._owner.remove(owned, name)
        except NoPod as why:
            return "" if self._is_over.is_set() else str(why)
        except KubernetesError as problem:
            return "" if self._is_over.is_set() else refused(problem, owned.run.namespace)

    def end(self) -> None:
        """As in NodeSession."""
        self._is_over.set()
        if self._stream:
            self._stream.close()

    def _node(self, target: Target) -> ApiNode:
        """The node's object in Kubernetes. Raises NoPod, KubernetesError."""
        node = self._owner.node(target.name)
        why = unreachable(node, self._owner.settings)
        if why or node is None:
            raise NoPod(why.detail if why else "")
        return node

    def _start(self, job: CurrentJob, name: str, node: ApiNode, program: Program) -> None:
        """Create the pod, and wait until it runs. Raises NoPod, KubernetesError."""
        run, deadline_s = job.run, int(POD_S * random.uniform(0.8, 1.0))  # noqa: S311 - not all end at once
        image = run.image or image_on(node)
        body = pod(run, name, node, image, deadline_s, run.on_stdin(program.command))
        create(self._owner.api, run.pods, body)
        wait_s = MIN_START_S + self._limits.connect_s
        started, is_gone = job.pods.wait(name, time.monotonic() + wait_s, has_begun)
        is_running = started and not is_gone and has_begun(started) and not is_settled(started)
        if not is_running or misplaced(started, node):
            why = pod_failure(started, is_gone, node, wait_s, bool(run.image))
            if why:
                raise NoPod(why.detail)

    def _followed(self, job: CurrentJob, name: str, lines: LineSplitter, dead_s: float) -> str:
        """Follow the log; returns why it ended. Raises KubernetesError, and what its listener raises."""
        last, pause_s, empty_reads = 0.0, FIRST_PAUSE_S, 0
        began = time.monotonic()
        while not self._is_over.is_set():
            status, opened = 0, 0.0
            query = {"sinceSeconds": int(time.monotonic() - last) + BEFORE_S} if last else {}
            try:
                path = f"{job.run.pods}/{name}/log"
                with self._owner.api.stream(path, dead_s, container=CONTAINER, follow="true", **query) as stream:
                    self._stream, opened = stream, time.monotonic()
                    for piece in () if self._is_over.is_set() else stream.pieces():
                        last, pause_s, empty_reads = time.monotonic(), FIRST_PAUSE_S, 0
                        lines.feed(piece)
                why = "its log broke off"
            except KubernetesError as problem:
                why, status = f"its log{'' if opened else ':'} {problem}", problem.status
            lines.cut()
            self._interrupted(why)
            now = time.monotonic()
            if opened and now - max(last, opened) >= dead_s:
                empty_reads += 1
            ended = self._ended(job, name, status)
            if ended or self._is_over.is_set():
                return ended
            if empty_reads > 1 or now - (last or began) > self._owner.ttl_s:
                return f"nothing came for {now - (last or began):.0f} s; {why}"
            self._is_over.wait(pause_s * random.uniform(0.7, 1.0))  # noqa: S311 - not all at once again
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
        return ""

    def _ended(self, job: CurrentJob, name: str, status: int) -> str:
        """How the pod has ended, in words; empty if it still runs. Raises KubernetesDenied."""
        pod, is_gone = job.pods.wait(name, time.monotonic() + SETTLED_S, is_settled)
        if pod and (is_gone or is_settled(pod)):
            node = self._owner.node(pod.node)
            why = pod_failure(pod, is_gone, node, 0.0, bool(job.run.image)) if node else None
            return why.detail if why else after_the_end(pod) or PROGRAM_ENDED
        is_of_another_job = job is not self._owner.current_job  # its own was deleted, and its pods are not watched
        is_missing = status == NOT_FOUND and is_of_another_job  # a starting kubelet answers this for all pods
        return DELETED if is_gone or is_missing else ""


class LineSplitter:
    """Passes on complete lines: a line at which a log broke off is sent again from its start."""

    def __init__(self, received: Received) -> None:
        self._heard = received
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Process output; raises what the listener raises."""
        complete, end, self._rest = (self._rest + piece).rpartition(b"\n")
        if end:
            self._heard(complete + end)
        elif len(self._rest) > MAX_LINE_BYTES:
            self._heard(self._rest)
            self._rest = b""

    def cut(self) -> None:
        """The next output starts a line."""
        self._rest = b""
