"""What checks of GPUs make of evidence that no fault of the testbed brings about."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterproof.plugins.catalog import InstanceType
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.gpu.facts import Gpu, NvlinkErrors
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.all_checks import node_checks
from clusterproof.plugins.suite.evaluate import evaluate

UNSUPPORTED = {"error": "NOT_SUPPORTED", "text": ""}
UNKNOWN = {"error": "UNKNOWN", "text": ""}
GPU = {"index": 0, "lost": None, "pci": "0000:53:00.0", "mig_mode": False, "uuid": "GPU-1", "serial": "1"}
ON_BUS = {"address": "0000:53:00.0", "vendor": "10de", "device": "2330", "class": "030200", "driver": "nvidia"}
EFA = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2"}
NO_AER = {"correctable": None, "nonfatal": None, "fatal": None}
KINDS = st.dictionaries(
    st.text(max_size=30),
    st.none()
    | st.integers()
    | st.dictionaries(st.text(max_size=30), st.integers() | st.none() | st.text(max_size=5), max_size=4),
    max_size=4,
)


def evaluated(
    check: str,
    instance_type: str = "p5.48xlarge",
    policy: Policy = NO_POLICY,
    *,
    gpus: list[dict[str, Any]],
    **collectors: Any,
) -> Result:
    """A check's result on a node whose GPUs tell just this, and other collectors that."""
    nvml = {"init": None, "init_s": 0.1, "driver": "580.126.09", "count": len(gpus), "gpus": gpus}
    data = {"nvml": nvml, "pci": {"devices": [{**ON_BUS, "errors": NO_AER}]}} | collectors
    evidence = NodeEvidence("gpu001", {name: Collected(Status.TOLD, value) for name, value in data.items()})
    return evaluate(node_checks()[check], Node(Target("gpu001", instance_type=instance_type), evidence, policy=policy))


@pytest.mark.parametrize("word", ["GPU_IS_LOST", "RESET_REQUIRED"])
@pytest.mark.parametrize(
    "place",
    [
        lambda lost: {"uuid": lost},
        lambda lost: {"utilization_percent": lost},
        lambda lost: {"processes": lost},
        lambda lost: {"nvlinks": [True, lost, True]},
        lambda lost: {"nvlink_errors": {"replay": {"5": lost}}},
        lambda lost: {"fabric": lost},
    ],
    ids=["the first", "a late one", "the last", "a link", "a counter of a link", "the fabric"],
)
def test_any_reading_that_says_lost_condemns_the_gpu_and_leaves_nothing_else_to_judge(place: Any, word: str) -> None:
    gpus = [{**GPU, "ecc_uncorrected_dram": 3, "ecc_uncorrected_sram": 0} | place({"error": word, "text": ""})]
    answers = evaluated("gpu.gpu_answers", gpus=gpus)
    assert (answers.verdict, answers.message) == (
        Verdict.FAIL,
        f"GPU 0: the driver says {word}; expected an answer",
    )
    others = [evaluated(name, gpus=gpus) for name, check in node_checks().items() if check.subject == "gpu"]
    data = {one.check: one for one in others if one.verdict is not Verdict.INCOMPLETE}
    assert data.keys() == {"gpu.gpu_answers"}
    assert all(f"GPU 0: does not answer ({word})" in one.message for one in others if one.check not in data)


@pytest.mark.parametrize("word", ["UNKNOWN", "TIMEOUT", "NO_PERMISSION", "NOT_SUPPORTED", ["GPU_IS_LOST"]])
def test_a_reading_that_failed_otherwise_loses_no_gpu(word: object) -> None:
    assert evaluated("gpu.gpu_answers", gpus=[{**GPU, "temperature_c": {"error": word}}]).verdict is Verdict.PASS


def test_nvlink_errors_that_no_link_has_are_not_applicable() -> None:
    with pytest.raises(NotApplicable):
        assert Gpu(0, {"nvlink_errors": UNSUPPORTED}).nvlink_errors


