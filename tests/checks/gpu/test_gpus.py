"""Checks of a GPU's own values on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.catalog import InstanceType
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from tests.checks.gpu.given import GPU, UNKNOWN, UNSUPPORTED, beside, bus, evaluated


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
def test_any_query_that_says_lost_fails_the_gpu_and_leaves_nothing_else_to_evaluate(place: Any, word: str) -> None:
    gpus = [{**GPU, "ecc_uncorrected_dram": 3, "ecc_uncorrected_sram": 0} | place({"error": word, "text": ""})]
    answers = evaluated("gpu.gpu_answers", gpus=gpus)
    assert (answers.verdict, answers.message) == (
        Verdict.FAIL,
        f"GPU 0: the driver says {word}; expected an answer",
    )
    others = [evaluated(name, gpus=gpus) for name, check in node_checks().items() if check.subject == "gpu"]
    by_check = {result.check: result for result in others if result.verdict is not Verdict.INCOMPLETE}
    assert by_check.keys() == {"gpu.gpu_answers"}
    assert all(
        f"GPU 0: does not answer ({word})" in result.message for result in others if result.check not in by_check
    )


@pytest.mark.parametrize("word", ["UNKNOWN", "TIMEOUT", "NO_PERMISSION", "NOT_SUPPORTED", ["GPU_IS_LOST"]])
def test_a_query_that_failed_otherwise_loses_no_gpu(word: object) -> None:
    assert evaluated("gpu.gpu_answers", gpus=[{**GPU, "temperature_c": {"error": word}}]).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("serials", "verdict"),
    [
        (["1", "2", "3", "4"], Verdict.PASS),
        (["1", "1", "2", "2"], Verdict.PASS),  # two GPUs per board, as on GB300
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
    ("instance_type", "now", "pending", "verdict", "message"),
    [
        ("p5.48xlarge", True, True, Verdict.PASS, ""),
        ("p5.48xlarge", True, False, Verdict.CONCERN, "enabled until the next reset only"),
        ("p5.48xlarge", False, True, Verdict.CONCERN, "disabled until the next reset; expected enabled"),
        ("p5.48xlarge", False, False, Verdict.CONCERN, "ECC is disabled; expected enabled"),
        ("p5.48xlarge", True, UNSUPPORTED, Verdict.PASS, ""),
        ("someone.else", True, False, Verdict.CONCERN, "enabled until the next reset only"),
        ("someone.else", True, True, Verdict.PASS, ""),
        ("someone.else", False, True, Verdict.INCOMPLETE, "instance type"),
    ],
)
def test_a_pending_change_of_ecc_is_reported(
    instance_type: str, now: object, pending: object, verdict: Verdict, message: str
) -> None:
    result = evaluated("gpu.ecc_mode", instance_type, gpus=[{**GPU, "ecc_enabled": now, "ecc_pending": pending}])
    assert (result.verdict, message in result.message) == (verdict, True), result.message


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
        (1410, 1275, Verdict.PASS),  # an A100 at its maximum, as Amazon's images for EKS set it
        ({"error": "DEPRECATED", "text": ""}, {"error": "DEPRECATED", "text": ""}, Verdict.NOT_APPLICABLE),
        (1980, UNKNOWN, Verdict.INCOMPLETE),
        (None, None, Verdict.INCOMPLETE),  # an older recording
    ],
)
def test_application_clocks_are_the_default_at_least(clock: object, default: object, verdict: Verdict) -> None:
    gpu = {**GPU, "app_clock_mhz": clock, "app_clock_default_mhz": default}
    assert evaluated("gpu.application_clocks", gpus=[gpu]).verdict is verdict


@pytest.mark.parametrize(("gpus", "verdict"), [([], Verdict.NOT_APPLICABLE), ([GPU], Verdict.FAIL)])
def test_a_type_without_gpus_has_none(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.gpu_count", "trn1.32xlarge", gpus=gpus, boot={"uptime_s": 86400.0}).verdict is verdict


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 0}, Verdict.PASS),
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 0, "ecc_uncorrected_total": 3}, Verdict.FAIL),
        ({"ecc_uncorrected_dram": 0, "ecc_uncorrected_sram": 1}, Verdict.FAIL),
        ({"ecc_uncorrected_total": 3}, Verdict.FAIL),
        ({"ecc_uncorrected_total": 0}, Verdict.INCOMPLETE),
        ({"ecc_enabled": False}, Verdict.INCOMPLETE),  # beside the concern
        ({"ecc_enabled": True}, Verdict.INCOMPLETE),
    ],
)
def test_uncorrected_errors_are_counted_by_kind_else_in_all(data: dict[str, object], verdict: Verdict) -> None:
    assert evaluated("gpu.no_uncorrected_ecc", gpus=[{**GPU, **data}]).verdict is verdict


@pytest.mark.parametrize(
    ("uptime_s", "corrected", "message"),
    [
        (60.0, 1, ""),  # which would be 1440 a day
        (300.0, 1000, ""),
        (300.0, 1001, "1001 corrected ECC errors a day; expected at most 1000"),
        (300.0, 300_301, "1001 corrected ECC errors a second; expected at most 1000"),
        (2 * 86400.0, 2002, "1001 corrected ECC errors a day; expected at most 1000"),
    ],
)
def test_a_few_corrected_errors_behind_boot_are_no_rate(uptime_s: float, corrected: int, message: str) -> None:
    gpus = [{**GPU, "ecc_corrected_total": corrected}]
    result = evaluated("gpu.corrected_ecc_rate", gpus=gpus, boot={"uptime_s": uptime_s})
    assert result.message == (message and f"GPU 0: {message}")


@pytest.mark.parametrize(
    ("check", "usual", "odd", "message"),
    [
        ("ecc_mode", {"ecc_enabled": True}, {"ecc_enabled": False}, "GPU 7: ECC is disabled; expected enabled"),
        ("mig_uniform", {"mig_pending": False}, {"mig_pending": True}, "MIG turns on at the next reset of GPU 7"),
        (
            "gpu_uniform",
            {"memory_total_mib": 81559},
            {"memory_total_mib": 65247},
            "GPU 7: memory (MiB) 65247; expected 81559, as on 7 GPUs of the node",
        ),
        (
            "gpu_uniform",
            {"power_limit_default_w": 700.0},
            {"power_limit_default_w": 650.0},
            "GPU 7: default power limit (W) 650; expected 700, as on 7 GPUs of the node",
        ),
        (
            "gpu_uniform",
            {"clock_max_mhz": 1980},
            {"clock_max_mhz": 1755},
            "GPU 7: maximum clock (MHz) 1755; expected 1980, as on 7 GPUs of the node",
        ),
    ],
)
def test_one_gpu_of_eight_that_differs_is_reported_whatever_the_type(
    check: str, usual: dict[str, Any], odd: dict[str, Any], message: str
) -> None:
    gpus = [{**GPU, "index": at, "name": "NVIDIA H100", **(odd if at == 7 else usual)} for at in range(8)]
    assert message in evaluated(f"gpu.{check}", "", gpus=gpus).message
    alike = [{**gpu, **usual} for gpu in gpus]
    assert message not in evaluated(f"gpu.{check}", "", gpus=alike).message


@pytest.mark.parametrize("word", ["LIB_RM_VERSION_MISMATCH", "DRIVER_NOT_LOADED"])
def test_a_driver_that_does_not_start_is_a_fault_whatever_the_type(word: str) -> None:
    missing = Collected(Status.UNCOLLECTED)
    nvml = {"init": {"error": word, "text": ""}}
    result = evaluated("gpu.gpu_count", "", gpus=[], nvml=nvml, pci=missing)
    assert f"NVML does not start: {word}; expected it to start" in result.message
    assert result.verdict is Verdict.FAIL
    assert evaluated("gpu.gpu_count", "", gpus=[], nvml=nvml, pci={"devices": []}).verdict is Verdict.INCOMPLETE


NOT_READ = Collected(Status.UNCOLLECTED)


def test_a_node_without_nvidia_smi_is_not_accused_where_nothing_shows_a_gpu() -> None:
    nvml = {"init": {"error": "LIBRARY_NOT_FOUND", "text": "bash: nvidia-smi: command not found"}}
    unread = evaluated("gpu.gpu_count", "", gpus=[], nvml=nvml, pci=NOT_READ)
    assert (unread.verdict, "nvidia-smi or its library is missing" in unread.message) == (Verdict.INCOMPLETE, True)
    without = evaluated("gpu.gpu_count", "", gpus=[], nvml=nvml, pci=bus())
    assert (without.verdict, "nvidia-smi" in without.message) == (Verdict.INCOMPLETE, False)
    assert evaluated("gpu.gpu_count", "", gpus=[], nvml=nvml, pci=bus(0)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("count", "pci", "verdict", "message"),
    [
        (2, bus(0, 0), Verdict.INCOMPLETE, "platform: was not requested"),
        (1, bus(0, 0), Verdict.FAIL, "NVML counts 1 GPUs, 2 on the PCI bus, so the driver lost some; expected 2"),
        (0, bus(0, 0), Verdict.FAIL, "NVML counts 0 GPUs, 2 on the PCI bus, so the driver lost some; expected 2"),
        (1, bus(0, 0, driver="vfio-pci"), Verdict.INCOMPLETE, "platform: was not requested"),
        (
            1,
            bus(0, 0, driver=None),
            Verdict.CONCERN,
            "so the driver lost some; expected 2, unless another driver holds some",
        ),
        (0, bus(), Verdict.INCOMPLETE, "platform: was not requested"),
        (0, NOT_READ, Verdict.CONCERN, "NVML starts and counts 0 GPUs; expected at least one"),
        (1, NOT_READ, Verdict.INCOMPLETE, "platform: was not requested"),
    ],
)
def test_gpus_that_the_driver_lost_are_named_where_nobody_says_how_many_are_due(
    count: int, pci: object, verdict: Verdict, message: str
) -> None:
    gpus = beside({}, {})[:count]
    result = evaluated("gpu.gpu_count", "", gpus=gpus, pci=pci)
    assert result.verdict is verdict or verdict in {finding.verdict for finding in result.by_verdict}
    assert message in result.message


@pytest.mark.parametrize(
    ("inforom", "verdict", "message"),
    [
        ({"0000:53:00.0": True}, Verdict.PASS, ""),
        ({"0000:53:00.0": False}, Verdict.CONCERN, "GPU 0: the InfoROM is corrupted"),
        ({"0000:53:00.0": UNSUPPORTED}, Verdict.NOT_APPLICABLE, "not supported here"),
        ({"0000:53:00.0": UNKNOWN}, Verdict.INCOMPLETE, "GPU 0: the InfoROM's state could not be read"),
        ({}, Verdict.INCOMPLETE, "GPU 0: NVML did not report whether the InfoROM is intact"),
        ({"0000:64:00.0": False}, Verdict.INCOMPLETE, "the GPU at 0000:64:00.0: the InfoROM is corrupted"),
    ],
)
def test_a_corrupted_inforom_is_named_by_its_gpu(inforom: object, verdict: Verdict, message: str) -> None:
    result = evaluated("gpu.inforom", gpus=[GPU], nvml_inforom={"gpus": inforom})
    assert (result.verdict, message in result.message) == (verdict, True)
