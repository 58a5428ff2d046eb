"""The collector that reads HyperPod's resource_config.json under a host root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.evidence.aws.collect_resource_config import read
from tests.aws.standing import CONFIG, TAG
from tests.builders.examples import examples

OWN = "i-0123456789abcdef0"
LABELS = {"network-node-layer-2": "nn-b", "network-node-layer-1": "nn-a", "network-node-layer-3": "nn-c"}


def instance(**more: object) -> dict[str, object]:
    return {"InstanceId": OWN, "CustomerIpAddress": "10.1.2.3", "InstanceLabel": LABELS, **more}


def config(*instances: object) -> object:
    other = {"Name": "controller", "Instances": [{"InstanceId": "i-0fedcba9876543210"}]}
    return {"InstanceGroups": [other, {"Name": "workers", "Instances": list(instances)}]}


def output_of(root: Path, text: str | bytes, tag: str = OWN, hostname: str = "gpu001") -> Any:
    """The report of a node with this file."""
    for path, content in ((CONFIG, text), (TAG, f"{tag}\n"), ("proc/sys/kernel/hostname", f"{hostname}\n")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(Node(str(root)))


def test_a_node_reports_the_layers_above_it_from_the_top(tmp_path: Path) -> None:
    output = output_of(tmp_path, json.dumps(config(instance())))
    assert output == {"file": True, "layers": ["nn-a", "nn-b", "nn-c"]}


def test_where_the_firmware_has_no_id_the_address_in_the_host_name_identifies_the_node(tmp_path: Path) -> None:
    text = json.dumps(config(instance(InstanceId="i-1"), instance(CustomerIpAddress="10.1.2.33", InstanceLabel={})))
    assert output_of(tmp_path, text, tag="", hostname="ip-10-1-2-3")["layers"] == ["nn-a", "nn-b", "nn-c"]


def test_a_node_without_the_file_says_so(tmp_path: Path) -> None:
    assert read(Node(str(tmp_path))) == {"file": False, "layers": []}


@pytest.mark.parametrize(
    "labels",
    [None, {}, [], "nn-a", {"zone": "a"}, {"network-node-layer-1": 5}, {"network-node-layer-x": "nn-a"}],
)
def test_an_instance_without_labels_has_no_layers(tmp_path: Path, labels: object) -> None:
    assert output_of(tmp_path, json.dumps(config(instance(InstanceLabel=labels))))["layers"] == []


def test_labels_may_have_a_domain_and_are_cut(tmp_path: Path) -> None:
    labels = {"topology.k8s.aws/network-node-layer-1": "n" * 5_000}
    assert output_of(tmp_path, json.dumps(config(instance(InstanceLabel=labels))))["layers"] == ["n" * 100]


@pytest.mark.parametrize(
    "text", ["", "{", "\x00", b"\xff\xfe", "[" * 100_000, "[]", "{}", json.dumps(config(instance(InstanceId="i-2")))]
)
def test_a_file_without_this_node_is_broken(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(Broke, match=r"is not JSON|this node is none of them"):
        output_of(tmp_path, text)


def test_a_file_that_may_not_be_read_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> str:
        raise PermissionError(13, "Permission denied", CONFIG)

    monkeypatch.setattr(Node, "read", denied)
    with pytest.raises(PermissionError):
        read(Node(str(tmp_path)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["InstanceGroups", "Instances", "InstanceLabel", "Name"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_odd_files_give_layers_or_are_broken(tmp_path: Path, content: object) -> None:
    try:
        answer = output_of(tmp_path, json.dumps(content))
    except Broke:
        return
    assert answer["file"] is True
    assert all(isinstance(layer, str) for layer in answer["layers"])