@pytest.mark.parametrize("data", [{}, {"replay": UNSUPPORTED, "crc_data": UNSUPPORTED}, None, [], UNKNOWN])
def test_nvlink_errors_of_which_nothing_is_told_are_no_pass(data: object) -> None:
    with pytest.raises(Incomplete):
        assert Gpu(0, {"nvlink_errors": data}).nvlink_errors


def test_a_kind_of_nvlink_errors_that_no_link_has_leaves_the_others() -> None:
    data = {"replay": {"5": 12, "6": UNKNOWN}, "crc_data": UNSUPPORTED, "recovery": UNKNOWN}
    assert Gpu(0, {"nvlink_errors": data}).nvlink_errors == (
        NvlinkErrors("replay", "5", 12),
        NvlinkErrors("replay", "6", None),
        NvlinkErrors("recovery", "", None),
    )


@settings(max_examples=200)
@given(data=KINDS)
def test_no_nonsense_about_nvlink_errors_passes(data: dict[str, Any]) -> None:
    result = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": data}], kernel_log={"lines": []})
    counted = all(isinstance(links, dict) and all(type(n) is int for n in links.values()) for links in data.values())
    assert "broke" not in result.message
    assert (result.verdict is Verdict.PASS) <= (counted and bool(data))


def test_many_links_with_errors_are_not_all_named() -> None:
    data = {"replay": {str(link): 7 for link in range(36)}}
    message = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": data}]).message
    assert message.startswith("GPU 0: NVLink 0: 7 replay, NVLink 1: 7 replay")
    assert "and 28 more; expected none" in message


def test_a_recovery_whose_xids_cannot_be_read_is_incomplete() -> None:
    result = evaluated("gpu.nvlink_errors", gpus=[{**GPU, "nvlink_errors": {"recovery": {"5": 2}}}])
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
    assert evaluated("gpu.pcie_errors", gpus=[gpu], pci={"devices": [{**ON_BUS, "errors": errors}]}).verdict is verdict


def test_a_device_that_nobody_counts_the_errors_of_is_not_applicable() -> None:
    efa = {"address": "0000:4f:00.0", "vendor": "1d0f", "device": "efa2", "class": "020000", "errors": NO_AER}
    assert evaluated("gpu.pcie_errors", gpus=[GPU], pci={"devices": [efa]}).verdict is Verdict.NOT_APPLICABLE


def test_a_gpu_on_the_bus_that_does_not_answer_is_incomplete() -> None:
    result = evaluated("gpu.pcie_errors", gpus=[{**GPU, "pci": "0000:64:00.0", "pcie_replays": 0}])
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
    assert evaluated("gpu.gpu_identity", gpus=gpus).verdict is verdict


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
    rdma = {"devices": [EFA], "modules": modules, "uverbs": [], "nvidia_taint": taint}
    assert evaluated("gpu.peermem", gpus=[GPU], rdma=rdma, boot={"kernel": kernel}).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "words"),
    [
        ("g6e.48xlarge", "no GPUDirect RDMA on g6e.48xlarge"),
        ("p3dn.24xlarge", "no GPUDirect RDMA on p3dn.24xlarge"),
        ("p5.4xlarge", "no GPUDirect RDMA on p5.4xlarge"),
    ],
)
def test_gpudirect_is_not_asked_for_where_there_is_none(instance_type: str, words: str) -> None:
    result = evaluated("gpu.peermem", instance_type, gpus=[GPU], rdma={"devices": [EFA]})
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
    assert evaluated("gpu.pcie_link", instance_type, gpus=gpus).verdict is verdict


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
    assert (
        evaluated("gpu.fabric_state", instance_type, gpus=[{**GPU, "name": model, "fabric": fabric}]).verdict is verdict
    )


def test_a_recording_from_before_the_summary_of_a_fabric_is_judged_without_it() -> None:
    fabric = {"state": 3, "status": 0, "health_mask": 0, "clique": 0, "cluster_uuid": "0" * 32}
    assert evaluated("gpu.fabric_state", gpus=[{**GPU, "fabric": fabric}]).verdict is Verdict.PASS


