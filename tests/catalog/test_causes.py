"""The signs of causes.toml: what each is worth, and that what proves it is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import causes
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.catalog.rows import document

ROOT = Path(__file__).parents[2]
CHECKS = json.loads((ROOT / "clusterproof/plugins/evaluation/checks.json").read_text("utf-8"))
NAMES = re.findall(r'"([a-z_]+\.[a-z0-9_]+)"', json.dumps(CHECKS))


def test_every_sign_is_right() -> None:
    assert len(causes.checked_signs()) > 40


def test_no_line_of_a_job_says_hardware_by_itself() -> None:
    found = [sign.name for sign in causes.signs().values() if sign.cause == causes.HARDWARE]
    assert found
    assert {causes.signs()[name].role for name in found} == {causes.SUSPICION}


@pytest.mark.parametrize("sign", [sign for sign in causes.signs().values() if sign.proof or sign.load])
def test_what_proves_a_sign_is_a_check(sign: causes.Sign) -> None:
    for word in filter(None, [*sign.proof.split(" or "), *sign.load.split(" or ")]):
        assert [name for name in NAMES if word in name.partition(".")[2]], word


def test_evidence_is_of_checks_of_the_kernel_log() -> None:
    known = {form.check for form in log_forms().values()}
    rows = document(causes.FILE)["evidence"]
    assert {check for cause in causes.CAUSES for check in rows.get(cause, ())} <= known


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(", "watchdog"),
        ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-03-01T08:00:00 DUE TO TIME LIMIT ***", "time_limit"),
        ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-03-01T08:00:00 ***", "told_to_end"),
        ("OSError: [Errno 28] No space left on device: '/ckpt'", "no_room"),
        ("failed to extend /dev/shm/nccl-x to 9 bytes, error: No space left on device (28)", "shared_memory"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal_address"),
    ],
)
def test_the_first_sign_that_fits_counts(line: str, name: str) -> None:
    sign = causes.sign_of("output", line)
    assert sign
    assert sign.name == name
