"""What checks of GPUs make of evidence that no fault of the testbed brings about."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterproof.plugins.evidence import Leaf, NodeEvidence, Status
from clusterproof.plugins.facts.gpu import Gpu, NvlinkErrors
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.inventory.model import Target
from clusterproof.plugins.judge import judge
from clusterproof.plugins.result import Result
from clusterproof.plugins.suite import node_checks
from clusterproof.plugins.verdict import Incomplete, NotApplicable, Verdict

UNSUPPORTED = {"error": "NOT_SUPPORTED", "text": ""}
UNKNOWN = {"error": "UNKNOWN", "text": ""}
GPU = {"index": 0, "lost": None, "pci": "0000:53:00.0", "mig_mode": False, "uuid": "GPU-1", "serial": "1"}
ON_BUS = {"address": "0000:53:00.0", "vendor": "10de", "device": "2330", "class": "030200", "driver": "nvidia"}
NO_AER = {"correctable": None, "nonfatal": None, "fatal": None}
KINDS = st.dictionaries(
    st.text(max_size=30),
    st.none()
    | st.integers()
    | st.dictionaries(st.text(max_size=30), st.integers() | st.none() | st.text(max_size=5), max_size=4),
    max_size=4,
)


def judged(check: str, instance_type: str = "p5.48xlarge", *, gpus: list[dict[str, Any]], **leaves: Any) -> Result:
    """A check's result on a node whose GPUs tell just this, and other leaves that."""
    nvml = {"init": None, "init_s": 0.1, "driver": "580.126.09", "count": len(gpus), "gpus": gpus}
    told = {"nvml": nvml, "pci": {"devices": [{**ON_BUS, "errors": NO_AER}]}} | leaves
    evidence = NodeEvidence("gpu001", {name: Leaf(Status.TOLD, value) for name, value in told.items()})
    return judge(node_checks()[check], Node(Target("gpu001", instance_type=instance_type), evidence))


def test_nvlink_errors_that_no_link_has_are_not_applicable() -> None:
    with pytest.raises(NotApplicable):
        assert Gpu(0, {"nvlink_errors": UNSUPPORTED}).nvlink_errors


@pytest.mark.parametrize("told", [{}, {"replay": UNSUPPORTED, "crc_data": UNSUPPORTED}, None, [], UNKNOWN])
def test_nvlink_errors_of_which_nothing_is_told_are_no_pass(told: object) -> None:
    with pytest.raises(Incomplete):
        assert Gpu(0, {"nvlink_errors": told}).nvlink_errors


def test_a_kind_of_nvlink_errors_that_no_link_has_leaves_the_others() -> None:
    told = {"replay": {"5": 12, "6": UNKNOWN}, "crc_data": UNSUPPORTED, "recovery": UNKNOWN}
    assert Gpu(0, {"nvlink_errors": told}).nvlink_errors == (
        NvlinkErrors("replay", "5", 12),
        NvlinkErrors("replay", "6", None),
        NvlinkErrors("recovery", "", None),
    )


@settings(max_examples=200)
@given(told=KINDS)
def test_no_nonsense_about_nvlink_errors_passes(told: dict[str, Any]) -> None:
    result = judged("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": told}], kernel_log={"lines": []})
    counted = all(isinstance(links, dict) and all(type(n) is int for n in links.values()) for links in told.values())
    assert "broke" not in result.message
    assert (result.verdict is Verdict.PASS) <= (counted and bool(told))


def test_many_links_with_errors_are_not_all_named() -> None:
    told = {"replay": {str(link): 7 for link in range(36)}}
    message = judged("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": told}]).message
    assert message.startswith("GPU 0: NVLink 0: 7 replay, NVLink 1: 7 replay")
    assert "and 28 more; expected none" in message


def test_a_recovery_whose_xids_cannot_be_read_is_incomplete() -> None:
    result = judged("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": {"recovery": {"5": 2}}}])
    assert (result.verdict, "kernel_log" in result.message) == (Verdict.INCOMPLETE, True)


@pytest.mark.parametrize(
    ("replays", "errors", "verdict"),
    [
        (0, NO_AER, Verdict.PASS),
        (1000, NO_AER, Verdict.PASS),
        (1001, NO_AER, Verdict.CONCERN),
        (UNSUPPORTED, NO_AER, Verdict.NOT_APPLICABLE),
        (UNSUPPORTED, dict.fromkeys(NO_AER, 0), Verdict.PASS),
        (UNKNOWN, dict.fromkeys(NO_AER, 0), Verdict.INCOMPLETE),
        (UNKNOWN, {**NO_AER, "fatal": 1}, Verdict.FAIL),
        (UNKNOWN, {**NO_AER, "nonfatal": 1}, Verdict.CONCERN),
        (0, {**NO_AER, "correctable": 480}, Verdict.PASS),
        (0, {**NO_AER, "correctable": 481}, Verdict.CONCERN),
        (0, {**NO_AER, "correctable": UNKNOWN, "fatal": 2}, Verdict.FAIL),
        (0, None, Verdict.INCOMPLETE),
    ],
)
def test_pcie_errors_are_judged_by_what_there_is(replays: object, errors: object, verdict: Verdict) -> None:
    gpu = {**GPU, "pcie_replays": replays}
    assert judged("gpu.pcie_errors", gpus=[gpu], pci={"devices": [{**ON_BUS, "errors": errors}]}).verdict is verdict


def test_a_device_that_nobody_counts_the_errors_of_is_not_applicable() -> None:
    efa = {"address": "0000:4f:00.0", "vendor": "1d0f", "device": "efa2", "class": "020000", "errors": NO_AER}
    assert judged("gpu.pcie_errors", gpus=[GPU], pci={"devices": [efa]}).verdict is Verdict.NOT_APPLICABLE


