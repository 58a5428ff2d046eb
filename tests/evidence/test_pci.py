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
from tests.builders.examples import examples
from tests.testbed.sysfs import aer

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