UP, DOWN = [True], [False]
UNREAD = [UNKNOWN]


@pytest.mark.parametrize(
    ("links", "verdict", "words"),
    [
        (UP * 18, Verdict.PASS, ""),
        (UP * 18 + DOWN * 18, Verdict.PASS, ""),  # the due ones are active, and NVML lists more
        (UP * 18 + UNREAD, Verdict.PASS, ""),
        (DOWN * 2 + UP * 18, Verdict.PASS, ""),
        (UP * 17 + DOWN, Verdict.FAIL, "NVLink 17 inactive; expected 18 active links"),
        (UP * 17, Verdict.FAIL, "17 NVLinks; expected 18 active links"),
        (UP * 17 + UNREAD, Verdict.INCOMPLETE, "NVLink 17 could not be read; expected 18 active links"),
        (UP * 16 + UNREAD + DOWN, Verdict.FAIL, "NVLink 17 inactive"),
        (UP * 17 + UNREAD + DOWN, Verdict.INCOMPLETE, "NVLink 17 could not be read"),
    ],
)
def test_the_links_that_are_due_must_be_active(links: list[object], verdict: Verdict, words: str) -> None:
    result = evaluated("gpu.nvlink_active", gpus=[{**GPU, "nvlinks": links}])
    assert (result.verdict, words in result.message) == (verdict, True), result.message


@pytest.mark.parametrize(
    ("nodes_links", "verdict", "words"),
    [
        ([UP * 3 + DOWN + UP * 14], Verdict.FAIL, "NVLink 3 inactive beside 17 active ones"),
        ([UP * 4, UP * 4, UP * 3], Verdict.FAIL, "GPU 2: 3 active NVLinks; expected 4, as on another GPU"),
        ([UP * 4, UP * 4, UP * 3 + DOWN], Verdict.FAIL, "GPU 2: 3 active NVLinks; expected 4"),
        ([UP * 4, UP * 4, UP * 3 + UNREAD], Verdict.INCOMPLETE, "instance type"),
        ([DOWN + UP * 3] * 2, Verdict.CONCERN, "NVLink 0 inactive on every GPU; expected active, unless"),
        ([UP * 12 + DOWN * 6] * 2, Verdict.INCOMPLETE, "instance type"),
        ([UP * 4] * 3, Verdict.INCOMPLETE, "instance type"),
        ([DOWN * 4] * 3, Verdict.INCOMPLETE, "instance type"),
        ([[]], Verdict.INCOMPLETE, "instance type"),
    ],
)
def test_a_link_that_is_down_needs_no_catalogue(nodes_links: list[list[object]], verdict: Verdict, words: str) -> None:
    gpus = [{**GPU, "index": n, "nvlinks": links} for n, links in enumerate(nodes_links)]
    result = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus)
    assert (result.verdict, words in result.message) == (verdict, True), result.message


def test_gpus_of_another_model_have_links_of_their_own() -> None:
    gpus = [{**GPU, "nvlinks": UP * 4, "name": "A"}, {**GPU, "index": 1, "nvlinks": DOWN * 4, "name": "B"}]
    assert evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("state", "mask", "verdict"),
    [(3, 0x1AA, Verdict.PASS), (3, 0x19A, Verdict.FAIL), (2, 0x1AA, Verdict.FAIL), (0, 0, Verdict.INCOMPLETE)],
)
def test_a_sick_fabric_needs_no_catalogue(state: int, mask: int, verdict: Verdict) -> None:
    fabric = {"state": state, "status": 0, "health_mask": mask, "clique": 0, "cluster_uuid": "0" * 32}
    gpus = [{**GPU, "name": "NVIDIA H100 80GB HBM3", "fabric": fabric}]
    assert evaluated("gpu.fabric_state", "someone.else", gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("counters", "verdict"),
    [({"replay": {}}, Verdict.PASS), ({"replay": {"5": 12}}, Verdict.CONCERN), (UNSUPPORTED, Verdict.NOT_APPLICABLE)],
)
def test_errors_of_nvlinks_need_no_catalogue(counters: object, verdict: Verdict) -> None:
    assert evaluated("gpu.nvlink_errors", "someone.else", gpus=[{**GPU, "nvlink_errors": counters}]).verdict is verdict