def test_a_gpu_on_the_bus_that_does_not_answer_is_incomplete() -> None:
    result = judged("gpu.pcie_errors", gpus=[{**GPU, "pci": "0000:64:00.0", "pcie_replays": 0}])
    assert (result.verdict, "no GPU answers at this address" in result.message) == (Verdict.INCOMPLETE, True)


@pytest.mark.parametrize(
    ("serials", "verdict"),
    [
        (["1", "2", "3", "4"], Verdict.PASS),
        (["1", "1", "2", "2"], Verdict.PASS),  # two GPUs on a board, as on GB300
        (["1", "1", "2", "3"], Verdict.CONCERN),
        (["1", "1", "1", "2"], Verdict.CONCERN),
        (["1", "1", "1", "2", "2", "2"], Verdict.CONCERN),
        (["0", "0"], Verdict.CONCERN),
        (["1", UNKNOWN], Verdict.INCOMPLETE),
        ([UNSUPPORTED, UNSUPPORTED], Verdict.PASS),
    ],
)
def test_a_serial_is_a_board_s(serials: list[object], verdict: Verdict) -> None:
    gpus = [{**GPU, "index": n, "uuid": f"GPU-{n}", "serial": serial} for n, serial in enumerate(serials)]
    assert judged("gpu.gpu_identity", gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("kernel", "taint", "modules", "verdict"),
    [
        ("6.8.0-1021-aws", "OE", ["gdrdrv"], Verdict.PASS),
        ("5.12.0", "OE", ["gdrdrv"], Verdict.PASS),
        ("5.9.16", "OE", ["gdrdrv"], Verdict.CONCERN),
        ("5.10.228", "OE", ["gdrdrv", "nvidia_peermem"], Verdict.PASS),
        ("6.8.0-1021-aws", "POE", ["gdrdrv"], Verdict.CONCERN),
        ("6.8.0-1021-aws", "POE", ["gdrdrv", "nvidia_peermem"], Verdict.PASS),
        ("6.8.0-1021-aws", "OE", ["nvidia_peermem"], Verdict.CONCERN),
        ("6.8.0-1021-aws", "", ["gdrdrv"], Verdict.INCOMPLETE),
        ("a kernel", "OE", ["gdrdrv"], Verdict.INCOMPLETE),
    ],
)
def test_gpudirect_needs_peermem_or_dma_buf_and_gdrcopy(
    kernel: str, taint: str, modules: list[str], verdict: Verdict
) -> None:
    rdma = {"devices": [], "modules": modules, "uverbs": [], "nvidia_taint": taint}
    assert judged("gpu.peermem", gpus=[GPU], rdma=rdma, boot={"kernel": kernel}).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "words"),
    [
        ("g6e.48xlarge", "no GPUDirect RDMA on g6e.48xlarge"),
        ("p3dn.24xlarge", "no GPUDirect RDMA on p3dn.24xlarge"),
        ("p5.4xlarge", "no GPUDirect RDMA on p5.4xlarge"),
    ],
)
def test_gpudirect_is_not_asked_for_where_there_is_none(instance_type: str, words: str) -> None:
    result = judged("gpu.peermem", instance_type, gpus=[GPU])
    assert (result.verdict, words in result.message) == (Verdict.NOT_APPLICABLE, True)


@pytest.mark.parametrize(
    ("instance_type", "gpu", "verdict"),
    [
        ("p5.48xlarge", {"pcie_width": 8, "nvlinks": [True] * 18}, Verdict.FAIL),  # boards with NVLink have all lanes
        ("g6e.48xlarge", {"pcie_width": 8}, Verdict.PASS),  # the catalogue knows that it wires no more
        ("g6e.48xlarge", {"pcie_width": 4}, Verdict.CONCERN),
        ("g5.48xlarge", {"pcie_width": 8}, Verdict.CONCERN),  # nobody knows
        ("someone.else", {"pcie_width": 8, "nvlinks": UNSUPPORTED}, Verdict.CONCERN),
        ("someone.else", {"pcie_width": 8, "nvlinks": [True] * 4}, Verdict.FAIL),
        ("someone.else", {"pcie_width": 16}, Verdict.PASS),
        ("p5.48xlarge", {"pcie_width": UNKNOWN}, Verdict.INCOMPLETE),
    ],
)
def test_how_many_lanes_a_gpu_should_have(instance_type: str, gpu: dict[str, Any], verdict: Verdict) -> None:
    gpus = [{**GPU, "pcie_width_max": 16, **gpu}] * 2
    assert judged("gpu.pcie_link", instance_type, gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("model", "instance_type", "verdict"),
    [
        ("NVIDIA A100-SXM4-40GB", "p4d.24xlarge", Verdict.NOT_APPLICABLE),
        ("NVIDIA H100 80GB HBM3", "p5.48xlarge", Verdict.FAIL),
    ],
)
def test_a_fabric_that_is_not_supported_is_a_fault_since_hopper(
    model: str, instance_type: str, verdict: Verdict
) -> None:
    fabric = {"state": 0, "status": 0, "health_mask": 0, "health_summary": 0, "clique": 0, "cluster_uuid": "0" * 32}
    assert judged("gpu.fabric_state", instance_type, gpus=[{**GPU, "name": model, "fabric": fabric}]).verdict is verdict


def test_a_recording_from_before_the_summary_of_a_fabric_is_judged_without_it() -> None:
    fabric = {"state": 3, "status": 0, "health_mask": 0, "clique": 0, "cluster_uuid": "0" * 32}
    assert judged("gpu.fabric_state", gpus=[{**GPU, "fabric": fabric}]).verdict is Verdict.PASS
