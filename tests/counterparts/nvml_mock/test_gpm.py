"""GPM as NVIDIA's mock of NVML has it: what the sampler makes of it, tick by tick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT
from tests.counterparts.nvml_mock.mock import environment, inject, needs_mock

pytestmark = needs_mock()

SAMPLED = """
import json, time
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.gpu.collect_nvml_samples import COLUMNS, Sampler
node = Node("/")
sampler = Sampler(node)
ticks = []
for tick in range(3):
    ticks.append([dict(zip(COLUMNS, gpu)) for gpu in sampler.sample(node)["values"]])
    time.sleep(0.2)
print(json.dumps(ticks))
"""
GPM = ("sm", "tensor", "nvlink", "pcie")


def sampled(profile: str, scratch: Path, *faults: str) -> list[list[dict[str, float | None]]]:
    """What the sampler's source reports of the GPUs of that machine, at three ticks."""
    inject(profile, scratch, *faults)
    words = [sys.executable, "-c", SAMPLED]
    ran = subprocess.run(
        words, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **environment(profile, scratch)}
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("profile", ["h100", "b200", "gb200"])
def test_gpus_from_hopper_on_report_how_busy_they_were_since_the_tick_before(profile: str, tmp_path: Path) -> None:
    first, *later = sampled(profile, tmp_path, "util --gpu 3 80")
    assert {gpu[name] for gpu in first for name in GPM} == {None}
    for tick in later:
        assert (tick[3]["sm"], tick[3]["tensor"]) == (80.0, 40.0)
        assert tick[3]["pcie"] == round(2 * 0.8 * 2048 * 1.048576)  # the mock reports 2048 MiB/s each way at 100 %
        assert all((gpu[name] or 0) >= 0 for gpu in tick for name in GPM)


@pytest.mark.parametrize("profile", ["a100", "t4"])
def test_gpus_before_hopper_report_the_rest_without_it(profile: str, tmp_path: Path) -> None:
    for tick in sampled(profile, tmp_path):
        assert {gpu[name] for gpu in tick for name in GPM} == {None}
        assert all(gpu["temp"] for gpu in tick)
