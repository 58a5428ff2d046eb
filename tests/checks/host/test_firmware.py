"""Firmware of machines, disks and GPUs, compared with others of their model."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.builders.recordings import gpu, nvml
from tests.checks.host.given import EC2, evaluated

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


def disk(model: str, firmware: str) -> dict[str, Any]:
    return {"controllers": [{"name": "nvme0", "model": model, "firmware": firmware, "state": "live", "disks": []}]}


@pytest.mark.parametrize(
    ("model", "verdict", "message"),
    [
        ("SAMSUNG PM1733", CONCERN, "firmware of SAMSUNG PM1733 2; expected 1 as on 2 of 3 nodes"),
        ("Amazon Elastic Block Store", PASS, ""),
    ],
)
def test_firmware_is_compared_of_disks_and_not_of_what_a_service_attaches(
    model: str, verdict: Verdict, message: str
) -> None:
    gpu = {"index": 0, "lost": None, "inforom": None}
    bios: dict[str, Any] = {
        "platform": EC2 | {"board": "b", "bios": "1.0"},
        "nvml": {"gpus": [gpu], "count": 1},
    }
    others = [bios | {"nvme": disk(model, "1")} for _ in range(2)]
    expect(evaluated("firmware_uniform", *others, **bios, nvme=disk(model, "2")), verdict, message)


@pytest.mark.parametrize("unnamed", [0, 2, 7])
def test_a_gpu_without_a_name_hides_no_other_with_another_inforom(unnamed: int) -> None:
    own = {"name": "NVIDIA H100 80GB HBM3", "inforom": "G520.0200.00.05"}
    gpus = [gpu(number, **own) for number in range(8)]
    gpus[5]["inforom"] = "G520.0200.00.04"
    gpus[unnamed]["name"] = {"error": "UNKNOWN"}
    result = evaluated("firmware_uniform", nvml=nvml(*gpus))
    message = "G520.0200.00.04 on GPU 5; expected G520.0200.00.05, as on 6 others of the node"
    assert [
        finding.message for finding in result.by_verdict if finding.verdict is CONCERN and message in finding.message
    ]
