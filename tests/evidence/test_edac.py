"""The collector's report on memory controllers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.host import collect_edac as edac
from clusterproof.plugins.evidence.host.facts_hardware import MemoryController
from tests.testbed.kernel_log import edac_controller

MODULE = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"


def output_of(root: Path, **files: str | bytes) -> list[dict[str, Any]]:
    """The collector's report with these files under the root."""
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    value = edac.read(Node(str(root)))
    assert isinstance(value, dict)
    return value["controllers"]


def test_a_machine_without_memory_controllers_has_none(tmp_path: Path) -> None:
    assert output_of(tmp_path) == []
    assert output_of(tmp_path, **{"/sys/devices/system/edac/mc/uevent": ""}) == []


def test_a_controller_is_reported_with_the_modules_that_counted_errors(tmp_path: Path) -> None:
    (controller,) = output_of(tmp_path, **edac_controller(corrected=7))
    assert controller == {
        "name": "mc0",
        "type": "Skylake Socket#0 IMC#0",
        "corrected": 7,
        "uncorrected": 0,
        "counted_s": 86_000,
        "modules": [{"name": MODULE, "corrected": 7, "uncorrected": 0}],
    }
    assert MemoryController(controller).label == f"mc0: {MODULE}"


def test_the_rows_of_older_kernels_are_reported(tmp_path: Path) -> None:
    at = "/sys/devices/system/edac/mc/mc0/csrow2"
    (controller,) = output_of(tmp_path, **edac_controller(), **{f"{at}/ce_count": "0\n", f"{at}/ue_count": "3\n"})
    assert controller["modules"] == [{"name": "csrow2", "corrected": 0, "uncorrected": 3}]


@pytest.mark.long
def test_the_last_of_very_many_controllers_and_modules_is_reported(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for number in range(100):
        at = f"/sys/devices/system/edac/mc/mc{number}"
        files |= {f"{at}/ce_count": "0\n", f"{at}/ue_count": "0\n", f"{at}/seconds_since_reset": "9\n"}
    for number in range(100):
        module = f"/sys/devices/system/edac/mc/mc99/dimm{number}"
        files |= {f"{module}/dimm_ce_count": "0\n", f"{module}/dimm_ue_count": "1\n"}
    controllers = {controller["name"]: controller for controller in output_of(tmp_path, **files)}
    assert len(controllers) == 100
    assert len(controllers["mc99"]["modules"]) == 100


@pytest.mark.parametrize("content", ["", "many", "-1", "1" * 40, "٣", b"\xff\xfe"])
def test_a_count_that_is_no_number_is_an_error_in_its_place(tmp_path: Path, content: str | bytes) -> None:
    files = edac_controller() | {"/sys/devices/system/edac/mc/mc0/ue_count": content}
    (controller,) = output_of(tmp_path, **files)
    assert controller["uncorrected"]["error"] == "EINVAL"
    with pytest.raises(Incomplete, match="uncorrected could not be read"):
        MemoryController(controller).uncorrected  # noqa: B018


def test_a_count_that_is_not_there_is_an_error_in_its_place(tmp_path: Path) -> None:
    (controller,) = output_of(tmp_path, **{"/sys/devices/system/edac/mc/mc3/ce_count": "1\n"})
    assert (controller["corrected"], controller["uncorrected"]["error"]) == (1, "ENOENT")


@pytest.mark.parametrize(("counted_s", "per_day"), [(3600, 12.0), (86_400, 12.0), (864_000, 1.2)])
def test_a_rate_is_by_the_day_and_never_more_than_was_counted_in_the_first(counted_s: int, per_day: float) -> None:
    assert MemoryController({"corrected": 12, "counted_s": counted_s}).corrected_per_day == pytest.approx(per_day)
