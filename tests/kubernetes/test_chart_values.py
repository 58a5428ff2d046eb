"""Values of the chart: its schema refuses what the gate refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import yaml

from clusterproof.plugins.inventory.kubernetes import LABELS
from clusterproof.plugins.kubernetes.gate.taints import GateError, most_tainted, own_key
from tests.builders.wheel import ROOT
from tests.counterparts import installed

CHART = ROOT / "clusterproof/integrations/kubernetes/chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())["properties"]


def rendered(*values: str) -> dict[str, Any]:
    """The pod of each workload by name, as helm renders it."""
    command = [str(installed.folder("kubernetes") / "helm"), "template", str(CHART), "--set", "image=x", *values]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    workloads = [
        document for document in yaml.safe_load_all(text) if document and "template" in document.get("spec", {})
    ]
    return {document["metadata"]["name"]: document["spec"]["template"]["spec"] for document in workloads}


@installed.needs("kubernetes")
def test_the_pod_that_removes_the_gate_is_admitted_by_the_quota_that_admits_the_gates() -> None:
    pods = rendered("--set", "gate.resources.limits.cpu=1", "--set", "gate.resources.requests.memory=1Gi")
    of_gate, of_removal = (
        pods[name]["containers"][0]["resources"] for name in ("clusterproof-gate", "clusterproof-remove")
    )
    assert of_removal == of_gate
    assert of_gate["limits"]["cpu"] == 1


def test_the_gates_pod_is_on_no_node_that_a_label_shows_to_have_accelerators() -> None:
    gate = next(
        entry for entry in yaml.safe_load_all((CHART.parent / "gate.yaml").read_text()) if entry["kind"] == "Deployment"
    )
    affinity = gate["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {entry["key"] for entry in term["matchExpressions"] if entry["operator"] == "DoesNotExist"} == set(LABELS)


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except (GateError, jsonschema.ValidationError):
        return True
    return False


@pytest.mark.parametrize(
    ("value", "text", "is_wrong"),
    [
        ("maxTainted", "5", False),
        ("maxTainted", "10%,10", False),
        ("maxTainted", "100%", False),
        ("maxTainted", "0", False),
        ("maxTainted", "500%", True),
        ("maxTainted", "101%", True),
        ("maxTainted", "5,500%", True),
        ("maxTainted", "1234567", True),
        ("maxTainted", "ten", True),
        ("maxTainted", "10,", True),
        ("maxTainted", "-1", True),
        ("startupTaint", "clusterproof.dev/unproven", False),
        ("startupTaint", "clusterproof", False),
        ("startupTaint", "startup-taint.cluster-autoscaler.kubernetes.io/clusterproof-unproven", False),
        ("startupTaint", "clusterproof.dev/unproven:NoSchedule", True),
        ("startupTaint", "clusterproof.dev/unproven=true:NoSchedule", True),
        ("startupTaint", "clusterproof.dev/", True),
        ("startupTaint", "/clusterproof", True),
        ("startupTaint", "a/b/clusterproof", True),
        ("startupTaint", "Clusterproof.dev/unproven", True),
        ("startupTaint", "karpenter.sh/disrupted", True),
        ("startupTaint", "clusterproof.dev/" + "x" * 64, True),
    ],
)
def test_the_chart_refuses_what_the_gate_refuses(value: str, text: str, is_wrong: bool) -> None:
    asks = {"maxTainted": lambda: most_tainted(text, 1), "startupTaint": lambda: own_key(text)}
    by_gate, by_chart = asks[value], lambda: jsonschema.validate(text, SCHEMA[value])
    assert (is_refused(by_gate), is_refused(by_chart)) == (is_wrong, is_wrong)


def test_the_chart_takes_values_that_are_left_empty() -> None:
    for value in ("maxTainted", "startupTaint"):
        jsonschema.validate("", SCHEMA[value])
