"""Nodes as `kubectl describe node` prints them: the Kubernetes checks give the same results as on a live cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.parse import MAX_NODES
from tests.captures.captured import written
from tests.captures.in_kubernetes import EFA, GPUS, READY, TAKES, results

NAME = "ip-10-1-2-3.us-west-2.compute.internal"
OTHER = NAME.replace("-3", "-4")
TIMES = "Fri, 27 Nov 2026 10:05:28 +0100   Fri, 27 Nov 2026 08:05:28 +0100"
NODE = f"""\
Name:               {NAME}
Roles:              <none>
Labels:             beta.kubernetes.io/arch=amd64
                    node.kubernetes.io/instance-type=p5.48xlarge
Annotations:        node.alpha.kubernetes.io/ttl: 0
CreationTimestamp:  Tue, 03 Nov 2026 08:00:00 +0100
Taints:             nvidia.com/gpu=true:NoSchedule
Unschedulable:      false
Lease:
  HolderIdentity:  {NAME}
  AcquireTime:     <unset>
  RenewTime:       Fri, 27 Nov 2026 10:05:49 +0100
Conditions:
  Type                       Status  LastHeartbeatTime   LastTransitionTime   Reason   Message
  ----                       ------  -----------------   ------------------   ------   -------
  AcceleratedHardwareReady   True    {TIMES}   NvidiaAcceleratedHardwareIsReady   Monitoring is active
  KernelDeadlock             False   {TIMES}   KernelHasNoDeadlock                kernel has no deadlock
  MemoryPressure             False   {TIMES}   KubeletHasSufficientMemory         kubelet has sufficient memory
  DiskPressure               False   {TIMES}   KubeletHasNoDiskPressure           kubelet has no disk pressure
  PIDPressure                False   {TIMES}   KubeletHasSufficientPID            kubelet has sufficient PID
  Ready                      True    {TIMES}   KubeletReady                       kubelet is posting ready status
Addresses:
  InternalIP:  10.1.2.3
Capacity:
  cpu:                     192
  memory:                  2097152Ki
  nvidia.com/gpu:          8
  vpc.amazonaws.com/efa:   32
Allocatable:
  cpu:                     191450m
  memory:                  2000000Ki
  nvidia.com/gpu:          8
  vpc.amazonaws.com/efa:   32
System Info:
  Kernel Version:             6.1.112-124.190.amzn2023.x86_64
  OS Image:                   Amazon Linux 2023.6.20241010
  Operating System:           linux
  Architecture:               amd64
  Container Runtime Version:  containerd://1.7.22
  Kubelet Version:            v1.31.2-eks-94953ac
ProviderID:                   aws:///us-west-2a/i-0123456789abcdef0
Non-terminated Pods:          (1 in total)
  Namespace                   Name             CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age
  ---------                   ----             ------------  ----------  ---------------  -------------  ---
  kube-system                 aws-node-abcde   50m (0%)      0 (0%)      0 (0%)           0 (0%)         24d
