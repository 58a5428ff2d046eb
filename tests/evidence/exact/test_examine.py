"""Exact products under PyTorch on a CPU: clean ones pass, and each fault is described correctly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.evidence.exact.in_torch import TorchPython

pytestmark = [pytest.mark.long, pytest.mark.any_user]


def examined(python: TorchPython, case: str) -> dict[str, Any]:
    """The output of one case of the program."""
    report: dict[str, Any] = json.loads(python.printed_by("tests.evidence.exact.with_torch", case))
    return report


def test_products_without_a_fault_are_right_in_every_data_set_and_its_complement(python: TorchPython) -> None:
    by_type = examined(python, "clean")
    assert {name: report["wrong_products"] for name, report in by_type.items()} == {"float64": 0, "float32": 0}
    for report in by_type.values():
        assert report["products"] >= 2 * len(report["sets"]) > 0
        names = {name for name in report["sets"] if not name.endswith(", complement")}
        assert {f"{name}, complement" for name in names} < report["sets"].keys()
        assert report["toggled"]["left"] == [report["toggled"]["left"][1]] * 2


def test_a_bit_that_is_stuck_in_a_lane_comes_each_time_the_product_is_repeated(python: TorchPython) -> None:
    wrong = examined(python, "stuck")["float32"]["wrong"][0]
    assert (wrong["where"], wrong["bits"]) == ("lane 9 of 32 (2 columns)", [22])
    assert (wrong["elements"], wrong["again"], wrong["of"], wrong["alike"]) == (128, 8, 8, True)


def test_a_bit_that_flips_once_does_not_come_again(python: TorchPython) -> None:
    report = examined(python, "once")["float64"]
    (wrong,) = report["wrong"]
    assert (report["wrong_products"], wrong["where"], wrong["bits"], wrong["elements"]) == (
        1,
        "row 5, column 11",
        [40],
        1,
    )
    assert (wrong["again"], wrong["of"], wrong["operands_changed"]) == (0, 8, False)


def test_an_operand_that_changed_in_memory_is_told_from_a_wrong_product(python: TorchPython) -> None:
    wrong = examined(python, "operand")["float32"]["wrong"][0]
    assert wrong["operands_changed"] is True
    assert wrong["where"] == "row 7 (64 columns)"


def test_a_type_that_pytorch_lacks_is_not_passed_over(python: TorchPython) -> None:
    assert "float8_e9m9" in examined(python, "lacking")["float8_e9m9"]["why"]


def test_a_library_that_adds_up_in_fewer_bits_than_the_type_is_no_fault_of_the_device(python: TorchPython) -> None:
    assert "adds up in fewer than 40 bits" in examined(python, "short")["why"]


def test_what_was_wrong_before_a_device_broke_down_is_kept(python: TorchPython) -> None:
    by_type = examined(python, "lost")
    assert by_type["error"] == "RuntimeError: CUDA error: unspecified launch failure"
    assert (by_type["float64"]["wrong"][0]["where"], by_type["float64"]["wrong"][0]["bits"]) == (
        "row 5, column 11",
        [40],
    )


def test_what_results_are_held_against_is_made_again_where_its_checksums_disagree(python: TorchPython) -> None:
    report = examined(python, "reference")["float32"]
    wrong = report["wrong"][0]
    assert (wrong["set"], wrong["where"]) == ("float64 for wide by narrow", "row 3, column 4")
    assert (wrong["again"], wrong["of"], wrong["alike"], report["products"] > 0) == (2, 2, True, True)


@pytest.mark.parametrize("case", ["blind", "imagining"])
def test_a_device_that_compares_wrong_has_not_multiplied_right(python: TorchPython, case: str) -> None:
    report = examined(python, case)["float64"]
    assert report["wrong_products"] > 0
    assert report["wrong"][0]["where"] == "the comparison of results"


def test_a_device_that_has_the_simplest_product_wrong_is_no_matter_of_its_library(python: TorchPython) -> None:
    assert "unit" in examined(python, "nothing but zeros")


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("infinite sums", "adds up in fewer than 24 bits"),
        ("rounded operands", "rounds operands of 24 bits"),
        ("float32 as tfloat32", "multiplies float32 in place of tfloat32"),
    ],
)
def test_a_library_that_multiplies_otherwise_is_no_fault_of_the_device(
    python: TorchPython, case: str, why: str
) -> None:
    assert why in examined(python, case)["why"]
