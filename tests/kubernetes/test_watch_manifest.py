"""The Deployment of a watch on a real API server: accepted completely, and its pod admitted where restricted."""

from __future__ import annotations

import uuid
from pathlib import Path

import yaml

from tests.counterparts import installed
from tests.kubernetes.gate import MANIFESTS, kubectl
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = [needs_kubernetes, installed.needs("kubectl")]


def test_all_of_it_is_taken_and_its_pod_admitted_where_pods_are_restricted(kubernetes: Bed, tmp_path: Path) -> None:
    path = tmp_path / "watch.yaml"
    path.write_text((MANIFESTS / "watch.yaml").read_text().replace('image: ""', "image: x"))
    kubectl(kubernetes, "apply", "--dry-run=server", "--validate=strict", "--filename", path)
    deployment = next(document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
    name, call = f"restricted-{uuid.uuid4().hex[:8]}", kubernetes.plane.call
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    try:
        here = f"/api/v1/namespaces/{name}"
        wait_until(lambda: bool(kubernetes.plane.items(f"{here}/serviceaccounts")), "given an account")
        admitted = call("POST", f"{here}/pods?dryRun=All", {"metadata": {"name": "watch"}, "spec": spec})
    finally:
        call("DELETE", f"/api/v1/namespaces/{name}")
    assert admitted["metadata"]["name"] == "watch"
