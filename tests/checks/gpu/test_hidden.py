"""GPUs that a device cgroup hides from the probe are not missing: results on them are incomplete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.gpu.facts import HIDDEN
from tests.builders.evaluated import results
from tests.builders.probed import PATIENT, probe_node
from tests.testbed.healthy import nvml_values
from tests.testbed.image import Content, Device, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_p5, with_nvml

pytestmark = needs_nodes
SOMEBODY = 1000
EVERY_GPU = ("gpu.no_uncorrected_ecc", "gpu.pcie_link", "gpu.gpu_answers")


def with_gpus(counted: int, denied: int) -> NodeImage:
    """A node whose NVML counts some of eight GPUs; the device files of the last ones may not be opened."""
    files: dict[str, Content] = {
        f"/dev/nvidia{number}": Device(195, number, 0o600 if number >= 8 - denied else 0o666) for number in range(8)
    }
    image = healthy_p5("gpu001")
    return replace(image, files={**image.files, **files}, nvml=nvml_values("gpu001", counted))


def probed_by_somebody(image: NodeImage) -> NodeEvidence:
    with entered(image) as node:
        return probe_node(node, ["boot", "platform", "nvml", "pci"], PATIENT, user=SOMEBODY)


def hidden(evidence: NodeEvidence) -> Any:
    return evidence.collectors["nvml"].value["hidden"]


@pytest.mark.parametrize(
    ("counted", "denied", "data"),
    [
        (8, 0, []),
        (6, 2, ["/dev/nvidia6", "/dev/nvidia7"]),
        (6, 0, []),  # lost, not hidden
        (8, 2, []),  # NVML counts them nevertheless
    ],
)
def test_a_gpu_is_hidden_where_its_file_may_not_be_opened_and_nvml_does_not_count_it(
    counted: int, denied: int, data: list[str]
) -> None:
    assert hidden(probed_by_somebody(with_gpus(counted, denied))) == data


def test_what_is_said_of_gpus_is_then_incomplete() -> None:
    evidence = probed_by_somebody(with_gpus(6, 2))
    evaluated = results(evidence, instance_type="p5.48xlarge")
    assert evaluated["gpu.gpu_count"].verdict is Verdict.INCOMPLETE
    assert "NVML counts 6 GPUs: /dev/nvidia6, /dev/nvidia7 may not be opened" in evaluated["gpu.gpu_count"].message
    assert {evaluated[name].verdict for name in EVERY_GPU} == {Verdict.INCOMPLETE}


def test_a_fault_of_a_gpu_that_is_seen_is_a_fault_all_the_same() -> None:
    evidence = probed_by_somebody(with_nvml(with_gpus(6, 2), 2, ecc_uncorrected_dram=3))
    assert results(evidence, instance_type="p5.48xlarge")["gpu.no_uncorrected_ecc"].verdict is Verdict.FAIL


def test_gpus_that_are_lost_are_a_fault() -> None:
    evaluated = results(probed_by_somebody(with_gpus(6, 0)), instance_type="p5.48xlarge")
    assert evaluated["gpu.gpu_count"].verdict is Verdict.FAIL


def test_a_gpu_that_nvml_counts_and_the_probe_may_not_ask_is_not_lost() -> None:
    evidence = probed_by_somebody(with_nvml(healthy_p5("gpu001"), 3, handle="error NO_PERMISSION"))
    evaluated = results(evidence, instance_type="p5.48xlarge")
    assert evaluated["gpu.gpu_count"].verdict is Verdict.PASS
    assert {evaluated[name].verdict for name in EVERY_GPU} == {Verdict.INCOMPLETE}
    assert f"GPU 3: {HIDDEN}" in evaluated["gpu.gpu_answers"].message


def test_a_driver_that_the_probe_may_not_ask_is_no_driver_that_does_not_start() -> None:
    evidence = probed_by_somebody(with_nvml(healthy_p5("gpu001"), init="error NO_PERMISSION"))
    for instance_type in ("p5.48xlarge", ""):
        evaluated = results(evidence, instance_type=instance_type)
        assert {evaluated[name].verdict for name in ("gpu.gpu_count", *EVERY_GPU)} == {Verdict.INCOMPLETE}
        assert "NVML may not be asked" in evaluated["gpu.gpu_count"].message
