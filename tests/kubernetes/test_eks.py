"""`--cluster eks:NAME`: endpoint and certificate as EKS returns them, and a token from the user's AWS credentials."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from clusterproof.plugins.aws import Account
from clusterproof.plugins.inventory import InventoryError, resolve
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes


@pytest.fixture(autouse=True)
def eks(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EKS that describes the testbed's API server."""
    ca = base64.b64encode(kubernetes.plane.ca.read_bytes()).decode()
    described = {"cluster": {"name": "train", "endpoint": kubernetes.plane.url, "certificateAuthority": {"data": ca}}}

    def call(_account: Account, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        assert (service, operation, arguments) == ("eks", "describe_cluster", {"name": "train"})
        return described

    monkeypatch.setattr(Account, "call", call)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")


def test_its_nodes_are_listed_with_that_token(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, token = kubernetes.account([], [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])
    monkeypatch.setattr(Account, "eks_token", lambda _account, name: token if name == "train" else "")
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    with kubernetes.node("ip-10-0-0-1", labels=labels, spec={"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}):
        cluster = resolve("eks:train")
    assert [target.address for target in cluster.targets] == ["i-0123456789abcdef0"]
    assert cluster.settings == {"kubernetes": "eks:train", "region": "us-west-2"}


def test_an_identity_that_the_cluster_does_not_know_is_refused() -> None:
    with pytest.raises(InventoryError, match="401 Unauthorized"):
        resolve("eks:train")
