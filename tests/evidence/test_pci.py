"""PCIe errors as totalled by the kernel, and unknown if it does not; lanes in `lspci -vv`, as numbers or names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pci.collect import read
from clusterproof.plugins.evidence.pci.facts import Location, path_between
from tests.builders.evaluated import expect
from tests.builders.examples import examples
from tests.faults.captured_fault import evaluated
from tests.testbed.sysfs import aer

VMD = ["pci10000:00", "10000:00:01.0"]  # the host bridge of an Intel VMD, and a bridge below it
GPU = {"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n"}


def output_of(root: Path, **files: str | bytes) -> dict[str, Any]:
    """The collector's report on a GPU with these files."""
    folder = root / "sys/bus/pci/devices/0000:53:00.0"
    folder.mkdir(parents=True)
    for name, content in {**GPU, **files}.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    value: Any = read(Node(str(root)))
    (device,) = value["devices"]
    return dict(device)


def test_the_totals_of_advanced_error_reporting_are_reported(tmp_path: Path) -> None:
    assert output_of(tmp_path, **aer(correctable=481, nonfatal=3, fatal=1))["errors"] == {
        "correctable": 481,
        "nonfatal": 3,
        "fatal": 1,
    }


def test_a_kernel_that_does_not_report_errors_has_no_totals(tmp_path: Path) -> None:
    assert output_of(tmp_path)["errors"] == {"correctable": None, "nonfatal": None, "fatal": None}


@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "RxErr 0\nBadTLP 0\n",
        "TOTAL_ERR_FATAL\n",
        "TOTAL_ERR_FATAL -1\n",
        "TOTAL_ERR_FATAL 0x1\n",
        "TOTAL_ERR_FATAL ١\n",
        "TOTAL_ERR_FATAL " + "9" * 5000,
        b"\xff\xfe TOTAL_ERR_FATAL\n",
    ],
)
def test_a_file_without_its_total_is_an_error_in_its_place(tmp_path: Path, content: str | bytes) -> None:
    errors = output_of(tmp_path, aer_dev_fatal=content)["errors"]
    assert errors["fatal"]["error"] == "NOT_UNDERSTOOD"
    assert errors["correctable"] is None


def test_a_device_shows_whether_it_is_suspended(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:53:00.0/power"
    folder.mkdir(parents=True)
    (folder / "runtime_status").write_text("suspended\n")
    for name, content in GPU.items():
        (folder.parent / name).write_text(content)
    value: Any = read(Node(str(tmp_path)))
    assert value["devices"][0]["power"] == "suspended"


def test_a_device_has_the_bridges_above_it_and_the_switches_are_reported(tmp_path: Path) -> None:
    tree = Path("devices/pci0000:44/0000:44:01.0/0000:45:00.0/0000:46:00.0/0000:53:00.0")
    sys = tmp_path / "sys"
    (sys / tree).mkdir(parents=True)
    (sys / "bus/pci/devices").mkdir(parents=True)
    for folder in [tree, *tree.parents][:4]:
        (sys / "bus/pci/devices" / folder.name).symlink_to(Path("../../..") / folder)
        for name, content in {**GPU, "class": GPU["class"] if folder == tree else "0x060400\n"}.items():
            (sys / folder / name).write_text(content.replace("10de", "10de" if folder == tree else "1000"))
        (sys / folder / "max_link_width").write_text("16\n")
    (sys / tree.parents[1] / "current_link_width").write_text("8\n")
    value: Any = read(Node(str(tmp_path)))
    assert value["devices"][0]["path"] == ["pci0000:44", "0000:44:01.0", "0000:45:00.0", "0000:46:00.0"]
    (switch,) = value["switches"]
    assert (switch["address"], switch["vendor"], switch["path"]) == (
        "0000:45:00.0",
        "1000",
        ["pci0000:44", "0000:44:01.0"],
    )
    assert (switch["width"], switch["width_max"], switch["port_width_max"]) == (8, 16, 16)


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("../../../devices/pci0000:00/0000:53:00.0", ["pci0000:00"]),
        ("../../../devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/0000:53:00.0", VMD),
        ("../../../devices/platform/soc/1c08000.pcie/pci0002:00/0000:53:00.0", ["pci0002:00"]),
        ("../../../devices/elsewhere/0000:53:00.0", []),
    ],
)
def test_a_path_begins_at_the_host_bridge(tmp_path: Path, link: str, path: list[str]) -> None:
    folder = tmp_path / "sys/bus/pci/devices"
    folder.mkdir(parents=True)
    (folder / "0000:53:00.0").symlink_to(link)
    device = folder / link
    device.mkdir(parents=True)
    for name, content in GPU.items():
        (device / name).write_text(content)
    value: Any = read(Node(str(tmp_path)))
    assert (value["devices"][0]["path"], value["switches"]) == (path, [])


def at(*path: str, numa: int = 0) -> Location:
    return Location("0000:01:00.0", frozenset(path), numa)


