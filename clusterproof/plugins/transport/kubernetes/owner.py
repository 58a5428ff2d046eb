"""The Job that owns the pods of a watch, and with which they are deleted.

Its time to live is extended periodically, with one request for all pods. When the watch stops doing that, Kubernetes
deletes the Job, and everything it owns.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from clusterproof.plugins.aws import AwsError
from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes import NOT_FOUND
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import MERGE, Api, KubernetesError
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.transport import Unusable
from clusterproof.plugins.transport.kubernetes import TTL_S, RunObjects, namespace_of, new_run
from clusterproof.plugins.transport.kubernetes.connection import end
from clusterproof.plugins.transport.kubernetes.creation import create_owner
from clusterproof.plugins.transport.kubernetes.outcome import refused
from clusterproof.plugins.transport.kubernetes.pod_watch import PodWatch

PUT_OFF = 4  # extensions per time to live
RETRY_S = 10.0  # after a request that failed
KNOWN_S = 60.0  # how long data about nodes is cached


@record
class CurrentJob:
    """An existing Job, and its pods."""

    run: RunObjects
    pods: PodWatch


class JobOwner:
    """Keeps a watch's Job alive; creates another if it was deleted. Thread-safe."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.ttl_s = int(settings.get("k8s_ttl_s") or TTL_S)
        self.settings = settings
        self._program = ""
        self._known: tuple[float, Mapping[str, ApiNode]] = (float("-inf"), {})
        self._left: set[str] = set()  # pods that could not be deleted
        self._numbers = itertools.count()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="watch-owner", daemon=True)
        self.api: Api
        self._owned: CurrentJob

    def open(self, program: str) -> None:
        """Create the Job, and what its pods are to run. Raises Unusable."""
        self._program = program
        try:
            self.api = open_api(self.settings)
            self._begin()
            self._put_off()  # a missing permission shows here, before any pod exists
        except (AwsError, KubernetesError) as problem:
            reason = (
                refused(problem, namespace_of(self.settings)) if isinstance(problem, KubernetesError) else str(problem)
            )
            self.close()
            raise Unusable(reason) from None
        self._thread.start()

    def close(self) -> None:
        """Delete it, and everything it owns."""
        self._is_over.set()
        if hasattr(self, "_owned"):
            self._owned.pods.close()
            end(self.api, self._owned.run)

    @property
    def current_job(self) -> CurrentJob:
        """The current Job."""
        return self._owned

    def name(self) -> str:
        """A name for another pod."""
        return f"{self._owned.run.name}-{next(self._numbers)}"

    def node(self, name: str) -> ApiNode | None:
        """A node's object in Kubernetes. Raises KubernetesError."""
        with self._lock:
            at, known = self._known
            if time.monotonic() - at > KNOWN_S:
                known = {node.name: node for node in nodes(self.api)}
                self._known = (time.monotonic(), known)
            return known.get(name)

    def remove(self, job: CurrentJob, pod: str) -> None:
        """Delete one of its pods, now or later."""
        try:
            self.api.delete(job.run.pods, fieldSelector=f"metadata.name={pod}", gracePeriodSeconds=0)
            self._left.discard(pod)
        except KubernetesError:
            self._left.add(pod)
        job.pods.forget(pod)

    def _begin(self) -> None:
        """Create a Job and its program. Raises KubernetesError."""
        run, began = new_run(self.settings), time.monotonic()
        try:
            run = create_owner(self.api, run, self.ttl_s, self._program)
        except KubernetesError:
            end(self.api, run)
            raise
        self._owned, self._began = CurrentJob(run, PodWatch(self.api, run)), began
        self._owned.pods.start()

    def _put_off(self) -> None:
        """Restart its time to live. Raises KubernetesError."""
        run = self._owned.run
        ttl_s = int(time.monotonic() - self._began) + self.ttl_s
        self.api.patch(f"{run.jobs}/{run.name}", {"spec": {"ttlSecondsAfterFinished": ttl_s}}, MERGE)

    def _keep(self) -> None:
        pause_s = every_s = self.ttl_s / PUT_OFF
        while not self._is_over.wait(pause_s):
            pause_s = every_s
            try:
                self._put_off()
                for pod in list(self._left):
                    self.remove(self._owned, pod)
            except KubernetesError as problem:
                pause_s = min(RETRY_S, every_s)
                if problem.status == NOT_FOUND and not self._is_over.is_set():
                    before = self._owned
                    with suppress(KubernetesError):
                        self._begin()
                        before.pods.close()
