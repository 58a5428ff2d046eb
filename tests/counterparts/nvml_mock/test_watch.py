"""A watched node with the mock of NVML over a real sshd: each fault is reported once, and GPM at each tick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.watch import ChangeKind
from tests.builders.wheel import ROOT
from tests.counterparts.nvml_mock.mock import config, environment, folder, inject, needs_mock, stub
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import Node, healthy_p5, with_file
from tests.testbed.nvml.values import LIBRARY_PATH
from tests.watch.live_faults import GPU_FAULTS, MORE_GPU_FAULTS, OfGpu, said_of
from tests.watch.watched_bed import Watched, watched

NODE, PROFILE = "gpu001", "h100"
CONFIG, OVERRIDES, STUB = "/etc/mock-nvml.yaml", "/run/overrides.yaml", "/usr/lib/libtestbed-stub.so"
ROUNDS = [[fault for fault in faults if fault.mock] for faults in (GPU_FAULTS, MORE_GPU_FAULTS)]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    image = with_file(
        with_file(healthy_p5(NODE), CONFIG, config(PROFILE).read_text()), STUB, stub(tmp_path).read_bytes()
    )
    on_node = {"MOCK_NVML_CONFIG": CONFIG, "MOCK_NVML_OVERRIDES": OVERRIDES, "LD_PRELOAD": STUB}
    epoch = {name: value for name, value in environment(PROFILE, tmp_path).items() if name == "MOCK_NVML_EPOCH"}
    with testbed({NODE: image}) as bed:
        library = bed.nodes[NODE].root / LIBRARY_PATH.lstrip("/")
        library.unlink()
        library.write_bytes((folder() / library.name).read_bytes())
        bed.set_environment(NODE, MOCK_NVML_OVERRIDES_TTL="200ms", **on_node, **epoch)
        with watched(bed, monkeypatch) as made:
            made.until_sampled(NODE, more=5)
            yield made


def put(node: Node, fault: OfGpu, text: str) -> None:
    command, *rest = text.split()
    inject(PROFILE, Path(node.root / "run"), " ".join([command, "--gpu", str(fault.gpu), *rest]))


@needs_mock()
@needs_cluster
def test_each_fault_is_said_once_and_once_that_it_is_over(watch: Watched) -> None:
    node = watch.bed.nodes[NODE]
    for faults in ROUNDS:
        before = {fault.name: len(said_of(watch, NODE, fault)) for fault in faults}
        assert set(before.values()) == {0}
        for fault in faults:
            put(node, fault, fault.mock)
        for fault in faults:
            watch.until(lambda fault=fault: said_of(watch, NODE, fault), fault.name)  # type: ignore[misc]
        watch.until_sampled(NODE, more=5)
        for fault in faults:
            put(node, fault, fault.healed)
        for fault in faults:
            is_over = lambda fault=fault: said_of(watch, NODE, fault)[-1].kind is ChangeKind.CLOSED  # noqa: E731
            watch.until(is_over, f"the end: {fault.name}")
        watch.until_sampled(NODE, more=5)
        for fault in faults:
            kinds = [change.kind for change in said_of(watch, NODE, fault) if change.kind is not ChangeKind.WORSE]
            assert kinds == [ChangeKind.OPENED, ChangeKind.CLOSED], fault.name


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
    """The sampler's report on that machine's GPUs at three ticks."""
    inject(profile, scratch, *faults)
    command = [sys.executable, "-c", SAMPLED]
    ran = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **environment(profile, scratch)}
    )
    return json.loads(ran.stdout)


@needs_mock()
@pytest.mark.parametrize("profile", ["h100", "b200", "gb200"])
def test_gpus_from_hopper_on_report_how_busy_they_were_since_the_tick_before(profile: str, tmp_path: Path) -> None:
    first, *later = sampled(profile, tmp_path, "util --gpu 3 80")
    assert {gpu[name] for gpu in first for name in GPM} == {None}
    for tick in later:
        assert (tick[3]["sm"], tick[3]["tensor"]) == (80.0, 40.0)
        assert tick[3]["pcie"] == round(2 * 0.8 * 2048 * 1.048576)  # the mock reports 2048 MiB/s each way at 100 %
        assert all((gpu[name] or 0) >= 0 for gpu in tick for name in GPM)


@needs_mock()
@pytest.mark.parametrize("profile", ["a100", "t4"])
def test_gpus_before_hopper_report_the_rest_without_it(profile: str, tmp_path: Path) -> None:
    for tick in sampled(profile, tmp_path):
        assert {gpu[name] for gpu in tick for name in GPM} == {None}
        assert all(gpu["temp"] for gpu in tick)
