"""What the driver does not support on one GPU, and does on its like; and counts that disagree."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.gpu.given import GPU, UNSUPPORTED, beside, evaluated


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        ({"persistence_mode": UNSUPPORTED}, Verdict.INCOMPLETE),
        ({"persistence_mode": UNSUPPORTED, "name": "NVIDIA T400"}, Verdict.PASS),  # as one for a display
        ({"persistence_mode": UNSUPPORTED, "mig_mode": True}, Verdict.PASS),  # another mode
        ({"persistence_mode": UNSUPPORTED, "mig_mode": UNSUPPORTED}, Verdict.INCOMPLETE),
    ],
)
def test_what_the_driver_does_not_support_on_one_gpu_is_unread_where_its_like_report_it(
    one: dict[str, Any], verdict: Verdict
) -> None:
    like = {"name": "NVIDIA H100 80GB HBM3", "persistence_mode": True}
    assert evaluated("gpu.persistence_mode", gpus=beside(like | one, like, like)).verdict is verdict


@pytest.mark.parametrize(
    ("dram", "sram", "words"),
    [
        (0, 0, "uncorrected ECC errors: 5 in all, and none in DRAM or SRAM; expected 0"),
        (5, 0, "uncorrected ECC errors: 5 in DRAM; expected 0"),
        (UNSUPPORTED, UNSUPPORTED, "uncorrected ECC errors: 5 in all; expected 0"),
    ],
)
def test_uncorrected_errors_are_said_wherever_they_are_counted(dram: object, sram: object, words: str) -> None:
    counts = {"ecc_uncorrected_dram": dram, "ecc_uncorrected_sram": sram, "ecc_uncorrected_total": 5}
    result = evaluated("gpu.no_uncorrected_ecc", gpus=[{**GPU, **counts}])
    assert (result.verdict, words in result.message) == (Verdict.FAIL, True), result.message
