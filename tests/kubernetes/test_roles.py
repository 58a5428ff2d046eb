"""Which pods count as the system's: any user may name a pod's owner anything, and make any number of pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.catalog.kubernetes import role_of
from clusterproof.plugins.kubernetes.collectors import k8s_pods

GPU = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
WAITING: dict[str, Any] = {"metadata": {"name": "x", "namespace": "a"}, "spec": {"containers": [GPU]}, "status": {}}


class OnePod:
    """An API server with one pod in this namespace, of a daemon set named like NVIDIA's."""

    def __init__(self, namespace: str) -> None:
        owner = {"kind": "DaemonSet", "name": "nvidia-device-plugin-daemonset", "controller": True}
        metadata = {"name": "plugin-1", "namespace": namespace, "ownerReferences": [owner]}
        self.pod = {"metadata": metadata, "spec": {"nodeName": "gpu001"}, "status": {"phase": "Pending"}}

    def now(self) -> float:
        return 0.0

    def listed(self, _path: str, **_words: str) -> Iterator[Any]:
        yield self.pod


class Flooded(OnePod):
    """The same, behind five pods of a user's that wait for GPUs."""

    def listed(self, _path: str, **_words: str) -> Iterator[Any]:
        yield from [WAITING] * 5
        yield from super().listed(_path, **_words)


@pytest.mark.parametrize(
    ("namespace", "role"),
    [
        ("kube-system", "nvidia-device-plugin"),
        ("gpu-operator", "nvidia-device-plugin"),
        ("team-a", ""),
        ("nvidia", ""),
        ("kube-system-of-mine", ""),
    ],
)
def test_a_pod_of_a_users_namespace_is_none_of_the_systems_whatever_it_is_called(namespace: str, role: str) -> None:
    answer: Any = k8s_pods.read(OnePod(namespace), frozenset({"gpu001"}))  # type: ignore[arg-type]
    (pod,) = answer["pods"]
    assert (pod["owner"], pod["role"]) == ("DaemonSet/nvidia-device-plugin-daemonset", role)


@pytest.mark.parametrize("chart", ["nvidia-dra-driver-gpu", "dra-driver-nvidia-gpu"])
def test_the_dra_driver_of_nvidia_is_known_by_both_names_of_its_chart(chart: str) -> None:
    assert role_of(chart, f"{chart}-kubelet-plugin") == "dra"


def test_pods_of_users_that_wait_displace_none_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k8s_pods, "MAX_PODS", 2)
    monkeypatch.setattr(k8s_pods, "MAX_WAITING", 2, raising=False)
    answer: Any = k8s_pods.read(Flooded("kube-system"), frozenset({"gpu001"}))  # type: ignore[arg-type]
    assert [(pod["node"], pod["role"]) for pod in answer["pods"]] == [
        ("gpu001", "nvidia-device-plugin"),
        ("", ""),
        ("", ""),
    ]
    assert (answer["is_cut"], answer["waiting_left_out"]) == (False, 3)
