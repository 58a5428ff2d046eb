"""The current state of a run's pods, by one watch for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.pods import Pod, pod_of
from clusterproof.plugins.transport.kubernetes import RunObjects

WATCH_S = 60.0  # of one watch: limits the cost of one that went silent, as behind a load balancer that forgot it
RETRY_S = 1.0  # after a watch broke
DENIED_S = 10.0  # after it was denied: an API server that starts denies what its roles grant until it has read them


class PodWatch:
    """The current state of a run's pods by name. Thread-safe."""

    def __init__(self, api: Api, run: RunObjects) -> None:
        self._api = api
        self._run = run
        self._pods: dict[str, Pod] = {}
        self._gone: set[str] = set()
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()
        self._changed: dict[str, threading.Condition] = {}  # one per pod: an event wakes only its waiter
        self._awaited: dict[str, Callable[[Pod], bool]] = {}  # its waiter's condition
        self._problem: KubernetesError | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._follow, name="pods", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def close(self) -> None:
        """Stop at the next event; deleting the run's pods will cause one."""
        with self._lock:
            self._is_over = True
            self._notify(list(self._changed))

    def wait(self, name: str, until: float, settled: Callable[[Pod], bool]) -> tuple[Pod | None, bool]:
        """The pod once it is settled, or its state at `until` (time.monotonic()); and whether it is gone.

        If the watch did not report it, the pod is requested once more. Raises KubernetesDenied if pods may not be
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
        """The same, as far as the watch has reported."""
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
        """Forget a pod that is deleted, or will be before the pods are listed again."""
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
                    self._notify(list(self._changed))
                time.sleep(DENIED_S)
            except KubernetesError:  # 410, a cut, a brief outage: the next listing has everything
                time.sleep(RETRY_S)

    def _once(self) -> None:
        """List the pods, and watch from there until the server ends it. Raises KubernetesError."""
        page = self._api.get(self._run.pods, labelSelector=self._run.selector)
        now = {pod.name: pod for pod in map(pod_of, page.get("items") or ())}
        with self._lock:
            self._problem = None
            for name in self._forgotten - set(now):
                self._pods.pop(name, None)
                self._gone.discard(name)
            self._forgotten &= set(now)
            self._gone |= set(self._pods) - set(now)
            self._pods.update(now)
            self._notify(list(self._pods))
        version = str((page.get("metadata") or {}).get("resourceVersion") or "")
        query = {"labelSelector": self._run.selector, "resourceVersion": version}
        for kind, event in self._api.watch(self._run.pods, WATCH_S, **query):
            pod = pod_of(event)
            with self._lock:
                self._pods[pod.name] = pod
                if kind == "DELETED":
                    self._gone.add(pod.name)
                if pod.name in self._gone or (pod.name in self._awaited and self._awaited[pod.name](pod)):
                    self._notify([pod.name])
            if self._is_over:
                return

    def _notify(self, names: Iterable[str]) -> None:
        """Wake the waiters for these pods; the caller holds the lock."""
        for name in names:
            if name in self._changed:
                self._changed[name].notify_all()
