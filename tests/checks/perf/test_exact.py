"""Exact products: any wrong bit fails, missing products are no pass, and neither hides the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.checks.perf.given import evaluated, ran
from tests.testbed.exact import Change, core_without_answer, dead, exact, on_core, on_gpu, untested, wrong

FAIL, INCOMPLETE, PASS, NA = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.PASS, Verdict.NOT_APPLICABLE
STUCK = wrong("lane 9 of 32 (128 columns)", [12], 8)


def of_gpus(*changes: Change) -> Result:
    """The check's result on a node whose GPUs printed this."""
    printed = json.dumps(json.loads(exact(*changes))["gpus"])
    return evaluated("gpu.gpu_exact", "gpu_exact", {"gpu001": {"gpus": 8, **ran(printed)}})


def of_cores(*changes: Change, **more: object) -> Result:
    """The same for its cores."""
    value: dict[str, Any] = {**json.loads(exact(*changes))["cores"], **more}
    return evaluated("host.cpu_exact", "cpu_exact", {"gpu001": value})


def test_products_that_are_all_right_pass() -> None:
    assert (of_gpus().verdict, of_cores().verdict) == (PASS, PASS)


def test_a_stuck_bit_hides_neither_another_gpu_nor_what_was_not_tested() -> None:
    lacking = untested("int8", "PyTorch 2.0.1 has no product of int8")
    result = of_gpus(on_gpu(3, "bfloat16", STUCK), on_gpu(5, "float64", STUCK), lacking, dead(7, "no answer in 210 s"))
    assert result.verdict is FAIL
    for message in (
        "GPU 3, bfloat16: 1 wrong in 30 products",
        "GPU 5, float64: 1 wrong in 574",
        "incomplete: GPU 7: no answer",
        "int8 not tested",
    ):
        assert message in result.message


def test_a_gpu_that_multiplied_nothing_is_no_pass_and_hides_no_wrong_one() -> None:
    def seven(report: dict[str, Any]) -> None:
        del report["gpus"]["gpus"][7]

    assert (of_gpus(seven).verdict, of_gpus(seven).observed) == (INCOMPLETE, "7 of 8 GPUs were measured")
    assert of_gpus(on_gpu(3, "bfloat16", STUCK), seven).verdict is FAIL


def test_a_type_that_the_gpu_lacks_is_not_asked_for_and_one_that_pytorch_lacks_is() -> None:
    def older(report: dict[str, Any]) -> None:
        for gpu in report["gpus"]["gpus"]:
            gpu["types"][5:7] = [{"type": "float8_e4m3fn", "has_none": "compute capability 8.0"}]

    assert of_gpus(older).verdict is PASS
    result = of_gpus(untested("float8_e4m3fn", "PyTorch 2.0.1 has no product of float8_e4m3fn"))
    assert result.verdict is INCOMPLETE
    assert "float8_e4m3fn not tested on GPU 0, 1" in result.message


def test_what_one_gpu_alone_does_not_multiply_is_not_put_down_to_its_library() -> None:
    """A GPU that loses a bit in every product looks like a library that rounds."""

    def one(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][3]["types"][0] = {"type": "float64", "why": "PyTorch 2.9 rounds operands of 53 bits"}

    result = of_gpus(one)
    assert result.verdict is INCOMPLETE
    assert "float64 not tested on GPU 3: PyTorch 2.9 rounds operands of 53 bits, and other GPUs of its name" in (
        result.message
    )


def test_what_a_gpu_had_wrong_before_it_was_lost_is_said_with_its_place_on_the_bus() -> None:
    def lost(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][3].update(
            error="RuntimeError: CUDA error: unspecified launch failure", address="0000:53:00.0"
        )

    result = of_gpus(on_gpu(3, "bfloat16", STUCK), lost)
    assert result.verdict is FAIL
    assert "GPU 3 (0000:53:00.0), bfloat16: 1 wrong in 30 products" in result.message
    assert "incomplete: GPU 3 (0000:53:00.0): RuntimeError: CUDA error: unspecified launch failure" in result.message


def test_products_that_are_too_small_for_all_of_a_gpu_are_no_pass() -> None:
    def small(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][3]["size"] = 512

    result = of_gpus(small)
    assert result.verdict is INCOMPLETE
    assert "GPU 3: products of 512 x 512 keep 8 of 132 SMs busy" in result.message


def test_no_more_bits_than_a_node_names_are_not_taken_for_all_that_differ() -> None:
    result = of_gpus(on_gpu(3, "float32", wrong("row 5, column 9", [*range(8)], 0)))
    assert "row 5, column 9, bits 0, 1, 2, 3, 4, 5, 6, 7 or more (wide by narrow; 0 of 8 times again)" in result.message


