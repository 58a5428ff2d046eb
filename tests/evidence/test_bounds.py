"""Lists with more devices of a kind than a machine can have yield no facts, and work does not grow quadratically."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence import field
from clusterproof.plugins.evidence.fact import (
    DISKS,
    GPUS,
    INTERFACES,
    MAX_DEVICES,
    MEMORY_CONTROLLERS,
    NEURON_DEVICES,
    NICS,
    PCI_DEVICES,
    SWITCHES,
)
from tests.builders.evaluated import result_of, results

GPU = {"vendor": "10de", "device": "2330", "class": "030200", "path": ["pci0", "p0"], "numa": 0, "function_of": ""}
LINK = {"width": 16, "width_max": 16, "speed": "32.0 GT/s PCIe", "speed_max": "32.0 GT/s PCIe", "driver": "nvidia"}


def node(**collectors: Any) -> NodeEvidence:
    return NodeEvidence("n1", {name: Collected(Status.READ, value) for name, value in collectors.items()})


def gpus(count: int) -> dict[str, Any]:
    name = {"name": "NVIDIA H100", "pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 5, "pcie_gen_max": 5}
    entries = [{"index": n, "pci": address(n), "uuid": f"GPU-{n}", "nvlinks": [1] * 2, **name} for n in range(count)]
    return {"nvml": {"init": None, "count": count, "driver": "550", "gpus": entries}}


def address(number: int) -> str:
    return f"{number >> 8:04x}:{number & 255:02x}:00.0"


def bus(count: int, **values: Any) -> dict[str, Any]:
    return {"pci": {"devices": [{**GPU, **LINK, **values, "address": address(n)} for n in range(count)]}}


def interfaces(count: int) -> dict[str, Any]:
    entry = {"driver": "mlx5_core", "mtu": 9000, "state": "up", "flags": 1, "carrier": True, "speed_mbit_s": 1000}
    return {"interfaces": {"physical": [{**entry, "name": f"eth{n}"} for n in range(count)], "names": []}}


def empty(collector: str, key: str, **more: Any) -> Callable[[int], dict[str, Any]]:
    return lambda count: {collector: {key: [{}] * count, **more}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "check", "collectors"),
    [
        (GPUS, "gpu.nvlink_active", gpus),
        (GPUS, "gpu.gpu_paths", bus),
        (NICS, "gpu.gpu_paths", lambda count: bus(count, vendor="15b3", **{"class": "020700"})),
        (PCI_DEVICES, "gpu.pcie_lanes", bus),
        (SWITCHES, "gpu.pcie_switches", empty("pci", "switches", devices=[])),
        (NICS, "network.nic_uniform", empty("rdma", "devices")),
        (INTERFACES, "network.interfaces_up", interfaces),
        (INTERFACES, "network.mtu", interfaces),
        (DISKS, "storage.nvme_state", empty("nvme", "controllers")),
        (MEMORY_CONTROLLERS, "host.mce_edac", empty("edac", "controllers")),
        (NEURON_DEVICES, "neuron.device_count", lambda count: {"neuron": {"devices": [{}] * count, "on_bus": count}}),
    ],
)
def test_more_than_a_machine_has_is_incomplete_in_words(
    kind: str, check: str, collectors: Callable[[int], dict[str, Any]]
) -> None:
    message = f"{MAX_DEVICES[kind] + 1:,} {kind} were reported; expected at most {MAX_DEVICES[kind]:,}"
    result = result_of(check, node(**collectors(MAX_DEVICES[kind] + 1)))
    assert (result.verdict, message in result.message) == (Verdict.INCOMPLETE, True), result.message
    assert "were reported; expected at most" not in result_of(check, node(**collectors(MAX_DEVICES[kind]))).message


@pytest.mark.long
@pytest.mark.parametrize(
    ("checks", "collectors", "count"),
    [
        (("gpu.nvlink_active", "gpu.pcie_link"), gpus, 30),
        ((), interfaces, 100),
        ((), lambda count: bus(count, **{"class": "020000"}), 100),
        (("gpu.pcie_lanes",), bus, 100),
    ],
    ids=["GPUs", "interfaces", "network devices", "GPUs on the bus"],
)
def test_twice_as_many_devices_are_read_twice_as_often(
    checks: Collection[str], collectors: Callable[[int], dict[str, Any]], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Counter[int]()
    read = field.Field.__get__

    def counted(self: Any, device: Any, owner: type) -> Any:
        reads[at] += device is not None
        return read(self, device, owner)

    monkeypatch.setattr(field.Field, "__get__", counted)
    for at in (count, 2 * count):
        evidence = node(**collectors(at))
        _ = [result_of(check, evidence) for check in checks] if checks else results(evidence)
    assert reads[count] > count
    assert reads[2 * count] < 2.2 * reads[count]
