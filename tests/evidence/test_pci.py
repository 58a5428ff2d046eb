"""PCIe errors are reported as the kernel totals them, and as unknown where it does not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.pci.collect import read
from clusterproof.plugins.evidence.pci.facts import Location, path_between
from tests.builders.examples import examples
from tests.testbed.sysfs import aer

VMD = ["pci10000:00", "10000:00:01.0"]  # the host bridge of an Intel VMD, and a bridge below it
GPU = {"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n"}


def output_of(root: Path, **files: str | bytes) -> dict[str, Any]:
    """What the collector reports about a GPU with these files."""
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