Events:              <none>
"""


def changed(*changes: tuple[str, str]) -> str:
    text = NODE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


def of_text(folder: Path, text: str) -> dict[str, Result]:
    """The same for one node."""
    by_check = results(written(folder, describe=text) / "describe")
    return {name: of_nodes[NAME] for name, of_nodes in by_check.items()}


BAD = (Verdict.FAIL, Verdict.CONCERN)


def test_a_healthy_node_is_ready_and_takes_pods(tmp_path: Path) -> None:
    by_check = of_text(tmp_path, NODE)
    assert (by_check[READY].verdict, by_check[TAKES].verdict) == (Verdict.PASS, Verdict.PASS)
    assert not [finding for result in by_check.values() for finding in result.by_verdict if finding.verdict in BAD]


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "message"),
    [
        (
            [("DiskPressure               False", "DiskPressure               True ")],
            READY,
            Verdict.FAIL,
            "DiskPressure is True for 2 h (KubeletHasNoDiskPressure: kubelet has no disk pressure)",
        ),
        (
            [("Ready                      True ", "Ready                      Unknown")],
            READY,
            Verdict.FAIL,
            "Ready is Unknown for 2 h",
        ),
        (
            [("AcceleratedHardwareReady   True ", "AcceleratedHardwareReady   False")],
            READY,
            Verdict.CONCERN,
            "AcceleratedHardwareReady is False for 2 h",
        ),
        ([("KernelDeadlock             False", "KernelDeadlock  True ")], READY, Verdict.CONCERN, "KernelDeadlock is"),
        (
            [("RenewTime:       Fri, 27 Nov 2026 10:05", "RenewTime:       Fri, 27 Nov 2026 11:05")],
            READY,
            Verdict.CONCERN,
            "Ready was last confirmed 60 min ago",
        ),
        ([("Unschedulable:      false", "Unschedulable:      true")], TAKES, Verdict.FAIL, "it is cordoned"),
        (
            [("nvidia.com/gpu:          8\n  vpc.amazonaws.com/efa:   32\nSys", "nvidia.com/gpu: 7\nSys")],
            GPUS,
            Verdict.FAIL,
            "7 of 8 nvidia.com/gpu allocatable",
        ),
        (
            [("nvidia.com/gpu:          8\n  vpc.amazonaws.com/efa:   32\nSys", "nvidia.com/gpu: 8\nSys")],
            EFA,
            Verdict.FAIL,
            "0 of 32 vpc.amazonaws.com/efa allocatable",
        ),
    ],
)
@pytest.mark.parametrize("pasted", [str, lambda text: text.replace("\n", "\r\n"), lambda text: f"```\n{text}```\n"])
def test_what_is_wrong_with_a_node_is_said(
    changes: list[tuple[str, str]], check: str, verdict: Verdict, message: str, pasted: object, tmp_path: Path
) -> None:
    assert callable(pasted)
    result = of_text(tmp_path, pasted(changed(*changes)))[check]
    assert verdict in [finding.verdict for finding in result.by_verdict]
    assert message in result.message


@pytest.mark.parametrize("place", range(0, len(NODE), 97))
def test_a_text_that_is_cut_calls_no_node_fit_and_finds_nothing_wrong(place: int, tmp_path: Path) -> None:
    if "Roles:" not in NODE[:place]:
        return
    by_check = of_text(tmp_path, NODE[:place])
    assert not [finding for result in by_check.values() for finding in result.by_verdict if finding.verdict in BAD], (
        by_check
    )
    if "Addresses:" not in NODE[:place]:
        assert by_check[READY].verdict is Verdict.INCOMPLETE


def test_what_a_text_says_before_it_is_cut_is_said(tmp_path: Path) -> None:
    text = changed(("DiskPressure               False", "DiskPressure               True ")).partition("  PIDPressure")[
        0
    ]
    assert "DiskPressure is True" in of_text(tmp_path, text)[READY].message


def test_a_condition_that_a_terminal_has_broken_leaves_the_node_unproven(tmp_path: Path) -> None:
    text = changed(("DiskPressure               False   Fri", "DiskPressure               True \n  Fri"))
    assert of_text(tmp_path, text)[READY].verdict is Verdict.INCOMPLETE


def test_several_nodes_in_one_text_are_several_nodes(tmp_path: Path) -> None:
    ill = changed((NAME, OTHER), ("Ready                      True ", "Ready                      False"))
    by_node = results(written(tmp_path, describe=f"$ kubectl describe nodes\n{NODE}\n\n{ill}") / "describe")[READY]
    assert {name: result.verdict for name, result in by_node.items()} == {NAME: Verdict.PASS, OTHER: Verdict.FAIL}


def test_what_else_a_text_has_is_lost_with_no_node(tmp_path: Path) -> None:
    dmesg = "[    0.000000] Linux version 6.8.0-1021-aws (x)\n"
    for text, names in (
        (f"$ dmesg\n{dmesg}$ kubectl describe node\n{NODE}", {NAME: True}),
        (f"$ kubectl describe node\n{NODE}$ dmesg\n{dmesg}", {NAME: True}),
        (f"{NODE}\n\n{changed((NAME, OTHER))}$ dmesg\n{dmesg}", {"case": True, NAME: False, OTHER: False}),
        (
            f"$ dmesg\n{dmesg}$ kubectl describe node\n{NODE}\n{changed((NAME, OTHER))}",
            {"case": True, NAME: False, OTHER: False},
        ),
    ):
        path = written(tmp_path, case=text) / "case"
        captured = read_capture(path, resolve(f"capture:{path}"), ())
        assert {capture.evidence.node: "kernel_log" in capture.evidence.collectors for capture in captured} == names
        assert {capture.evidence.node for capture in captured if capture.in_kubernetes} == {*names} - {"case"}


@pytest.mark.any_user
@pytest.mark.parametrize(
    "words",
    [
        f"Conditions:\n  Type  Status\n  DiskPressure  True  {TIMES}  A  b",
        "Unschedulable:      true\nTaints:             a=b:NoExecute",
        "Capacity:\n  nvidia.com/gpu:  9\n  vpc.amazonaws.com/efa:  40",
        "until Fri, 27 Nov 2099 10:05:49 +0100",
        NODE.replace("Ready                      True ", "Ready                      False"),
        "\n\n"
        + NODE.replace(NAME, OTHER).replace("Ready                      True ", "Ready                      False"),
        "\nroot@head:~# kubectl describe node\n"
        + NODE.replace("Unschedulable:      false", "Unschedulable:      true"),
        f"\n---------------\n{OTHER}\n---------------\n[   12.500000] NVRM: Xid (PCI:0000:53:00): 79, GPU lost",
        "\nroot@head:~# dmesg\n[   12.500000] NVRM: Xid (PCI:0000:53:00): 79, GPU lost",
    ],
)
def test_the_words_of_events_are_no_evidence(words: str, tmp_path: Path) -> None:
    events = (
        f"Events:\n  Type    Reason  Age  From  Message\n  ----    ------\n  Normal  A       5m   me    x\n{words}\n"
    )
    for before in ("", "$ kubectl describe node\n"):
        path = written(tmp_path, case=before + changed(("Events:              <none>\n", events))) / "case"
        groups = results(path).values()
        assert [[*of_nodes] for of_nodes in groups] == [[NAME]] * len(groups)
        assert not {*BAD} & {finding.verdict for of_nodes in groups for finding in of_nodes[NAME].by_verdict}
        (only,) = read_capture(path, resolve(f"capture:{path}"), ())
        assert [*only.evidence.collectors] == []
        assert "what stands behind events may be anybody's words" in "".join(only.unknown)


def test_what_is_not_read_behind_the_events_of_a_pod_is_said(tmp_path: Path) -> None:
    events = "Events:\n  Type    Reason  Age  From  Message\n  ----    ------\n  Normal  A       5m   me    x\n"
    text = f"$ kubectl describe pod\nName:  a\nNamespace:  b\n{events}$ dmesg\n[    0.000000] Linux version 6.8.0 (x)\n"
    path = written(tmp_path, case=text) / "case"
    (only,) = read_capture(path, resolve(f"capture:{path}"), ())
    assert ([*only.evidence.collectors], len(only.unknown)) == ([], 1)
    assert "what stands behind events may be anybody's words" in only.unknown[0]


@pytest.mark.any_user
@pytest.mark.parametrize("begin", ["__CURSOR=1\nMESSAGE\nx\n", "[   12.500000] usb 1-1: new device\n" * 6])
def test_a_node_that_stands_far_down_in_a_log_is_no_node(begin: str, tmp_path: Path) -> None:
    path = written(tmp_path, case=begin + NODE) / "case"
    (only,) = read_capture(path, resolve(f"capture:{path}"), ())
    assert (only.evidence.node, only.in_kubernetes) == ("case", None)
    assert not resolve(f"capture:{path}").settings.get("kubernetes")


def test_other_outputs_of_the_file_of_a_node_that_it_describes_are_the_nodes(tmp_path: Path) -> None:
    text = f"$ dmesg\n[    0.000000] Linux version 6.8.0-1021-aws (x)\n$ kubectl describe nodes\n{NODE}\n"
    text = (text + NODE.replace(NAME, OTHER)).replace(NAME, "gpu1")
    path = written(tmp_path, **{"gpu1.txt": text}) / "gpu1.txt"
    first, _ = sorted(read_capture(path, resolve(f"capture:{path}"), ()), key=lambda capture: capture.evidence.node)
    assert (first.evidence.node, [*first.evidence.collectors]) == ("gpu1", ["boot", "kernel_log"])
    assert first.in_kubernetes


def test_more_nodes_than_anybody_describes_are_refused(tmp_path: Path) -> None:
    text = "".join(f"Name:  gpu{number}\nRoles:  <none>\n" for number in range(MAX_NODES + 1))
    with pytest.raises(InventoryError, match="describes more than 4,096 nodes"):
        resolve(f"capture:{written(tmp_path, case=text) / 'case'}")


def test_a_node_that_lies_in_a_folder_of_another_name_is_that_folders(tmp_path: Path) -> None:
    cordoned = changed(("Unschedulable:      false", "Unschedulable:      true"))
    nodes = results(written(tmp_path, **{"gpu001/describe": cordoned, "gpu002/describe": NODE}))[TAKES]
    assert {name: result.verdict for name, result in nodes.items()} == {"gpu001": Verdict.FAIL, "gpu002": Verdict.PASS}


@pytest.mark.parametrize("name", ["not-ready", "unreachable", "disk-pressure", "network-unavailable"])
def test_a_taint_whose_condition_is_not_shown_is_a_concern(name: str, tmp_path: Path) -> None:
    begin, end = NODE.index("  Type                       Status"), NODE.index("Addresses:")
    text = changed(("nvidia.com/gpu=true:NoSchedule", f"node.kubernetes.io/{name}:NoExecute"))
    text = text.replace(NODE[begin:end], "\n".join(NODE[begin:end].split("\n")[:4]) + "\n")
    result = of_text(tmp_path, text)[TAKES]
    assert result.verdict is Verdict.CONCERN
    assert result.message.startswith(f"taint node.kubernetes.io/{name}:NoExecute, and no condition that says why")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "Ready                      True ",
            "Ready                      False",
            "Ready is False for 2 h (KubeletReady",
        ),
        ("Ready                      True ", "Ready                      Unknown", "Ready is Unknown for 2 h"),
        ("DiskPressure               False", "DiskPressure               True ", "DiskPressure is True for 2 h"),
    ],
)
@pytest.mark.parametrize("cut", [("Lease:", "  Type     "), ("Annotations:", "  MemoryPressure")])
def test_conditions_are_read_without_their_heading(
    before: str, after: str, message: str, cut: tuple[str, str], tmp_path: Path
) -> None:
    text = changed((before, after))
    begin, end = (text.index(word) for word in cut)
    result = of_text(tmp_path, text[:begin] + text[end:])[READY]
    assert next(
        finding.message for finding in result.by_verdict or (result,) if finding.verdict is Verdict.FAIL
    ).startswith(message)


def test_that_conditions_without_their_heading_are_well_proves_nothing(tmp_path: Path) -> None:
    assert of_text(tmp_path, changed(("Conditions:\n", "")))[READY].verdict is Verdict.INCOMPLETE
