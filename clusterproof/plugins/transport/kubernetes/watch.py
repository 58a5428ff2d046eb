"""What has become of a run's pods: one watch for all of them, restarted where it is cut."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.workloads import Pod, pod_of
from clusterproof.plugins.transport.kubernetes.pod import Run

WATCH_S = 60.0  # of one watch: one that has gone silent, as behind a load balancer that forgot it, costs no more
AGAIN_S = 1.0  # after one that broke


class PodWatch:
    """The run's pods by name, as they are now. Safe to use from several threads."""

    def __init__(self, api: Api, run: Run) -> None:
        self._api = api
        self._run = run
        self._pods: dict[str, Pod] = {}
        self._gone: set[str] = set()
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()
        self._changed: dict[str, threading.Condition] = {}  # one for each pod: an event wakes whom it concerns
        self._awaited: dict[str, Callable[[Pod], bool]] = {}  # and only where the pod is as they want it
        self._problem: KubernetesError | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._follow, name="pods", daemon=True)

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop at the next event; the run's pods are about to be deleted, which is one."""
        with self._lock:
            self._is_over = True
            self._tell(list(self._changed))

    def wait(self, name: str, until: float, settled: Callable[[Pod], bool]) -> tuple[Pod | None, bool]:
        """The pod once it is settled, or as it is `until` then (time.monotonic()); and whether it is gone.

        Where the watch has not said so, the pod is asked for once more. Raises KubernetesDenied where pods may not be
        watched.
        """
        pod, is_gone = self._waited(name, until, settled)
        if is_gone or self._is_over or (pod and settled(pod)):
            return pod, is_gone
        with suppress(KubernetesError):
            page = self._api.get(
                self._run.pods, labelSelector=self._run.selector, fieldSelector=f"metadata.name={name}"
            )
            pod = next(map(pod_of, page.get("items") or ()), pod)
        return pod, False

    def _waited(self, name: str, until: float, settled: Callable[[Pod], bool]) -> tuple[Pod | None, bool]:
        """The same, as far as the watch has said."""
        with self._lock:
            changed = self._changed.setdefault(name, threading.Condition(self._lock))
            self._awaited[name] = settled
            while True:
                pod, is_gone = self._pods.get(name), name in self._gone
                left_s = until - time.monotonic()
                if self._problem:
                    raise self._problem
                if is_gone or (pod and settled(pod)) or left_s <= 0 or self._is_over:
                    return pod, is_gone
                changed.wait(left_s)

    def forget(self, name: str) -> None:
        """Know no more of a pod that is deleted, or soon will be, once the pods are listed anew."""
        with self._lock:
            self._forgotten.add(name)
            self._changed.pop(name, None)
            self._awaited.pop(name, None)

    def _follow(self) -> None:
        while not self._is_over:
            try:
                self._once()
            except KubernetesDenied as problem:
                with self._lock:
                    self._problem = problem
                    self._tell(list(self._changed))
                return
            except KubernetesError:  # 410, a cut, a server that is away for a moment: the next listing has everything
                time.sleep(AGAIN_S)

    def _once(self) -> None:
        """List the pods, and watch from there until the server ends it. Raises KubernetesError."""
        page = self._api.get(self._run.pods, labelSelector=self._run.selector)
        now = {pod.name: pod for pod in map(pod_of, page.get("items") or ())}
        with self._lock:
            for name in self._forgotten - set(now):
                self._pods.pop(name, None)
                self._gone.discard(name)
            self._forgotten &= set(now)
            self._gone |= set(self._pods) - set(now)
            self._pods.update(now)
            self._tell(list(self._pods))
        version = str((page.get("metadata") or {}).get("resourceVersion") or "")
        query = {"labelSelector": self._run.selector, "resourceVersion": version}
        for kind, data in self._api.watch(self._run.pods, WATCH_S, **query):
            pod = pod_of(data)
            with self._lock:
                self._pods[pod.name] = pod
                if kind == "DELETED":
                    self._gone.add(pod.name)
                if pod.name in self._gone or (pod.name in self._awaited and self._awaited[pod.name](pod)):
                    self._tell([pod.name])
            if self._is_over:
                return

    def _tell(self, names: Iterable[str]) -> None:
        """Wake who waits for these pods; the lock is held."""
        for name in names:
            if name in self._changed:
                self._changed[name].notify_all()