def moments(at_s: tuple[object, object] = (10.0, 10.5), **counters: tuple[object, object]) -> list[dict[str, Any]]:
    """What a slowed GPU tells at two moments; `f252`: what field 252 counts at each."""
    return [
        {"at_s": at_s[n], "counters_ns": {name[1:]: counted[n] for name, counted in counters.items()}} for n in (0, 1)
    ]


@pytest.mark.parametrize(
    ("reasons", "slowdown", "verdict"),
    [
        (0x40, moments(f252=(7, 500_000_007)), Verdict.FAIL),
        (0x40, moments(f252=(7, 250_000_007)), Verdict.FAIL),
        (0x40, moments(f252=(7, 249_000_007)), Verdict.CONCERN),
        (0x40, moments(f75=(7, 500_000_007), f252=(UNSUPPORTED, UNSUPPORTED)), Verdict.FAIL),
        (0x40, moments(f270=(7, 500_000_007)), Verdict.FAIL),
        (0x40, moments(f253=(7, 500_000_007)), Verdict.CONCERN),  # it is the power brake's
        (0x80, moments(f253=(7, 500_000_007)), Verdict.FAIL),
        (0x80, moments(f271=(7, 500_000_007)), Verdict.FAIL),
        (0x80, moments(f75=(7, 500_000_007), f270=(7, 500_000_007)), Verdict.CONCERN),
        (0x08, moments(f271=(7, 500_000_007)), Verdict.FAIL),
        (0x20, moments(f75=(7, 500_000_007)), Verdict.CONCERN),  # by software
        (0x04, moments(f75=(7, 500_000_007)), Verdict.PASS),  # the power cap is normal
        (0x01, moments(f252=(7, 500_000_007)), Verdict.PASS),
        (0x40, moments(f252=(500_000_007, 7)), Verdict.CONCERN),
        (0x40, moments(f252=(True, "7")), Verdict.CONCERN),
        (0x40, moments((10.5, 10.5), f252=(7, 500_000_007)), Verdict.CONCERN),
        (0x40, moments((None, "now"), f252=(7, 500_000_007)), Verdict.CONCERN),
        (0x40, moments(f252=(7, 500_000_007))[:1], Verdict.CONCERN),
        (0x40, [{"at_s": 1, "counters_ns": UNKNOWN}] * 2, Verdict.CONCERN),
        (0x40, UNKNOWN, Verdict.CONCERN),
        (0x40, None, Verdict.CONCERN),  # a capture, or an older recording
    ],
)
def test_only_a_slowdown_whose_time_runs_fails(reasons: int, slowdown: object, verdict: Verdict) -> None:
    gpu = {**GPU, "clocks_event_reasons": reasons, "slowdown": slowdown}
    assert evaluated("gpu.no_throttle", gpus=[gpu]).verdict is verdict


IDLE = {"utilization_percent": 0, "processes": [], "memory_used_mib": 0, "temperature_margin_c": 40}
BUSY = {"utilization_percent": 99}
SOMEBODY = {"processes": [{"pid": 1, "memory_mib": 900, "name": "python3", "cgroup": "/slurm/uid_1/job_9/step_0"}]}


