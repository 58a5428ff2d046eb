"""Values of the chart: its schema refuses what the gate refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import jsonschema
import pytest

from clusterproof.plugins.kubernetes.gate.taints import GateError, most_tainted, own_key
from tests.builders.wheel import ROOT

SCHEMA = json.loads((ROOT / "clusterproof/integrations/kubernetes/chart/values.schema.json").read_text())["properties"]


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
