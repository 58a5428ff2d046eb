"""A pod that is not admitted (policy, webhook, namespace): one line in the server's words, and no retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.transport import Unusable
from tests.kubernetes.programs import run, shell
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OF_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
POLICY = {
    "validatingadmissionpolicies": {
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [OF_PODS]},
            "validations": [{"expression": "false", "message": "no pod of anybody's"}],
        }
    },
    "validatingadmissionpolicybindings": {"spec": {"policyName": "nobody", "validationActions": ["Deny"]}},
}
DEAD_WEBHOOK = {
    "validatingwebhookconfigurations": {
        "webhooks": [
            {
                "name": "nobody.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/validate"},
                "rules": [OF_PODS],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
            }
        ]
    }
}


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (POLICY, "no pod of anybody's; expected that policy to admit a privileged pod"),
        (DEAD_WEBHOOK, "connection refused; expected that webhook to answer, or one that leaves the namespace"),
    ],
    ids=["a policy", "a dead webhook"],
)
def test_admission_that_denies_the_pod_is_one_line_and_no_other_pod_is_tried(
    kubernetes: Bed, objects: Mapping[str, Any], says: str
) -> None:
    for kind, body in objects.items():
        kubernetes.plane.call("POST", f"{ADMISSION}/{kind}", {"metadata": {"name": "nobody"}, **body})
    try:
        wait_until(lambda: bool(refusal()), "in force")
        message = refusal()
    finally:
        for kind in objects:
            kubernetes.plane.call("DELETE", f"{ADMISSION}/{kind}/nobody")
        wait_until(lambda: not refusal(), "no longer in force")
    assert says in message
    assert "\n" not in message


def refusal(**settings: Any) -> str:
    """Why no node is visited; empty if one answers."""
    try:
        run(shell("true"), **settings)
    except Unusable as why:
        return str(why)
    return ""


def test_a_namespace_that_admits_no_privileged_pods_is_reported_with_the_label_that_helps(kubernetes: Bed) -> None:
    with namespace(kubernetes, {"pod-security.kubernetes.io/enforce": "baseline"}):
        message = refusal(k8s_namespace="other")
        assert 'violates PodSecurity "baseline:latest"' in message
        assert "kubectl label namespace other pod-security.kubernetes.io/enforce=privileged" in message


def test_a_quota_that_is_used_up_is_reported(kubernetes: Bed) -> None:
    with namespace(kubernetes, {}):
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        path = "/api/v1/namespaces/other/resourcequotas"
        kubernetes.plane.call("POST", path, quota)
        wait_until(lambda: "hard" in kubernetes.plane.items(path)[0].get("status", {}), "counted")
        assert "exceeded quota: none" in refusal(k8s_namespace="other")


@pytest.mark.parametrize(
    ("kind", "spec", "says", "expected"),
    [
        (
            "resourcequotas",
            {"hard": {"limits.cpu": "8"}},
            "must specify limits.cpu",
            "expected no quota of limits in the namespace other",
        ),
        (
            "limitranges",
            {"limits": [{"type": "Container", "min": {"cpu": "100m"}}]},
            "minimum cpu usage per Container is 100m",
            "expected a LimitRange of the namespace other that admits a container without requests",
        ),
    ],
)
def test_what_a_namespace_asks_of_every_pod_is_reported_and_no_label_is_advised(
    kubernetes: Bed, kind: str, spec: dict[str, Any], says: str, expected: str
) -> None:
    with namespace(kubernetes, {}):
        path = f"/api/v1/namespaces/other/{kind}"
        kubernetes.plane.call("POST", path, {"metadata": {"name": "some"}, "spec": spec})
        wait_until(lambda: kind == "limitranges" or "hard" in kubernetes.plane.items(path)[0]["status"], "counted")
        message = refusal(k8s_namespace="other")
    assert says in message
    assert expected in message
    assert "label" not in message


class namespace:  # noqa: N801 - used as a block
    """A namespace `other` for the block."""

    def __init__(self, bed: Bed, labels: dict[str, str]) -> None:
        self.bed = bed
        self.labels = labels

    def __enter__(self) -> None:
        self.bed.plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": "other", "labels": self.labels}})

    def __exit__(self, *_: Any) -> None:
        self.bed.plane.call("DELETE", "/api/v1/namespaces/other")

        def names() -> list[str]:
            return [entry["metadata"]["name"] for entry in self.bed.plane.items("/api/v1/namespaces")]

        wait_until(lambda: "other" not in names(), "gone")
