"""Lanes that `lspci -vv` shows of GPUs and of network devices are judged, by numbers or by names."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.faults.captured_fault import evaluated

GPU = "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
GPU_NN = "3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)"
NIC = "Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]"
NIC_NN = "Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]"
OLDER = "Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]"
TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   29C    P0             69W /  700W |       1MiB /  81559MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
"""


def lspci(title: str, *lanes: int) -> str:
    """`lspci -vv` of devices of this title, of 16 lanes each, with links of so many."""
    devices = (
        f"{bus:02x}:00.0 {title}\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed 32GT/s (ok), Width x{width} ({'ok' if width == 16 else 'downgraded'})\n"
        for bus, width in enumerate(lanes, 0x1B)
    )
    return "\n".join(devices)


def said(text: str, **files: str) -> dict[str, Result]:
    return evaluated({"lspci.txt": text, **files})


@pytest.mark.parametrize("title", [GPU, GPU_NN])
def test_a_gpu_that_has_lost_lanes_is_said_where_lspci_alone_was_captured(title: str) -> None:
    result = said(lspci(title, 16, 16, 4, 16))["gpu.pcie_lanes"]
    expect(result, Verdict.CONCERN, "0000:1d:00.0: PCIe x4; expected x16, unless its slot is narrower")


def test_it_is_said_beside_the_table_of_nvidia_smi_which_does_not_show_lanes() -> None:
    result = said(lspci(GPU, 8), **{"smi.txt": TABLE})["gpu.pcie_lanes"]
    expect(result, Verdict.CONCERN, "0000:1b:00.0: PCIe x8; expected x16")


def test_what_nvidia_smi_itself_says_of_the_lanes_is_said_once() -> None:
    query = "index, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n0, 00000000:1B:00.0, 8, 16\n"
    results = said(lspci(GPU, 8), **{"query.txt": query})
    assert results["gpu.pcie_link"].message.startswith("GPU 0: PCIe x8 on every GPU; expected x16")
    assert results["gpu.pcie_lanes"].verdict is Verdict.NOT_APPLICABLE


def test_a_gpu_with_all_its_lanes_passes() -> None:
    assert said(lspci(GPU, 16, 16))["gpu.pcie_lanes"].verdict is Verdict.PASS


@pytest.mark.parametrize("title", [NIC, NIC_NN])
def test_a_network_device_with_fewer_lanes_than_others_of_its_model_is_a_concern(title: str) -> None:
    result = said(lspci(title, 16, 16, 8, 16))["network.nic_link"]
    expect(result, Verdict.CONCERN, "PCIe x8 at 32 GT/s on 0000:1d:00.0; expected x16")


def test_models_that_only_their_names_tell_apart_are_not_compared() -> None:
    other = lspci(OLDER, 8).replace("1b:00.0", "5b:00.0")
    assert said(lspci(NIC, 16, 16, 16) + "\n" + other)["network.nic_link"].verdict is not Verdict.CONCERN
