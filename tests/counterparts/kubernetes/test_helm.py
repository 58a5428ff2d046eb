"""The chart under helm itself: its complaints, its refusals, and that kubectl applies the same manifests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.generators import manifests
from tests.builders.wheel import ROOT
from tests.counterparts import installed

pytestmark = installed.needs("kubernetes")
CHART = ROOT / "integrations" / "kubernetes" / "chart"
NAMED = "image=example.com/clusterproof:0.1.0"


def helm(*arguments: object) -> tuple[int, str]:
    """helm's exit code and output."""
    command = [str(installed.folder("kubernetes") / "helm"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def rendered(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The chart's objects with these values, by kind and name."""
    status, output = helm("template", "clusterproof", CHART, "--namespace", "elsewhere", *_set((NAMED, *values)))
    assert status == 0, output
    every = [document for document in yaml.safe_load_all(output) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in every}


def _set(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def test_its_linter_finds_nothing() -> None:
    status, output = helm("lint", CHART, "--strict", "--set", NAMED)
    assert status == 0, output
    assert "[WARNING]" not in output


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("image=",),
        ("image=has a space",),
        (NAMED, "mode=drain"),
        (NAMED, "maxTainted=ten"),
        (NAMED, "maxTainted=500%"),
        (NAMED, "maxTainted=-1"),
        (NAMED, "maxTainted=1000000"),
        (NAMED, "startupTaint=karpenter.sh/disrupted"),
        (NAMED, "startupTaint=clusterproof.dev/unproven:NoSchedule"),
        (NAMED, "everySeconds=0"),
        (NAMED, "cluster=k8s:prod"),
        (NAMED, "options[0]=expect"),
        (NAMED, "agents.resources=1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values: Sequence[str]) -> None:
    status, output = helm("template", "clusterproof", CHART, *_set(values))
    assert status != 0
    assert "values don't meet the specifications of the schema" in output
    wanted = "image" if not values else values[-1].partition("=")[0].partition("[")[0]
    assert wanted.partition(".")[0] in output.partition("schema")[2]


@pytest.mark.parametrize("name", manifests.NAMES)
def test_what_kubectl_applies_is_made_of_the_chart(name: str) -> None:
    assert dict(manifests.manifests())[name] == (manifests.FOLDER / f"{name}.yaml").read_text()


def test_kustomize_and_chart_tell_gate_and_agents_the_same() -> None:
    text = (manifests.FOLDER / "kustomization.yaml").read_text()
    (generated,) = yaml.safe_load(text)["configMapGenerator"]
    settings = dict(literal.split("=", 1) for literal in generated["literals"])
    assert rendered()["ConfigMap", generated["name"]]["data"] == settings


def test_only_a_gate_that_changes_taints_may() -> None:
    name = ("ClusterRole", "clusterproof-gate-taints")
    assert name not in rendered()
    assert name in rendered("mode=taint")
    assert name in rendered("startupTaint=clusterproof.dev/unproven")


def test_only_a_gate_that_gives_taints_may_list_all_pods() -> None:
    def resources(*values: str) -> list[str]:
        role = rendered(*values)["ClusterRole", "clusterproof-gate-taints"]
        return [resource for rule in role["rules"] for resource in rule["resources"]]

    assert resources("startupTaint=clusterproof.dev/unproven") == ["nodes"]
    assert resources("mode=taint") == ["nodes", "pods"]


def test_a_gate_that_observes_is_told_no_limit_of_taints() -> None:
    assert rendered("maxTainted=5%")["ConfigMap", "clusterproof-gate"]["data"]["OPTIONS"] == ""


@pytest.mark.parametrize(
    ("most", "option"), [("0", "--k8s-max-tainted=0"), ("5", "--k8s-max-tainted=5"), ("", ""), ("null", "")]
)
def test_a_limit_of_taints_may_be_a_number(most: str, option: str) -> None:
    settings = rendered("mode=taint", f"maxTainted={most}")["ConfigMap", "clusterproof-gate"]["data"]
    assert settings["OPTIONS"] == option


@pytest.mark.parametrize("text", ["  # of the site\n[thresholds]\n", "\n\n[thresholds]\n  a = '{{ }}'\n"])
def test_a_policy_reaches_the_gate_as_it_is_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "clusterproof.toml").write_text(text)
    status, output = helm("template", CHART, "--set", NAMED, "--set-file", f"policy={tmp_path}/clusterproof.toml")
    assert status == 0, output
    maps = [document["data"] for document in yaml.safe_load_all(output) if document and document["kind"] == "ConfigMap"]
    assert [data["clusterproof.toml"] for data in maps if "clusterproof.toml" in data] == [text]


def test_settings_reach_the_gate_as_options() -> None:
    values = ("startupTaint=clusterproof.dev/unproven", "maxTainted=5%", "options[0]=--expect=gpus=8", "mode=taint")
    settings = rendered(*values)["ConfigMap", "clusterproof-gate"]["data"]
    assert settings["MODE"] == "taint"
    assert settings["OPTIONS"] == ("--k8s-startup-taint=clusterproof.dev/unproven --k8s-max-tainted=5% --expect=gpus=8")


def test_agents_are_told_the_options_of_the_gate_too() -> None:
    every = rendered("options[0]=--expect=gpus=8")
    (container,) = every["DaemonSet", "clusterproof-agent"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "--options=$(OPTIONS)"
    assert container["envFrom"] == [{"configMapRef": {"name": "clusterproof-gate"}}]


def test_pods_begin_anew_where_settings_or_policy_change() -> None:
    def checksum(*values: str) -> str:
        pod = rendered(*values)["Deployment", "clusterproof-gate"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/settings"])

    assert len({checksum(), checksum("everySeconds=30"), checksum("policy=[thresholds]")}) == 3


def test_all_is_in_the_namespace_of_the_release() -> None:
    every = rendered("mode=taint", "policy=a")
    namespaces = {document["metadata"].get("namespace", "elsewhere") for document in every.values()}
    subjects = {subject["namespace"] for document in every.values() for subject in document.get("subjects", ())}
    assert namespaces == subjects == {"elsewhere"}


def test_uninstalling_cleans_nodes_unless_that_is_not_wanted() -> None:
    hooks = [
        document for document in rendered().values() if "helm.sh/hook" in document["metadata"].get("annotations", {})
    ]
    assert {document["kind"] for document in hooks} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert ("Job", "clusterproof-remove") not in rendered("removeOnUninstall=false")


def test_what_the_operator_of_prometheus_reads_is_off_unless_asked_for_and_has_the_rules_that_promtool_tests() -> None:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    assert not kinds & {kind for kind, _ in rendered()}
    labels = ("metrics.serviceMonitor.labels.release=prom", "metrics.prometheusRule.labels.release=prom")
    every = rendered("metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true", *labels)
    objects = {kind: document for (kind, _), document in every.items()}
    assert objects["PrometheusRule"]["spec"] == yaml.safe_load((CHART / "gate-rules.yaml").read_text())
    assert [objects[kind]["metadata"]["labels"] for kind in sorted(kinds)] == [{"release": "prom"}] * 2
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    selector = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert selector == objects["Service"]["metadata"]["labels"]
    assert (
        objects["Service"]["spec"]["selector"].items()
        <= objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    )
    assert [port["name"] for port in container["ports"]] == [objects["Service"]["spec"]["ports"][0]["targetPort"]]