def beside(first: dict[str, Any], *others: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**GPU, "index": n, **one} for n, one in enumerate((first, *others))]


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(IDLE, IDLE), Verdict.PASS),
        (beside(IDLE | BUSY, IDLE), Verdict.CONCERN),
        (beside(IDLE | {"utilization_percent": 49}, IDLE), Verdict.PASS),  # what has just ended is still told
        (beside(IDLE | BUSY, IDLE | BUSY), Verdict.PASS),  # a container may hide the processes of all
        (beside(IDLE | BUSY, IDLE | SOMEBODY), Verdict.CONCERN),  # for GPU 1 is held
        (beside(IDLE | {"utilization_percent": UNKNOWN}, IDLE), Verdict.PASS),
    ],
)
def test_a_gpu_that_computes_for_nobody_is_in_use(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.no_leftover_processes", gpus=gpus).verdict is verdict


def warm(*celsius: object) -> list[dict[str, Any]]:
    return [IDLE | {"temperature_c": data} for data in celsius]


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(*warm(30, 31, 32, 33)), Verdict.PASS),
        (beside(*warm(52, 31, 32, 33)), Verdict.PASS),
        (beside(*warm(53, 31, 32, 33)), Verdict.CONCERN),
        (beside(*warm(90, 31)), Verdict.PASS),  # of two nobody knows which is the odd one
        (beside(*warm(90, UNKNOWN, 31)), Verdict.PASS),
        (beside(warm(70)[0] | SOMEBODY, *warm(31, 32, 33)), Verdict.PASS),  # it has work
        (beside(warm(70)[0] | BUSY, *warm(31, 32, 33)), Verdict.PASS),
        (beside(warm(53)[0] | {"temperature_margin_c": UNSUPPORTED}, *warm(31, 32, 33)), Verdict.CONCERN),
        (beside(warm(53)[0] | {"temperature_margin_c": -1}, *warm(31, 32, 33)), Verdict.FAIL),
    ],
)
def test_an_idle_gpu_is_as_cool_as_the_others(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.temperature", gpus=gpus).verdict is verdict


def can_do(*most: object, name: str = "H100") -> list[dict[str, Any]]:
    return [
        {"name": name, "pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 4, "pcie_gen_max": data} for data in most
    ]


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(*can_do(5, 5, 5)), Verdict.PASS),
        (beside(*can_do(4, 5, 5)), Verdict.FAIL),
        (beside(*can_do(4, 4, 5)), Verdict.CONCERN),  # most can do no more
        (beside(*can_do(4, 5)), Verdict.CONCERN),
        (beside(*can_do(5, UNKNOWN)), Verdict.PASS),
        (beside(*can_do(4, name="L40S"), *can_do(5, 5)), Verdict.PASS),  # another model
    ],
)
def test_what_a_pcie_link_can_do_is_alike_on_all_gpus(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.pcie_link", gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "now", "pending", "verdict", "words"),
    [
        ("p5.48xlarge", True, True, Verdict.PASS, ""),
        ("p5.48xlarge", True, False, Verdict.CONCERN, "enabled until the next reset only"),
        ("p5.48xlarge", False, True, Verdict.CONCERN, "disabled until the next reset; expected enabled"),
        ("p5.48xlarge", False, False, Verdict.CONCERN, "ECC is disabled; expected enabled"),
        ("p5.48xlarge", True, UNSUPPORTED, Verdict.PASS, ""),
        ("someone.else", True, False, Verdict.CONCERN, "enabled until the next reset only"),
        ("someone.else", True, True, Verdict.INCOMPLETE, "instance type"),
    ],
)
def test_a_change_of_ecc_that_waits_is_told(
    instance_type: str, now: object, pending: object, verdict: Verdict, words: str
) -> None:
    result = evaluated("gpu.ecc_mode", instance_type, gpus=[{**GPU, "ecc_enabled": now, "ecc_pending": pending}])
    assert (result.verdict, words in result.message) == (verdict, True), result.message


def test_a_type_of_a_site_s_own_that_has_no_ecc_need_not_have_it_on() -> None:
    row = InstanceType(name="own.large", source="site", ecc=False)
    policy = Policy(instance_types={"own.large": row})
    gpu = {**GPU, "ecc_enabled": False, "ecc_pending": False}
    result = evaluated("gpu.ecc_mode", "own.large", policy, gpus=[gpu])
    assert (result.verdict, result.message) == (Verdict.NOT_APPLICABLE, "GPU 0: own.large has no ECC")


