"""The data behind the picture of a node, and what it marks as failed."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.node import hardware, marks, xids
from tests.builders.recordings import boot, gpu, node, nvml
from tests.reports.reported import result, run_of

UP, DOWN = True, False


def device(address: str, kind: str, vendor: str = "10de", numa: int = 0) -> dict[str, Any]:
    return {"address": address, "class": kind, "vendor": vendor, "numa": numa, "driver": "efa"}


def read(*gpus: dict[str, object], **more: object) -> Node:
    evidence = node("gpu001", boot=boot(), nvml=nvml(*gpus), **more)
    return next(iter(run_of([result("gpu.ecc", "gpu001")], [evidence]).nodes.values()))


def test_links_lanes_and_the_numa_node_of_each_gpu_are_what_it_reported() -> None:
    gpus_node = read(
        gpu(0, pci="0000:53:00.0", nvlinks=[UP, DOWN], pcie_width=8, pcie_width_max=16),
        gpu(1, pci="0000:64:00.0", nvlinks=[UP, UP], pcie_width=16, pcie_width_max=16),
        pci={"devices": [device("0000:53:00.0", "030200"), device("0000:64:00.0", "030200", numa=1)]},
    )
    assert hardware(gpus_node) == (
        [[0, 0x53, 0, "10", 8, 16, 1], [1, 0x64, 1, "11", 16, 16, 1]],
        [],
        0,
    )


def test_a_gpu_that_is_lost_stands_where_no_other_is() -> None:
    with_lost = read(
        gpu(0, pci="0000:53:00.0"),
        gpu(1, pci=None, lost={"error": "GPU_IS_LOST"}),
        pci={"devices": [device("0000:53:00.0", "030200"), device("0000:64:00.0", "030200", numa=1)]},
    )
    drawn = hardware(with_lost)
    assert drawn
    assert drawn[0][1] == [1, 0x64, 1, "", -1, -1, 0]


def test_network_devices_stand_at_the_bus_in_their_names_and_switches_are_counted() -> None:
    rdma = {"devices": [{"name": "rdmap79s0", "ports": [{"state": "4: ACTIVE"}]}, {"name": "mlx5_0", "ports": []}]}
    listed = [device("0000:4f:00.0", "020000", "1d0f"), *(device(f"0000:d{at}:00.0", "068000") for at in range(4))]
    drawn = hardware(read(gpu(0), rdma=rdma, pci={"devices": listed}))
    assert drawn
    assert drawn[1:] == ([["rdmap79s0", 0x4F, 0, "ACTIVE"], ["mlx5_0", -1, -1, ""]], 4)


def test_a_gpu_and_a_switch_behind_many_virtual_functions_have_their_places() -> None:
    virtual = [device(f"0000:{at // 8 + 16:02x}:00.{at % 8}", "020000", "15b3") for at in range(128)]
    last = [device("0000:f3:00.0", "030200", numa=1), device("0000:f4:00.0", "068000", numa=1)]
    drawn = hardware(read(gpu(0, pci="0000:f3:00.0"), pci={"devices": [*virtual, *last]}))
    assert drawn
    assert (drawn[0], drawn[2]) == ([[0, 0xF3, 1, "", -1, -1, 1]], 1)


@pytest.mark.parametrize(
    ("rdma", "drawn"),
    [(["mlx5_0", "mlx5_1"], ["mlx5_0", "mlx5_1"]), ([], ["mlx5_core 01", "mlx5_core 01"])],
    ids=["with RDMA devices", "without"],
)
def test_a_network_device_is_drawn_once(rdma: list[str], drawn: list[str]) -> None:
    domains = [device(f"000{at}:01:00.0", "020700", "15b3") | {"driver": "mlx5_core"} for at in range(2)]
    of_node = read(gpu(0), rdma={"devices": [{"name": name} for name in rdma]}, pci={"devices": domains})
    _, network, _ = hardware(of_node) or ([], [], 0)
    assert [name for name, *_ in network] == drawn


@pytest.mark.parametrize("value", [None, "x", [], {}, {"gpus": "x"}, {"gpus": [None, 3]}, {"gpus": [{"nvlinks": 5}]}])
def test_whatever_a_node_reports_breaks_no_picture(value: object) -> None:
    evidence = node("gpu001", nvml=value, pci={"devices": [3, {"address": 5, "class": None}]}, rdma={"devices": "x"})
    run = run_of([result("gpu.ecc", "gpu001")], [evidence])
    (of_node,) = run.nodes.values()
    hardware(of_node)
    assert xids(of_node) == {}


def test_a_finding_marks_the_devices_that_it_names_or_the_gpus_in_its_words() -> None:
    results: list[Result] = [
        result("gpu.ecc", "gpu001", Verdict.FAIL, "14 errors", devices=("GPU 3",)),
        result("gpu.xid", "gpu001", Verdict.FAIL, "Xid 48 at 0000:64:00.0 (GPU 1, GPU-d94a): reset"),
        result("efa.state", "gpu001", Verdict.CONCERN, "down", devices=("rdmap79s0",)),
        result("gpu.power", "gpu001"),
    ]
    numbers = {entry.check: number for number, entry in enumerate(results)}
    run = run_of(results)
    assert marks(run, numbers, {"gpu001": 0})[0] == {
        "GPU 3": [[0, "F"]],
        "GPU 1": [[1, "F"]],
        "rdmap79s0": [[2, "C"]],
    }


def test_xids_are_counted_by_gpu() -> None:
    line = "NVRM: Xid (PCI:0000:53:00): 48, pid=3122, name=python3, Double Bit ECC Error"
    log = {"source": "/dev/kmsg", "lines": [[9.0, line], [10.0, line], [11.0, line.replace("48,", "79,")]]}
    evidence = node("gpu001", boot=boot(), nvml=nvml(gpu(0, pci="0000:53:00.0")), kernel_log=log, pci={"devices": []})
    (of_node,) = run_of([result("gpu.ecc", "gpu001")], [evidence]).nodes.values()
    assert xids(of_node) == {0: ["48 × 2", "79"]}