def everywhere(*errors: dict[str, Any]) -> tuple[Change, ...]:
    """The same type is wrong on all GPUs."""
    return tuple(on_gpu(gpu, "float16", *errors) for gpu in range(8))


def test_a_type_that_every_gpu_has_wrong_each_time_is_a_matter_of_its_library_and_no_gpu_is_named() -> None:
    result = of_gpus(*everywhere(STUCK))
    assert result.verdict is Verdict.CONCERN
    assert "float16: wrong each time on every GPU (first lane 9 of 32 (128 columns), bit 12" in result.message
    assert of_gpus(*everywhere(STUCK, wrong("row 5, column 9", [3], 0))).verdict is FAIL
    one_more = of_gpus(*everywhere(STUCK), on_gpu(2, "int8", STUCK))
    assert (one_more.verdict, "GPU 2, int8: 1 wrong" in one_more.message) == (FAIL, True)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ((STUCK, STUCK), Verdict.CONCERN),
        ((STUCK,), FAIL),  # of two nodes, one may only say so
        ((STUCK, None), FAIL),
        ((STUCK, wrong("row 5, column 9", [3], 0)), FAIL),
    ],
)
def test_a_type_that_the_only_gpu_of_every_node_has_wrong_each_time_is_a_matter_of_its_library(
    others: tuple[dict[str, Any] | None, ...], verdict: Verdict
) -> None:
    values = {}
    for number, error in enumerate((STUCK, *others), 1):
        printed = json.loads(exact(on_gpu(0, "float16", *filter(None, [error]))))["gpus"]
        values[f"gpu{number:03}"] = {"gpus": 1, **ran(json.dumps({**printed, "gpus": printed["gpus"][:1]}))}
    result = evaluated("gpu.gpu_exact", "gpu_exact", values, gpus=1)
    assert result.verdict is verdict, result.message
    if verdict is Verdict.CONCERN:
        assert "float16: wrong each time on every GPU of 3 nodes (first lane 9 of 32" in result.message


def test_a_node_whose_products_are_unread_has_none_wrong_where_all_others_have() -> None:
    values: dict[str, dict[str, Any]] = {}
    for number, errors in enumerate(((STUCK,), (STUCK,), (STUCK,), ()), 1):
        printed = json.loads(exact(on_gpu(0, "float16", *errors)))["gpus"]
        values[f"gpu{number:03}"] = {"gpus": 1, **ran(json.dumps({**printed, "gpus": printed["gpus"][:1]}))}
    report = json.loads(values["gpu004"]["output"])
    for of_type in report["gpus"][0]["types"]:
        of_type["products"] = "some"
    values["gpu004"]["output"] = json.dumps(report)
    result = evaluated("gpu.gpu_exact", "gpu_exact", values, gpus=1, name="gpu004")
    assert result.verdict is Verdict.INCOMPLETE
    assert "broke" not in result.message


@pytest.mark.parametrize("count", [0, "some", None])
def test_what_is_described_as_wrong_counts_whatever_number_is_given(count: object) -> None:
    def counted(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][3]["types"][4]["wrong_products"] = count

    assert of_gpus(on_gpu(3, "bfloat16", STUCK), counted).verdict is FAIL


def test_a_type_that_every_core_has_wrong_each_time_is_a_matter_of_its_library_and_no_core_is_named() -> None:
    def everywhere(report: dict[str, Any]) -> None:
        report["cores"]["types"][1]["wrong_cores"] = report["cores"]["types"][1]["cores"]

    result = of_cores(on_core(0, "float32", STUCK), on_core(1, "float32", STUCK), everywhere)
    assert (result.verdict, "core 0" in result.message) == (Verdict.CONCERN, False)
    assert "float32: wrong each time on every core (first lane 9 of 32" in result.message


@pytest.mark.parametrize("garbled", [None, "x", float("nan"), []])
def test_what_is_garbled_of_one_gpu_or_type_hides_no_other(garbled: object) -> None:
    def gpu(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][1] = garbled

    def of_type(report: dict[str, Any]) -> None:
        report["gpus"]["gpus"][3]["types"][0] = garbled

    for change in (gpu, of_type):
        result = of_gpus(on_gpu(3, "bfloat16", STUCK), change)
        assert (result.verdict, "incomplete: " in result.message) == (FAIL, True)


def fewer_than_none(report: dict[str, Any]) -> None:
    """GPU 2 reports fewer than zero products of float64."""
    report["gpus"]["gpus"][2]["types"][0].update(products=-5)


def nothing_verified(report: dict[str, Any]) -> None:
    """No float64 product of GPU 2 agrees with its checksums."""
    report["gpus"]["gpus"][2]["types"][0].update(products=0, sets={})


