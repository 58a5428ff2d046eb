"""Nodes as `kubectl get nodes` lists them, as a table, JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures.collection import read_capture, read_text
from clusterproof.plugins.captures.several import control_plane
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.parse_get import document
from tests.captures.captured import WELL, written
from tests.captures.in_kubernetes import GPUS, HEALTH, READY, TAKES, results

TABLE = """\
NAME         STATUS                     ROLES    AGE   VERSION               INTERNAL-IP   KERNEL-VERSION
ip-10-0-1-4  Ready                      <none>   17h   v1.29.0-eks-5e0fdde   10.0.1.4      5.10.210
ip-10-0-1-5  Ready,SchedulingDisabled   <none>   17h   v1.29.0-eks-5e0fdde   10.0.1.5      5.10.210
ip-10-0-1-6  NotReady                   <none>   17h   v1.29.0-eks-5e0fdde   10.0.1.6      5.10.210
"""


WITH_LABELS = """\
NAME                           STATUS   ROLES    AGE   VERSION   NODE-HEALTH-STATUS           DEEP-HEALTH-CHECK-STATUS
hyperpod-i-0123456789abcdef0   Ready    <none>   17h   v1.29.0   UnschedulablePendingReboot   Passed
hyperpod-i-0123456789abcdef1   Ready    <none>   17h   v1.29.0                                Failed
hyperpod-i-0123456789abcdef2   Ready    <none>   17h   v1.29.0   Schedulable
"""


def node(name: str, ready: str = "True", gpus: str = "8") -> dict[str, object]:
    """A node in the API's format."""
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-11-27T09:05:28Z"}
    status = {
        "conditions": [condition],
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": gpus},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


def as_yaml(*nodes: dict[str, object]) -> str:
    """Nodes as `kubectl get nodes -o yaml` prints them, with keys in alphabetical order."""
    info = {"kernelVersion": "6.1.140", "kubeletVersion": "v1.32.3"}
    every = [{**item, "status": {**item["status"], "nodeInfo": info}} for item in nodes]  # type: ignore[dict-item]
    return yaml.safe_dump(every[0] if len(every) == 1 else {"apiVersion": "v1", "items": every, "kind": "List"})


def as_documents(*nodes: dict[str, object]) -> str:
    """Each node as `kubectl get node NAME -o yaml` prints it, with the line that people put between them."""
    return "---\n".join(map(as_yaml, nodes))


def as_outputs(*nodes: dict[str, object]) -> str:
    """What `for n in …; do kubectl get node $n -o yaml; done` prints."""
    return "".join(map(as_yaml, nodes))


def as_json(*nodes: dict[str, object]) -> str:
    """The same with `-o json`."""
    return "\n".join(json.dumps(one, indent=4) for one in nodes)


def verdicts(folder: Path, text: str, check: str) -> dict[str, tuple[Verdict, str]]:
    by_node = results(written(folder, nodes=text) / "nodes")[check]
    return {name: (result.verdict, result.message) for name, result in by_node.items()}


@pytest.mark.parametrize("before", ["", "$ kubectl get nodes -o wide\n"])
def test_a_node_that_the_table_calls_not_ready_fails_and_one_that_is_ready_is_not_proven(
    before: str, tmp_path: Path
) -> None:
    by_node = verdicts(tmp_path, before + TABLE, READY)
    assert by_node["ip-10-0-1-6"] == (Verdict.FAIL, "Ready is not True; expected a node that is Ready")
    assert {by_node[f"ip-10-0-1-{number}"][0] for number in (4, 5)} == {Verdict.INCOMPLETE}


def test_what_hyperpod_says_of_a_node_is_read_in_the_columns_of_its_labels(tmp_path: Path) -> None:
    by_node = verdicts(tmp_path, WITH_LABELS, HEALTH)
    said = {name[-1]: (verdict, message.partition(";")[0]) for name, (verdict, message) in by_node.items()}
    assert said["0"] == (Verdict.FAIL, "HyperPod reports it as UnschedulablePendingReboot")
    assert said["1"] == (Verdict.FAIL, "its deep health checks failed")
    assert said["2"][0] is Verdict.INCOMPLETE  # the table does not show all labels


def test_a_health_that_the_table_does_not_show_is_not_what_hyperpod_reports(tmp_path: Path) -> None:
    by_node = verdicts(tmp_path, WITH_LABELS.replace("NODE-HEALTH-STATUS", "SOMETHING-ELSE    "), HEALTH)
    messages = [message for _, message in by_node.values()]
    assert all("label hyperpod_health is not in what was captured" in message for message in messages)
    assert not any("HyperPod reports" in message for message in messages)


def test_a_node_that_the_table_calls_cordoned_takes_no_pods(tmp_path: Path) -> None:
    verdict, message = verdicts(tmp_path, TABLE, TAKES)["ip-10-0-1-5"]
    assert verdict is Verdict.FAIL
    assert "it is cordoned" in message


@pytest.mark.parametrize(
    "row",
    [
        "ip-10-0-1-7  NotReady                   <none>   <invalid>   v1.29.0-eks-5e0fdde   10.0.1.7      5.10.210",
        "ip-10-0-1-7  NotReady                   <none>   5s                                10.0.1.7      <unknown>",
        "ip-10-0-1-7  NotReady                   <none>   5s",
    ],
    ids=["a clock that differs", "a kubelet that never answered", "the same, without -o wide"],
)
def test_a_row_without_an_age_or_a_version_is_that_of_a_node(row: str, tmp_path: Path) -> None:
    assert verdicts(tmp_path, f"{TABLE}{row}\n", READY)["ip-10-0-1-7"][0] is Verdict.FAIL


@pytest.mark.parametrize("printed", [as_json, as_documents, as_outputs])
def test_nodes_that_were_printed_one_after_the_other_are_all_read(printed: Callable[..., str], tmp_path: Path) -> None:
    text = printed(node("a-1"), node("a-2", "False"), node("a-3"))
    assert {name: outcome[0] for name, outcome in verdicts(tmp_path, text, READY).items()} == {
        "a-1": Verdict.PASS,
        "a-2": Verdict.FAIL,
        "a-3": Verdict.PASS,
    }


@pytest.mark.parametrize("kind", ["List", "NodeList"])
def test_nodes_in_json_are_judged_as_in_a_live_cluster(kind: str, tmp_path: Path) -> None:
    text = json.dumps({"kind": kind, "items": [node("a-1"), node("a-2", "False"), node("a-3", gpus="0")]}, indent=4)
    assert {name: outcome[0] for name, outcome in verdicts(tmp_path, text, READY).items()} == {
        "a-1": Verdict.PASS,
        "a-2": Verdict.FAIL,
        "a-3": Verdict.PASS,
    }
    assert "0 of 8 nvidia.com/gpu allocatable" in verdicts(tmp_path, text, GPUS)["a-3"][1]


def test_one_node_in_json_is_that_node(tmp_path: Path) -> None:
    assert verdicts(tmp_path, json.dumps(node("a-2", "Unknown")), READY)["a-2"][0] is Verdict.FAIL


def test_nodes_in_yaml_are_judged_as_in_a_live_cluster(tmp_path: Path) -> None:
    text = as_yaml(node("a-1"), node("a-2", "Unknown"), node("a-3", gpus="7"))
    assert {name: outcome[0] for name, outcome in verdicts(tmp_path, text, READY).items()} == {
        "a-1": Verdict.PASS,
        "a-2": Verdict.FAIL,
        "a-3": Verdict.PASS,
    }
    assert "7 of 8 nvidia.com/gpu allocatable" in verdicts(tmp_path, text, GPUS)["a-3"][1]


def test_one_node_in_yaml_is_that_node(tmp_path: Path) -> None:
    text = f"$ kubectl get node a-2 -o yaml\n{as_yaml(node('a-2', 'False'))}"
    assert verdicts(tmp_path, text, READY)["a-2"][0] is Verdict.FAIL


@pytest.mark.parametrize(("ready", "verdict"), [("True", Verdict.INCOMPLETE), ("False", Verdict.FAIL)])
def test_only_faults_count_in_truncated_yaml(ready: str, verdict: Verdict, tmp_path: Path) -> None:
    text = as_yaml(node("a-2", ready)).partition("  nodeInfo:")[0]
    assert verdicts(tmp_path, text, READY)["a-2"][0] is verdict


def test_lines_in_an_annotation_are_no_part_of_the_node(tmp_path: Path) -> None:
    unready = node("a-2", "False")
    unready["metadata"] = {"annotations": {"note": "x\nstatus:\n  conditions: []\nkind: Node\n"}, "name": "a-2"}
    assert verdicts(tmp_path, as_yaml(unready), READY)["a-2"][0] is Verdict.FAIL


def test_yaml_with_a_line_that_kubectl_does_not_print_is_named() -> None:
    assert "its YAML is not understood in line 4" in read_text("apiVersion: v1\nkind: Node\nmetadata:\n\tx\n")[1][0]


@pytest.mark.parametrize(
    "text",
    [
        "LAST SEEN   TYPE      REASON         OBJECT        MESSAGE\n3m  Warning   NodeNotReady   node/a-2   words\n",
        "NAMESPACE   LAST SEEN   TYPE      REASON   OBJECT     MESSAGE\ndefault  3m  Warning   X   node/a-2   words\n",
    ],
)
def test_events_are_named_as_words_of_whoever_may_create_them(text: str) -> None:
    assert "whoever may create events chooses their words" in read_text(text)[1][0]


def test_numbers_in_yaml_are_left_as_they_stand() -> None:
    assert document("cpu: 0192\nready: true\ntaints: null\nat: 2026-01-01T00:00:00Z\n") == {
        "cpu": "0192",
        "ready": True,
        "taints": None,
        "at": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize("value", ["!!bool zz", "!!timestamp x", "!!timestamp 2026-01-01", "!!set {a, b}", "!!int 1"])
def test_yaml_with_a_tag_that_kubectl_does_not_print_is_refused(value: str) -> None:
    with pytest.raises(CaptureError, match="its YAML is not understood"):
        document(f"kind: Node\nname: {value}\n")


@pytest.mark.long
def test_yaml_that_makes_much_of_little_is_refused() -> None:
    rows = [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 12)]
    with pytest.raises(CaptureError, match="more than 2,000,000 values"):
        document("\n".join(["a0: &a0 [x]", *rows]))


@pytest.mark.any_user
def test_a_table_further_down_in_an_output_is_nobodys() -> None:
    assert read_text(f"words of a user\n{TABLE}")[0] == {}


def test_what_only_the_files_of_another_node_say_of_a_node_is_named_and_no_verdict_on_it(tmp_path: Path) -> None:
    listing = TABLE.replace("ip-10-0-1-", "gpu")
    written(tmp_path / "cap", **{"gpu4/nodes": listing, "gpu5/nodes": listing, "gpu6/dmesg": WELL})
    sinfo = (
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ndev* up infinite 1 down gpu6\ndev* up infinite 1 idle gpu4\n"
    )
    written(tmp_path / "cap", **{"gpu4/sinfo": sinfo})
    cluster = resolve(f"capture:{tmp_path / 'cap'}")
    (first, *_) = read_capture(tmp_path / "cap", cluster, collector_names())
    others = "as only files of other nodes say; expected that list as a capture by itself"
    assert first.unknown == (
        f"gpu4: Kubernetes has gpu6 not ready or cordoned, {others}",
        f"gpu4: Slurm has gpu6 out of use, {others}",
    )


def test_a_listing_of_other_nodes_is_no_list_of_kubernetes_that_was_not_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "cap", **{"gpu1/nodes": TABLE, "gpu2/dmesg": WELL})
    cluster = resolve(f"capture:{tmp_path / 'cap'}")
    captured = read_capture(tmp_path / "cap", cluster, collector_names())
    assert "Kubernetes has ip-10-0-1-[5-6] not ready or cordoned" in captured[0].unknown[0]
    evidence = control_plane(cluster.name, {capture.evidence.node: capture.in_kubernetes for capture in captured})
    assert "kubectl" in evidence.collectors["k8s_nodes"].detail