@pytest.mark.parametrize(
    ("clock", "default", "verdict"),
    [
        (1980, 1980, Verdict.PASS),
        (1095, 1980, Verdict.CONCERN),
        ({"error": "DEPRECATED", "text": ""}, {"error": "DEPRECATED", "text": ""}, Verdict.NOT_APPLICABLE),
        (1980, UNKNOWN, Verdict.INCOMPLETE),
        (None, None, Verdict.INCOMPLETE),  # an older recording
    ],
)
def test_application_clocks_are_the_default(clock: object, default: object, verdict: Verdict) -> None:
    gpu = {**GPU, "app_clock_mhz": clock, "app_clock_default_mhz": default}
    assert evaluated("gpu.application_clocks", gpus=[gpu]).verdict is verdict


@pytest.mark.parametrize(
    ("addresses", "instance_type", "verdict"),
    [
        (["0000:53:00.0", "0000:64:00.0"], "someone.else", Verdict.FAIL),
        (["0000:53:00.0"], "someone.else", Verdict.INCOMPLETE),  # all are on the bus, and nobody says how many are due
        (["0000:64:00.0"], "someone.else", Verdict.INCOMPLETE),  # the bus of another machine
        (["0000:53:00.0"] * 8, "p5.48xlarge", Verdict.PASS),
        (["0000:53:00.0"] * 7 + ["0000:64:00.0"], "p5.48xlarge", Verdict.FAIL),
        (["0000:53:00.0"] * 7 + [UNKNOWN], "p5.48xlarge", Verdict.PASS),
    ],
)
def test_a_gpu_of_the_driver_is_on_the_bus(addresses: list[object], instance_type: str, verdict: Verdict) -> None:
    gpus = [{**GPU, "index": n, "pci": address} for n, address in enumerate(addresses)]
    assert evaluated("gpu.gpu_count", instance_type, gpus=gpus, boot={"uptime_s": 86_400.0}).verdict is verdict


def bus(*numa: int, driver: str = "nvidia", nvswitches: int = 4) -> dict[str, Any]:
    """What the PCI bus shows: GPUs on these NUMA nodes, and so many NVSwitches."""
    gpus = [
        {**ON_BUS, "address": f"0000:{0x53 + n:02x}:00.0", "numa": node, "driver": driver}
        for n, node in enumerate(numa)
    ]
    return {"devices": gpus + [{**ON_BUS, "address": "0000:dc:00.0", "class": "068000"}] * nvswitches}


@pytest.mark.parametrize(
    ("numa", "verdict", "words"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), Verdict.PASS, ""),
        ((0, 0, 0, 0, 0, 1, 1, 1), Verdict.CONCERN, "5 GPUs on NUMA node 0, 3 GPUs on NUMA node 1; expected 4 on each"),
        ((0, 0, 0), Verdict.PASS, ""),
        ((0, 0, 1), Verdict.PASS, ""),  # three cannot be shared evenly
        ((), Verdict.NOT_APPLICABLE, "no NVIDIA GPU on the PCI bus"),
    ],
)
def test_gpus_are_shared_evenly_among_numa_nodes_where_no_other_node_tells_how(
    numa: tuple[int, ...], verdict: Verdict, words: str
) -> None:
    result = evaluated("gpu.gpu_numa", gpus=[GPU], pci=bus(*numa))
    assert (result.verdict, words in result.message) == (verdict, True), result.message


