"""Claims that a real controller leaves without a volume, and the CSI drivers registered on nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from tests.kubernetes.control_plane import cluster_facts, expect, p5, pods, says
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.control_plane import RefusedError
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS, VOLUMES = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES, DRIVERS = f"{STORAGE}/storageclasses", f"{STORAGE}/csinodes"
FSX, EBS = "fsx.csi.aws.com", "ebs.csi.aws.com"
SOON = Policy(thresholds={"kubernetes.pending_minutes": -1.0, "kubernetes.settle_minutes": -1.0})
SIZE = {"storage": "1Gi"}
GPU = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}


@contextlib.contextmanager
def there_is(kubernetes: Bed, *objects: tuple[str, str, dict[str, Any]]) -> Iterator[None]:
    """Objects by path and name, for the block."""
    with contextlib.ExitStack() as stack:
        for path, name, parts in objects:
            kubernetes.plane.call("POST", path, {"metadata": {"name": name}, **parts})
            stack.callback(_remove, kubernetes, f"{path}/{name}")
        yield


def _remove(kubernetes: Bed, path: str) -> None:
    with contextlib.suppress(RefusedError):
        kubernetes.plane.call("DELETE", path)
        kubernetes.plane.patch(path, {"metadata": {"finalizers": None}})  # they wait for their users


def drivers(node: str, *names: str) -> tuple[str, str, dict[str, Any]]:
    """A kubelet's record of the drivers registered with it."""
    return DRIVERS, node, {"spec": {"drivers": [{"name": name, "nodeID": node, "topologyKeys": []} for name in names]}}


def a_class(name: str, driver: str, mode: str = "Immediate") -> tuple[str, str, dict[str, Any]]:
    return CLASSES, name, {"provisioner": driver, "volumeBindingMode": mode}


def claim(name: str, of_class: str, volume: str = "") -> tuple[str, str, dict[str, Any]]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": SIZE}, "storageClassName": of_class}
    return CLAIMS, name, {"spec": {**spec, **({"volumeName": volume} if volume else {})}}


def volume(name: str, driver: str) -> tuple[str, str, dict[str, Any]]:
    spec = {"accessModes": ["ReadWriteMany"], "capacity": SIZE, "storageClassName": ""}
    return VOLUMES, name, {"spec": {**spec, "csi": {"driver": driver, "volumeHandle": name}}}


def with_claim(name: str, claim: str, **spec: Any) -> tuple[str, dict[str, Any], None]:
    """A pod that mounts it and requests GPUs; nobody schedules it, unless it is on a node."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return name, {"container": GPU, "schedulerName": "nobody", "volumes": volumes, **spec}, None


def phase(kubernetes: Bed, name: str) -> str:
    return str(kubernetes.plane.call("GET", f"{CLAIMS}/{name}")["status"].get("phase"))


def test_claims_that_nobody_serves_are_reported_with_the_reason(kubernetes: Bed) -> None:
    served = [a_class("fsx", FSX), a_class("late", EBS, "WaitForFirstConsumer")]
    claims = [claim("made", "fsx"), claim("lost-class", "fxs"), claim("by-hand", ""), claim("later", "late")]
    names = [name for _, name, _ in claims]
    with (
        p5(kubernetes, "gpu011"),
        there_is(kubernetes, *served, *claims),
        pods(kubernetes, *(with_claim(f"wants-{name}", name) for name in (*names, "of-nobody"))),
    ):
        wait_until(lambda: {phase(kubernetes, name) for name in names} == {"Pending"}, "seen by the controller")
        young, old = cluster_facts(), cluster_facts(SOON)
    expect(says("k8s_volume_claims", young), Verdict.PASS)
    result = says("k8s_volume_claims", old)
    expect(
        result, Verdict.CONCERN, f"clusterproof/made of clusterproof/wants-made, 0 min old: {FSX}, of storage class fsx"
    )
    expect(result, Verdict.CONCERN, "wants-lost-class, 0 min old: no volume fits it, and there is no storage class fxs")
    expect(result, Verdict.CONCERN, "wants-by-hand, 0 min old: no volume fits it, and it names no storage class")
    expect(result, Verdict.CONCERN, "wants-of-nobody, 0 min old: there is no such claim")
    assert "wants-later" not in result.message


def test_a_claim_for_which_a_node_is_chosen_is_due(kubernetes: Bed) -> None:
    chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "gpu011"}}}
    with (
        p5(kubernetes, "gpu011"),
        there_is(kubernetes, a_class("late", EBS, "WaitForFirstConsumer"), claim("later", "late")),
        pods(kubernetes, with_claim("wants", "later")),
    ):
        kubernetes.plane.patch(f"{CLAIMS}/later", chosen)  # as the scheduler does
        expect(
            says("k8s_volume_claims", cluster_facts(SOON)),
            Verdict.CONCERN,
            f"{EBS}, of storage class late, has made no volume",
        )


def test_a_volume_that_is_bound_and_then_deleted_is_reported(kubernetes: Bed) -> None:
    with (
        p5(kubernetes, "gpu011"),
        there_is(kubernetes, volume("fs-1", FSX), claim("data", "", "fs-1")),
        pods(kubernetes, with_claim("worker", "data", nodeName="gpu011")),
    ):
        wait_until(lambda: phase(kubernetes, "data") == "Bound", "bound by the controller")
        expect(says("k8s_volume_claims", cluster_facts(SOON)), Verdict.PASS)
        _remove(kubernetes, f"{VOLUMES}/fs-1")
        wait_until(lambda: phase(kubernetes, "data") == "Lost", "noticed by the controller")
        expect(says("k8s_volume_claims", cluster_facts(SOON)), Verdict.CONCERN, "its volume fs-1 is gone")


def test_a_driver_that_a_node_lacks_is_known_by_its_group_and_by_its_pods(kubernetes: Bed) -> None:
    registered = [drivers("gpu011", EBS), drivers("gpu012", EBS), drivers("gpu013")]
    with (
        p5(kubernetes, "gpu011", "gpu012", "gpu013"),
        there_is(kubernetes, *registered, volume("fs-1", FSX), claim("data", "", "fs-1")),
        pods(kubernetes, with_claim("worker", "data", nodeName="gpu011")),
    ):
        wait_until(lambda: phase(kubernetes, "data") == "Bound", "bound by the controller")
        young, old = cluster_facts(), cluster_facts(SOON)
    expect(says("k8s_storage", young), Verdict.INCOMPLETE, "is new: expected within 10 min")
    result = says("k8s_storage", old)
    expect(result, Verdict.FAIL, f"gpu013: no CSI driver {EBS}, as 2 of 2 others of its group have; expected")
    wanted = f"gpu011: no CSI driver {FSX}, of which clusterproof/worker has the volume of claim data; expected"
    expect(result, Verdict.FAIL, wanted)
    assert "gpu012" not in result.message


def test_a_cluster_without_storage_is_not_evaluated(kubernetes: Bed) -> None:
    with p5(kubernetes, "gpu011", "gpu012"):
        facts = cluster_facts(SOON)
    expect(says("k8s_storage", facts), Verdict.NOT_APPLICABLE, "no CSI driver has registered with a node of its group")
    expect(says("k8s_volume_claims", facts), Verdict.NOT_APPLICABLE, "has a volume claim")
