"""What is kept of a run's pods: only as much as somebody waits for, however many come and go during a watch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.api import KubernetesDenied, KubernetesError
from clusterproof.plugins.kubernetes.pods import pod_of
from clusterproof.plugins.transport.kubernetes import RunObjects
from clusterproof.plugins.transport.kubernetes.outcome import is_settled
from clusterproof.plugins.transport.kubernetes.owner import JobOwner
from clusterproof.plugins.transport.kubernetes.pod_watch import PodWatch

RUN = RunObjects("clusterproof-1", "clusterproof")


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": "gpu001"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(("ended", "settles"), [("probe", True), ("proxy", False)])
def test_a_container_that_a_webhook_puts_before_the_probe_says_nothing_of_it(ended: str, settles: bool) -> None:
    names = ("proxy", "probe")
    states = [{"name": name, "state": {"terminated": {"exitCode": 0}} if name == ended else {}} for name in names]
    status = {"phase": "Running", "containerStatuses": states}
    both = pod_of({**pod("pod-0"), "spec": {"containers": [{"name": name} for name in names]}, "status": status})
    assert is_settled(both) is settles


class DeletingServer:
    """An API server that lists these pods, and then reports the deletion of one."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.deleted: list[str] = []

    def get(self, _path: str, **_query: object) -> dict[str, Any]:
        return {"items": list(map(pod, self.names))}

    def watch(self, _path: str, _timeout_s: float, **_query: object) -> Iterator[tuple[str, dict[str, Any]]]:
        while self.deleted:
            name = self.deleted.pop()
            self.names.remove(name)
            yield "DELETED", pod(name)


def is_gone(watch: PodWatch, name: str) -> bool:
    return watch.wait(name, time.monotonic(), is_settled)[1]


def test_a_pod_that_is_forgotten_is_no_longer_kept_and_others_are() -> None:
    api = DeletingServer("pod-0", "pod-1")
    watch = PodWatch(api, RUN)  # type: ignore[arg-type] # by its methods
    watch._once()
    watch.forget("pod-0")
    api.deleted = ["pod-0", "pod-1"]
    watch._once()
    assert is_gone(watch, "pod-1")
    watch._once()
    assert is_gone(watch, "pod-1")
    assert set(watch._pods) == {"pod-1"}
    assert not watch._forgotten


SOON_S = 600.0  # a busy machine is slow


class SilentWatch(DeletingServer):
    """An API server whose watch is silent, as after a load balancer has dropped it."""

    def watch(self, _path: str, _timeout_s: float, **_query: object) -> Iterator[tuple[str, dict[str, Any]]]:
        return iter(())


def test_a_pod_that_the_watch_has_said_nothing_of_is_asked_for_once_more() -> None:
    api = SilentWatch()
    watch = PodWatch(api, RUN)  # type: ignore[arg-type] # by its methods
    watch._once()
    api.names = ["pod-0"]
    settled, gone = watch.wait("pod-0", time.monotonic(), is_settled)
    assert settled
    assert (settled.name, settled.phase, gone) == ("pod-0", "Running", False)


class StartingServer(SilentWatch):
    """An API server that has not read its roles yet, as after its start, at the first attempts."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    def get(self, _path: str, **_query: object) -> dict[str, Any]:
        self.refusals -= 1
        if self.refusals >= 0:
            raise KubernetesDenied('403 Forbidden: User "u" cannot list resource "pods"', 403)
        return super().get(_path)


def test_pods_that_could_not_be_watched_for_a_moment_are_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.pod_watch.DENIED_S", 0.01)
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.pod_watch.RETRY_S", 0.01)
    api = StartingServer(refusals=1_000_000)
    api.names = ["pod-0"]
    watch = PodWatch(api, RUN)  # type: ignore[arg-type] # by its methods
    watch.start()
    with pytest.raises(KubernetesDenied):
        watch.wait("pod-0", time.monotonic() + SOON_S, lambda _: False)
    api.refusals = 0
    until = time.monotonic() + SOON_S
    while watch._problem and time.monotonic() < until:
        time.sleep(0.01)
    pod, _ = watch.wait("pod-0", until, lambda pod: pod.phase == "Running")
    watch.close()
    assert pod
    assert pod.name == "pod-0"


class ForgetfulServer(SilentWatch):
    """An API server that has deleted a watch's Job, and refuses the first attempt to create another."""

    def __init__(self, owner: JobOwner) -> None:
        super().__init__()
        self.owner = owner
        self.is_watched: list[bool] = []  # whether the pods of the current Job are, at each attempt

    def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("spec") and hasattr(self.owner, "_owned"):
            self.is_watched.append(not self.owner.current_job.pods._is_over)
            if len(self.is_watched) == 1:
                raise KubernetesError("503 ServiceUnavailable: try later", 503)
        return {"metadata": {"uid": "1"}}

    def delete(self, _path: str, **_query: object) -> None:
        """There is nothing of a Job that was refused."""

    def patch(self, _path: str, _body: object, _kind: str) -> None:
        if len(self.is_watched) > 1:
            self.owner._is_over.set()
        raise KubernetesError("404 NotFound: no such job", 404)


def test_pods_are_watched_until_another_job_is_there() -> None:
    owner = JobOwner({"k8s_ttl_s": "1"})
    api = ForgetfulServer(owner)
    owner.api = api  # type: ignore[assignment] # by its methods
    owner._begin()
    before = owner.current_job
    owner._keep()
    owner.current_job.pods.close()
    assert api.is_watched == [True, True]
    assert before.pods._is_over
    assert owner.current_job is not before
