"""The testbed's Kubernetes: properties that other tests rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.kubernetes.bed import NAMESPACE, bed
from tests.testbed.kubernetes.machine import KUBE_PROXY, cgroup_of
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def test_a_pod_runs_on_the_node_and_nothing_is_left_of_it_all(capfd: pytest.CaptureFixture[str]) -> None:
    container = {"name": "one", "image": KUBE_PROXY, "imagePullPolicy": "Never", "command": ["/pause", "--x"]}
    pod = {"metadata": {"name": "one"}, "spec": {"nodeName": "gpu001", "hostNetwork": True, "containers": [container]}}
    with bed() as kubernetes:
        kubernetes.plane.call("POST", PODS, pod)
        wait_until(lambda: kubernetes.plane.call("GET", f"{PODS}/one")["status"]["phase"] == "Running", "running")
        folder, cgroup = kubernetes.plane.folder, cgroup_of(kubernetes.machine.kubelet_port)
        assert list(Path("/sys/fs/cgroup").glob(f"**/{cgroup}"))
        assert kubernetes.left() == ["pods/one"]
    assert not folder.exists()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{cgroup}"))
