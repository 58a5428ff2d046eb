"""A watch over real sshds of a node whose driver is the mock of NVML: each fault is said once, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.watch import ChangeKind
from tests.counterparts.nvml_mock.mock import config, environment, folder, inject, needs_mock, stub
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import Node, healthy_p5, with_file
from tests.testbed.nvml.library import LIBRARY_PATH
from tests.watch.live_faults import GPU_FAULTS, MORE_GPU_FAULTS, OfGpu, said_of
from tests.watch.watched_bed import Watched, watched

pytestmark = [needs_mock(), needs_cluster]

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


def put(node: Node, fault: OfGpu, words: str) -> None:
    command, *rest = words.split()
    inject(PROFILE, Path(node.root / "run"), " ".join([command, "--gpu", str(fault.gpu), *rest]))


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
