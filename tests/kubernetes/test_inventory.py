"""`--cluster k8s:…`: which nodes it selects, and what is known of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.inventory import InventoryError, resolve
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
TYPE = "node.kubernetes.io/instance-type"


def names(text: str) -> list[str]:
    return [target.name for target in resolve(text).targets]


@pytest.mark.parametrize(
    "parts",
    [
        {"capacity": {"nvidia.com/gpu": "8"}},
        {"capacity": {"nvidia.com/gpu": "0"}},  # its device plugin has died
        {"capacity": {"nvidia.com/mig-1g.10gb": "7"}},
        {"capacity": {"nvidia.com/gpu.shared": "32"}},  # time slicing, with renameByDefault
        {"capacity": {"aws.amazon.com/neuroncore": "32"}},
        {"capacity": {"vpc.amazonaws.com/efa": "32"}},
        {"labels": {TYPE: "p5.48xlarge"}},  # … or it never ran
        {"labels": {TYPE: "ml.p5.48xlarge"}},
        {"labels": {"nvidia.com/gpu.present": "true"}},
        {"labels": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}},
        {"labels": {"kubernetes.azure.com/accelerator": "nvidia"}},  # AKS
        {"labels": {"eks.amazonaws.com/instance-gpu-count": "1"}},  # EKS Auto Mode
        {"capacity": {"nvidia.com/gpu": "8"}, "spec": {"unschedulable": True}},
        {"capacity": {"nvidia.com/gpu": "8"}, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
        {"capacity": {"nvidia.com/gpu": "8"}, "ready": "Unknown"},
    ],
    ids=str,
)
def test_a_node_with_accelerators_is_of_the_cluster_whatever_its_state(kubernetes: Bed, parts: dict[str, str]) -> None:
    with kubernetes.node("gpu007", **parts):
        assert names("k8s:bed") == ["gpu007"]


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"labels": {TYPE: "m5.large"}},
        {"labels": {"nvidia.com/gpu.present": "false"}},
        {"labels": {"kubernetes.io/os": "windows"}, "capacity": {}},
    ],
    ids=str,
)
def test_another_node_is_not_and_the_message_says_how_to_choose_it(kubernetes: Bed, parts: dict[str, str]) -> None:
    with kubernetes.node("cpu007", **parts), pytest.raises(InventoryError) as wrong:
        resolve("k8s:bed")
    assert "none of its 2 nodes has accelerators" in str(wrong.value)
    assert "/kubernetes.io/os=linux" in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"eks.amazonaws.com/compute-type": "fargate"}, "virtual"),
        ({"type": "virtual-kubelet"}, "virtual"),
        ({"kubernetes.io/os": "windows"}, "of Windows"),
    ],
)
def test_a_node_without_a_linux_host_is_left_out_and_that_is_said(
    kubernetes: Bed, labels: dict[str, str], said: str
) -> None:
    gpus = {"nvidia.com/gpu": "8"}
    with (
        kubernetes.node("gpu007", labels={"pool": "a"}, capacity=gpus),
        kubernetes.node("gpu008", labels={"pool": "a", **labels}, capacity=gpus),
        kubernetes.node("gpu009", labels={"pool": "b", **labels}, capacity=gpus),
    ):
        for cluster, count in ((resolve("k8s:bed"), 2), (resolve("k8s:bed/pool=a"), 1)):
            assert [target.name for target in cluster.targets] == ["gpu007"]
            assert f"not validated: {count} {said}, with no Linux host" in cluster.notes
        with pytest.raises(InventoryError, match=f"each node with the labels 'pool=b' is {said}; no Linux host"):
            resolve("k8s:bed/pool=b")


def test_its_nodes_are_reached_by_pods_or_by_agents(kubernetes: Bed) -> None:
    with kubernetes.node("gpu007", capacity={"nvidia.com/gpu": "8"}):
        assert [resolve("k8s:bed", {"via": way}).connection for way in ("kubernetes", "agents")] == [
            "kubernetes",
            "agents",
        ]
        with pytest.raises(
            InventoryError, match="'nodes' is not a way to nodes of Kubernetes; expected kubernetes or agents"
        ):
            resolve("k8s:bed", {"via": "nodes"})


def test_a_selector_takes_exactly_the_nodes_with_these_labels(kubernetes: Bed) -> None:
    with kubernetes.node("cpu007", labels={"pool": "a"}), kubernetes.node("cpu008", labels={"pool": "b"}):
        assert names("k8s:bed/pool=a") == ["cpu007"]
        assert names("k8s:bed/pool in (a,b)") == ["cpu007", "cpu008"]
        assert names("k8s:/pool=b") == ["cpu008"]
        with pytest.raises(InventoryError, match="no node for Linux has the labels 'pool=c'"):
            resolve("k8s:bed/pool=c")


def test_what_labels_and_provider_say_of_a_node_is_known(kubernetes: Bed) -> None:
    labels = {TYPE: "p5.48xlarge", "eks.amazonaws.com/nodegroup": "train"}
    spec = {"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}
    with kubernetes.node("ip-10-0-0-1.ec2.internal", labels=labels, spec=spec):
        cluster = resolve("k8s:bed")
    expected = Target("ip-10-0-0-1.ec2.internal", "i-0123456789abcdef0", group="train", instance_type="p5.48xlarge")
    assert cluster.targets == (expected,)
    assert (cluster.name, cluster.connection, cluster.settings["kubernetes"]) == (
        "k8s:bed",
        "kubernetes",
        "context:bed",
    )
    assert cluster.notes == ("not validated: 1 without accelerators",)


def test_the_id_of_a_hyperpod_node_is_no_instance_of_the_account(kubernetes: Bed) -> None:
    labels = {TYPE: "ml.p5.48xlarge", "sagemaker.amazonaws.com/instance-group-name": "workers"}
    with kubernetes.node("hyperpod-i-0123456789abcdef0", labels=labels):
        (target,) = resolve("k8s:bed").targets
    assert (target.address, target.group, target.instance_type) == ("", "workers", "p5.48xlarge")


def test_a_listing_of_many_pages_is_read_whole(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.kubernetes.api.PAGE", 2)
    for number in range(5):
        kubernetes.add_node(f"gpu10{number}", labels={"many": "yes"})
    try:
        assert names("k8s:bed/many=yes") == [f"gpu10{number}" for number in range(5)]
    finally:
        kubernetes.plane.call("DELETE", "/api/v1/nodes?labelSelector=many%3Dyes")


def test_no_context_is_the_current_one_and_a_wrong_one_is_refused_with_those_that_there_are(kubernetes: Bed) -> None:
    with kubernetes.node("gpu007", capacity={"nvidia.com/gpu": "8"}):
        assert names("k8s:") == ["gpu007"]
    with pytest.raises(InventoryError, match=r"no context is called 'bad' \(did you mean bed\?\); expected one of bed"):
        resolve("k8s:bad")


def test_a_context_may_have_slashes_as_those_of_eks(
    kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = "arn:aws:eks:us-west-2:123456789012:cluster/train"
    kubeconfig = json.loads(kubernetes.plane.kubeconfig().read_text())
    kubeconfig["contexts"][0]["name"] = arn
    (tmp_path / "config").write_text(json.dumps({**kubeconfig, "current-context": arn}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with kubernetes.node("gpu007", labels={"pool": "a"}, capacity={"nvidia.com/gpu": "8"}):
        assert names(f"k8s:{arn}") == names(f"k8s:{arn}/pool=a") == ["gpu007"]


def test_several_kubeconfigs_are_one(kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first").write_text(json.dumps({"apiVersion": "v1", "kind": "Config"}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/first:{kubernetes.plane.kubeconfig()}")
    with kubernetes.node("gpu007", capacity={"nvidia.com/gpu": "8"}):
        assert names("k8s:bed") == ["gpu007"]


def test_credentials_of_an_exec_plugin_are_used(
    kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = kubernetes.account([], [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}])
    kind = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": kind, "kind": "ExecCredential", "status": {"token": token}}
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    (tmp_path / "plugin").chmod(0o755)
    kubeconfig = json.loads(kubernetes.plane.kubeconfig().read_text())
    plugin = {"apiVersion": kind, "command": str(tmp_path / "plugin"), "interactiveMode": "Never"}
    kubeconfig["users"][0]["user"] = {"exec": plugin}
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with kubernetes.node("gpu007", capacity={"nvidia.com/gpu": "8"}):
        assert names("k8s:bed") == ["gpu007"]


def refusal(text: str) -> str:
    with pytest.raises(InventoryError) as wrong:
        resolve(text)
    assert "\n" not in str(wrong.value)
    return str(wrong.value)


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ("nowhere", "No such file or directory: 'nowhere'"),
        ("#!/bin/sh\necho log in first >&2; exit 1\n", "exec: process returned 1. log in first"),
    ],
    ids=["missing", "fails"],
)
def test_an_exec_plugin_that_gives_no_credentials_is_said_before_anybody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], plugin: str, words: str
) -> None:
    command = plugin
    if plugin.startswith("#!"):
        (tmp_path / "plugin").write_text(plugin)
        (tmp_path / "plugin").chmod(0o755)
        command = str(tmp_path / "plugin")
    called = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    context = {"name": "bed", "context": {"cluster": "bed", "user": "bed"}}
    kubeconfig = {
        "contexts": [context],
        "current-context": "bed",
        "clusters": [{"name": "bed", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "bed", "user": {"exec": called}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    message = refusal("k8s:bed")
    assert words in message
    assert "expected one that works (kubectl --context … get nodes)" in message
    assert capfd.readouterr().err == ""


def test_without_the_right_to_list_nodes_the_servers_words_say_who_lacks_what(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, token = kubernetes.account([])
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    assert f'403 Forbidden: nodes is forbidden: User "{user}" cannot list resource "nodes"' in refusal("k8s:bed")


def test_a_token_that_is_not_valid_is_reported(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig("no-such-token")))
    assert "401 Unauthorized" in refusal("k8s:bed")


def test_a_certificate_of_another_is_reported(kubernetes: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = json.loads(kubernetes.plane.kubeconfig().read_text())
    del kubeconfig["clusters"][0]["cluster"]["certificate-authority"]
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert "certificate verify failed" in refusal("k8s:bed").lower()


@pytest.mark.parametrize("text", ["", "{", "a: [", "current-context: x\n"])
def test_a_kubeconfig_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert refusal("k8s:").startswith("--cluster 'k8s:': ")


def test_where_no_server_answers_that_is_reported(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubernetes.plane.kubeconfig("gone-from-here", server="https://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert "no answer from https://127.0.0.1:9" in refusal("k8s:bed")


def test_outside_of_a_pod_in_cluster_says_so() -> None:
    assert "expected to run in a pod of the cluster" in refusal("k8s:in-cluster")


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    assert refusal("k8s:bed").endswith("pip install kubernetes 'python-dateutil<3'")