@pytest.mark.parametrize(
    ("one", "other", "way"),
    [
        (at("pci0", "root", "up", "d0"), at("pci0", "root", "up", "d1"), "PIX"),  # one switch
        (at("pci0", "root"), at("pci0", "root"), "PIX"),  # two functions of a card
        (at("pci0", "root", "up", "d0"), at("pci0", "root", "up", "d1", "up1", "d2"), "PXB"),
        (at("pci0", "root", "up", "d0", "u1", "e1"), at("pci0", "root", "up", "d1", "u2", "e2"), "PXB"),
        (at("pci0", "root0"), at("pci0", "root1"), "PHB"),
        (at("pci0"), at("pci0"), "PHB"),  # as virtual machines show their devices
        (at("pci0", "root0"), at("pci1", "root1"), "NODE"),
        (at("pci0", "root0"), at("pci1", "root1", numa=1), "SYS"),
        (at("pci0", "root0", numa=-1), at("pci1", "root1"), None),
        (at("pci0", "root0", numa=-1), at("pci1", "root1", numa=-1), None),
    ],
)
def test_what_lies_between_two_devices_is_called_as_nvidia_smi_calls_it(
    one: Location, other: Location, way: str | None
) -> None:
    assert path_between(one, other) == path_between(other, one) == way


def test_a_file_that_cannot_be_read_is_an_error_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:53:00.0"
    (folder / "aer_dev_fatal").mkdir(parents=True)
    for name, content in GPU.items():
        (folder / name).write_text(content)
    value: Any = read(Node(str(tmp_path)))
    assert value["devices"][0]["errors"]["fatal"]["error"] == "EISDIR"


@examples(50)
@given(content=st.binary(max_size=200))
def test_no_file_breaks_the_collector(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        fatal = output_of(Path(root), aer_dev_fatal=content)["errors"]["fatal"]
    assert fatal is None or isinstance(fatal, int) or fatal["error"] == "NOT_UNDERSTOOD"


SHOWN_GPU = "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
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
    """`lspci -vv` of devices with this title and 16 lanes each, with links of these widths."""
    devices = (
        f"{bus:02x}:00.0 {title}\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed 32GT/s (ok), Width x{width} ({'ok' if width == 16 else 'downgraded'})\n"
        for bus, width in enumerate(lanes, 0x1B)
    )
    return "\n".join(devices)


def results_of(text: str, **files: str) -> dict[str, Result]:
    return evaluated({"lspci.txt": text, **files})


@pytest.mark.parametrize("title", [SHOWN_GPU, GPU_NN])
def test_a_gpu_that_has_lost_lanes_is_said_where_lspci_alone_was_captured(title: str) -> None:
    result = results_of(lspci(title, 16, 16, 4, 16))["gpu.pcie_lanes"]
    expect(result, Verdict.CONCERN, "0000:1d:00.0: PCIe x4; expected x16, unless its slot is narrower")


def test_it_is_said_by_an_lspci_that_does_not_know_the_speed() -> None:
    text = lspci(SHOWN_GPU, 16, 8).replace("Speed 32GT/s", "Speed unknown")
    expect(results_of(text)["gpu.pcie_lanes"], Verdict.CONCERN, "0000:1c:00.0: PCIe x8; expected x16")


def test_it_is_said_beside_the_table_of_nvidia_smi_which_does_not_show_lanes() -> None:
    result = results_of(lspci(SHOWN_GPU, 8), **{"smi.txt": TABLE})["gpu.pcie_lanes"]
    expect(result, Verdict.CONCERN, "0000:1b:00.0: PCIe x8; expected x16")


def test_what_nvidia_smi_itself_says_of_the_lanes_is_said_once() -> None:
    query = "index, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n0, 00000000:1B:00.0, 8, 16\n"
    results = results_of(lspci(SHOWN_GPU, 8), **{"query.txt": query})
    assert results["gpu.pcie_link"].message.startswith("GPU 0: PCIe x8 on every GPU; expected x16")
    assert results["gpu.pcie_lanes"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.long
def test_a_gpu_with_all_its_lanes_passes() -> None:
    assert results_of(lspci(SHOWN_GPU, 16, 16))["gpu.pcie_lanes"].verdict is Verdict.PASS


@pytest.mark.parametrize("title", [NIC, NIC_NN])
def test_a_network_device_with_fewer_lanes_than_others_of_its_model_is_a_concern(title: str) -> None:
    result = results_of(lspci(title, 16, 16, 8, 16))["network.nic_link"]
    expect(result, Verdict.CONCERN, "PCIe x8 at 32 GT/s on 0000:1d:00.0; expected x16")


def test_models_that_only_their_names_tell_apart_are_not_compared() -> None:
    other = lspci(OLDER, 8).replace("1b:00.0", "5b:00.0")
    assert results_of(lspci(NIC, 16, 16, 16) + "\n" + other)["network.nic_link"].verdict is not Verdict.CONCERN