@pytest.mark.parametrize(
    ("instance_type", "gpus_on_bus", "nvswitches", "verdict"),
    [
        ("p5.48xlarge", 8, 4, Verdict.PASS),
        ("p5.48xlarge", 8, 3, Verdict.FAIL),
        ("p5.48xlarge", 8, 0, Verdict.FAIL),
        ("p5.48xlarge", 8, 6, Verdict.PASS),
        ("p4d.24xlarge", 8, 5, Verdict.FAIL),
        ("g5.48xlarge", 8, 0, Verdict.NOT_APPLICABLE),
        ("p6-b200.48xlarge", 8, 0, Verdict.NOT_APPLICABLE),
        ("someone.else", 8, 5, Verdict.FAIL),
        ("someone.else", 8, 3, Verdict.FAIL),
        ("someone.else", 8, 4, Verdict.INCOMPLETE),
        ("someone.else", 8, 0, Verdict.INCOMPLETE),
        ("someone.else", 4, 3, Verdict.INCOMPLETE),  # a part of a machine may have them
    ],
)
def test_how_many_nvswitches_there_should_be(
    instance_type: str, gpus_on_bus: int, nvswitches: int, verdict: Verdict
) -> None:
    pci = bus(*[0] * gpus_on_bus, nvswitches=nvswitches)
    assert evaluated("gpu.nvswitch_count", instance_type, gpus=[GPU], pci=pci).verdict is verdict


@pytest.mark.parametrize(
    ("driver", "modules", "verdict"),
    [
        ("nvidia", ["nvidia"], Verdict.PASS),
        ("", ["nvidia"], Verdict.PASS),  # that none holds it is another check's finding
        ("vfio-pci", ["nvidia"], Verdict.FAIL),
        ("nouveau", ["nouveau"], Verdict.FAIL),
        ("nvidia", ["nvidia", "nouveau"], Verdict.CONCERN),
        (None, ["nvidia"], Verdict.INCOMPLETE),
    ],
)
def test_nvidia_s_driver_holds_the_gpus(driver: Any, modules: list[str], verdict: Verdict) -> None:
    rdma = {"devices": [], "modules": modules, "uverbs": [], "nvidia_taint": ""}
    assert evaluated("gpu.gpu_driver", gpus=[GPU], pci=bus(0, driver=driver), rdma=rdma).verdict is verdict


@pytest.mark.parametrize(
    ("name", "service", "verdict"),
    [
        ("NVIDIA GB200", {"load": "loaded", "active": "active"}, Verdict.PASS),
        ("NVIDIA GB300", {"load": "loaded", "active": "failed"}, Verdict.CONCERN),
        ("NVIDIA GB200", {"load": "not-found", "active": "inactive"}, Verdict.CONCERN),
        ("NVIDIA H100 80GB HBM3", {"load": "not-found", "active": "inactive"}, Verdict.NOT_APPLICABLE),
        (UNKNOWN, {"load": "loaded", "active": "active"}, Verdict.INCOMPLETE),
    ],
)
def test_imex_runs_on_the_trays_of_a_rack(name: object, service: dict[str, str], verdict: Verdict) -> None:
    services = {"services": {"nvidia-imex": service}, "failed": []}
    assert evaluated("gpu.imex", gpus=[{**GPU, "name": name}], services=services).verdict is verdict


@pytest.mark.parametrize(("gpus", "verdict"), [([], Verdict.NOT_APPLICABLE), ([GPU], Verdict.FAIL)])
def test_a_type_without_gpus_has_none(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.gpu_count", "trn1.32xlarge", gpus=gpus, boot={"uptime_s": 86400.0}).verdict is verdict


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 0}, Verdict.PASS),
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 0, "ecc_uncorrected_total": 3}, Verdict.PASS),
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 1}, Verdict.FAIL),
        ({"ecc_uncorrected_total": 3}, Verdict.FAIL),
        ({"ecc_uncorrected_total": 0}, Verdict.INCOMPLETE),
        ({"ecc_enabled": False}, Verdict.CONCERN),
        ({"ecc_enabled": True}, Verdict.INCOMPLETE),
    ],
)
def test_uncorrected_errors_are_counted_by_kind_else_in_all(data: dict[str, object], verdict: Verdict) -> None:
    assert evaluated("gpu.no_uncorrected_ecc", gpus=[{**GPU, **data}]).verdict is verdict