def no_types(report: dict[str, Any]) -> None:
    """GPU 2 reports no type."""
    report["gpus"]["gpus"][2]["types"] = []


def garbled(report: dict[str, Any]) -> None:
    """GPU 2's report on a type is invalid."""
    report["gpus"]["gpus"][2]["types"][0]["wrong_products"] = "some"


@pytest.mark.parametrize("change", [nothing_verified, fewer_than_none, no_types, garbled])
def test_a_type_of_which_no_product_was_verified_is_no_pass(change: Change) -> None:
    assert of_gpus(change).verdict is INCOMPLETE


def test_what_results_are_held_against_is_wrong_where_nothing_could_be_verified() -> None:
    def unverified(report: dict[str, Any]) -> None:
        nothing_verified(report)
        report["gpus"]["gpus"][2]["types"][0].update(wrong_products=2, wrong=[STUCK])

    result = of_gpus(unverified)
    assert result.verdict is FAIL
    assert "GPU 2, float64: 2 wrong in 0 products: lane 9 of 32" in result.message
    assert "incomplete: float64 not tested on GPU 2: no result could be verified" in result.message


@pytest.mark.parametrize("printed", ["", "{}", '{"gpus": []}', '{"error": "no GPU"}', "Segmentation fault"])
def test_products_that_were_not_made_prove_nothing(printed: str) -> None:
    value = {"gpus": 8, **ran(printed, -11)}
    assert evaluated("gpu.gpu_exact", "gpu_exact", {"gpu001": value}).verdict is INCOMPLETE
    assert evaluated("host.cpu_exact", "cpu_exact", {"gpu001": ran(printed, -11)}).verdict is INCOMPLETE


@pytest.mark.parametrize(("instance_type", "verdict"), [("p5.48xlarge", INCOMPLETE), ("c6i.32xlarge", NA)])
def test_whether_a_gpu_is_missing_depends_on_the_type(instance_type: str, verdict: Verdict) -> None:
    value = {"none": "no NVIDIA GPU"}
    assert evaluated("gpu.gpu_exact", "gpu_exact", {"gpu001": value}, instance_type).verdict is verdict


def test_a_core_that_is_wrong_is_named_beside_one_that_does_not_answer() -> None:
    result = of_cores(on_core(77, "float32", STUCK), core_without_answer(40, "no answer in 160 s"))
    assert result.verdict is FAIL
    assert "core 77, float32: lane 9 of 32 (128 columns), bit 12" in result.message
    assert "incomplete: 1 core (40): no answer in 160 s" in result.message


def test_without_pytorch_the_cores_are_not_proven() -> None:
    result = of_cores(without_torch="none of 3 Pythons has PyTorch")
    assert (result.verdict, result.observed) == (INCOMPLETE, "vector units not tested: none of 3 Pythons has PyTorch")


def test_a_wrong_result_of_a_core_counts_with_or_without_pytorch() -> None:
    error = {"where": "a dot product", "expected": "4", "got": "5.0", "again": 8, "of": 8}
    result = of_cores(on_core(3, "scalar", error), without_torch="no Python")
    assert result.verdict is FAIL
    assert "core 3, scalar: a dot product (8 of 8 times again)" in result.message


@pytest.mark.parametrize(
    ("of_type", "verdict", "message"),
    [
        (
            {"why": "PyTorch has none"},
            INCOMPLETE,
            "float16 not tested: PyTorch has none; expected products of every type",
        ),
        ({}, INCOMPLETE, "float16 not tested: no result could be verified"),
        ({"has_none": "a processor has no such products"}, PASS, ""),
    ],
)
def test_a_type_that_no_core_multiplied_is_no_pass_unless_processors_have_none(
    of_type: dict[str, str], verdict: Verdict, message: str
) -> None:
    def no_products(report: dict[str, Any]) -> None:
        report["cores"]["types"][3] = {"type": "float16", "products": 0, **of_type}

    result = of_cores(no_products)
    assert result.verdict is verdict
    assert message in result.message


def test_a_core_that_the_test_may_not_run_on_is_no_pass_and_hides_no_wrong_one() -> None:
    """As in a job of Slurm that was given one CPU of its node."""
    result = of_cores(cores=2, online=192)
    assert (result.verdict, result.observed) == (INCOMPLETE, "2 of 192 CPUs were tested")
    assert of_cores(on_core(77, "float32", STUCK), cores=2, online=192).verdict is FAIL
    assert of_cores(cores=192, online=192).verdict is PASS


def test_no_core_at_all_is_no_pass() -> None:
    assert of_cores(types=[], cores=0).verdict is INCOMPLETE
