"""How fast GPUs copy and multiply: parsed, and compared with their peers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evidence.group import Median
from clusterproof.plugins.evidence.perf.facts import below_best, below_median, worst_first
from clusterproof.plugins.evidence.perf.gpu_speed import GPU_TO_GPU, GPU_TO_HOST, HOST_TO_GPU, GpuBandwidth, GpuGemm
from tests.builders.samples import sample
from tests.checks.perf.given import A100, DISPLAY, H100, evaluated, from_host, ran

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS
MATRIX = """\
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0       N/A    390.00    200.00
 1    391.00       N/A    202.00
 2    201.00    203.00       N/A

SUM device_to_device_memcpy_read_ce 1587.00
"""


def copies(*gpus: float, head: str = "") -> dict[str, Any]:
    """Copies from the host to these GPUs, and back at 55 GB/s."""
    return {"gpus": len(gpus), "by": "nvbandwidth", "runs": [ran(head + from_host(*gpus))]}


# Forms


def test_a_captured_output_of_nvbandwidth_is_read() -> None:
    text = sample("perftest/superbench-nvbandwidth_results.log.txt").text
    gb_per_s = GpuBandwidth({"by": "nvbandwidth", "runs": [ran(text)]}).gb_per_s
    assert gb_per_s[GPU_TO_HOST] == {"0": 295.15, "1": 312.11}
    assert gb_per_s[HOST_TO_GPU]["0"] == (369.36 + 323.36) / 2  # a row for each NUMA node


def test_the_median_of_a_gpus_copies_with_other_gpus_counts() -> None:
    gb_per_s = GpuBandwidth({"by": "nvbandwidth", "runs": [ran(MATRIX)]}).gb_per_s
    assert gb_per_s == {GPU_TO_GPU: {"0": 295.5, "1": 296.5, "2": 201.5}}


def test_a_test_that_nvbandwidth_waives_is_left_out() -> None:
    assert GpuBandwidth({"by": "nvbandwidth", "runs": [ran("Waived: \n")]}).gb_per_s == {}


@pytest.mark.parametrize(
    ("output", "status"),
    [("", 0), ("Running host_to_device_memcpy_ce.\n[CUDA_ERROR_UNKNOWN] …", 1), (MATRIX, -9), (MATRIX, None)],
)
def test_what_nvbandwidth_did_not_end_well_proves_nothing(output: str, status: int | None) -> None:
    with pytest.raises(Incomplete, match="expected a matrix of bandwidths"):
        _ = GpuBandwidth({"by": "nvbandwidth", "runs": [ran(output, status)]}).gb_per_s


@pytest.mark.parametrize(
    "output",
    [
        *("", "Traceback: CUDA out of memory", '{"error": "no GPU"}', '{"type": "torch.float16"'),
        *(f'{{"type": "torch.float16", "size": 8192, "tflops": {text}}}' for text in ("[]", "[[]]", "[[NaN]]", "[7]")),
    ],
)
def test_products_that_were_not_made_prove_nothing(output: str) -> None:
    with pytest.raises(Incomplete):
        _ = GpuGemm(ran(output)).speeds


def test_warnings_of_pytorch_before_its_answer_do_no_harm() -> None:
    output = 'UserWarning: {"x"}\n{"type": "torch.float16", "size": 8192, "tflops": [[1, 3, 2], [4, 4, 4]]}\n'
    assert GpuGemm(ran(output)).speeds == {"float16 products of 8192 × 8192": {"0": 2, "1": 4}}


# Comparisons


def test_the_worst_comparison_of_a_value_is_reported() -> None:
    below = [*below_best({"0": 80, "1": 100}, "x"), *below_median("GPU 0, x", 80, Median(160, 3, is_comparable=True))]
    (only,) = worst_first(below, 5)
    assert only.observed("GB/s", 10) == "GPU 0, x: 80 GB/s, 50 % below the median of 3 nodes (160)"
    assert "50.2 %" not in only.observed("GB/s", 50.2)
    assert worst_first(below, 60) == []


def test_two_nodes_have_no_median() -> None:
    assert list(below_median("x", 1, Median(100, 2, is_comparable=False))) == []
    assert list(below_median("x", 1, None)) == []


@pytest.mark.parametrize(
    ("speeds", "verdict"),
    [((55, 55, 53), PASS), ((55, 55, 52), CONCERN), ((55, 55, 49), FAIL), ((55, 0, 55), FAIL)],
)
def test_a_gpu_is_compared_with_the_best_of_its_node(speeds: tuple[float, ...], verdict: Verdict) -> None:
    assert evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": copies(*speeds)}, gpus=3).verdict is verdict


def test_a_gpu_that_is_slow_hides_none_that_is_a_little_slow_nor_a_copy_that_failed() -> None:
    failed = ran("CUDA_ERROR_UNKNOWN", 1, "nvbandwidth -t device_to_host_memcpy_ce")
    value = copies(55, 52, 27)
    result = evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": {**value, "runs": [*value["runs"], failed]}})
    assert result.verdict is FAIL
    lines = ("GPU 2, host to GPU", "concern: GPU 1, host to GPU", "incomplete: nvbandwidth -t device_to_host_memcpy_ce")
    assert [line for line in lines if line not in result.message] == []


@pytest.mark.parametrize(("speed", "verdict"), [(53, PASS), (52, CONCERN), (49, FAIL)])
def test_a_single_gpu_is_compared_with_those_of_other_nodes(speed: float, verdict: Verdict) -> None:
    values = {"gpu001": copies(speed), "gpu002": copies(55), "gpu003": copies(55)}
    assert evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", values, "g6.xlarge").verdict is verdict


def test_a_single_gpu_of_a_single_node_has_nothing_to_be_compared_with() -> None:
    result = evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": copies(25)}, "g6.xlarge")
    assert (result.verdict, result.observed) == (INCOMPLETE, "GPU 0, host to GPU by nvbandwidth: 25 GB/s")


@pytest.mark.parametrize(("speed", "shown"), [(30.0, "30"), (47.9996, "47.9996")])
def test_a_node_that_is_evenly_slow_and_alone_is_held_against_what_others_published(speed: float, shown: str) -> None:
    result = evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": by_torch(speed, speed)}, gpus=2)
    assert result.verdict is CONCERN
    assert f"GPU 0, host to GPU: {shown} GB/s where others reach 48" in result.message


def test_what_another_program_measured_is_not_compared() -> None:
    values = {"gpu001": copies(30), "gpu002": {**copies(55), "by": "other"}, "gpu003": {**copies(55), "by": "other"}}
    assert evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", values, "g6.xlarge").verdict is INCOMPLETE


def by_torch(*gpus: float, **more: object) -> dict[str, Any]:
    speeds = {str(gpu): [speed] for gpu, speed in enumerate(gpus)}
    output = {"gb_per_s": {HOST_TO_GPU: speeds, GPU_TO_HOST: speeds, GPU_TO_GPU: {}}, **more}
    return {"by": "PyTorch", "runs": [ran(json.dumps(output))]}


def gemm(*tflops: float, **more: object) -> dict[str, object]:
    output = {"type": "torch.float16", "size": 8192, "tflops": [[speed] for speed in tflops], **more}
    return {"gpus": len(tflops), **ran(json.dumps(output))}


@pytest.mark.parametrize(
    ("own", "others", "verdict"),
    [
        (gemm(700, 700), [], PASS),
        (gemm(700, 650), [], CONCERN),
        (gemm(700, 500), [], FAIL),
        (gemm(700), [], INCOMPLETE),  # nothing to compare with
        (gemm(700), [gemm(700)], INCOMPLETE),
        (gemm(700), [gemm(700)] * 2, PASS),
        (gemm(0, 0), [], INCOMPLETE),
    ],
)
def test_a_product_is_compared_with_those_of_other_gpus(own: Any, others: list[Any], verdict: Verdict) -> None:
    values = {f"gpu{number:03}": value for number, value in enumerate((own, *others), 1)}
    result = evaluated("gpu.gpu_gemm", "gpu_gemm", values, gpus=len(json.loads(own["output"])["tflops"]))
    assert result.verdict is verdict, result.message


MIG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


@pytest.mark.parametrize(
    ("collector", "own", "others"),
    [
        ("gpu_gemm", gemm(90, names=[MIG]), gemm(*[700] * 8)),
        ("gpu_bandwidth", by_torch(9, names=[MIG]), by_torch(*[55] * 8)),
        ("gpu_bandwidth", copies(9, head=f"Device 0: {MIG} (00000000:1b:00)\n"), copies(*[55] * 8)),
    ],
)
def test_a_part_of_a_gpu_is_not_called_slow_beside_whole_ones(collector: str, own: Any, others: Any) -> None:
    values = {"gpu001": {**own, "gpus": 8}, **dict.fromkeys(("gpu002", "gpu003", "gpu004"), others)}
    result = evaluated(f"gpu.{collector}", collector, values, models=dict.fromkeys(values, [H100] * 8))
    assert (result.verdict, MIG in result.message) == (INCOMPLETE, True), result.message


@pytest.mark.parametrize(
    ("own", "others", "verdict"),
    [
        ([A100], [H100], INCOMPLETE),
        ([A100], [A100], FAIL),
        ([], [H100], FAIL),  # it is not known to be another model
        ([A100], [], FAIL),
    ],
)
def test_a_gpu_is_compared_with_those_of_its_model(own: list[str], others: list[str], verdict: Verdict) -> None:
    values = {"gpu001": gemm(250), **{name: gemm(700) for name in ("gpu002", "gpu003", "gpu004")}}
    models = {"gpu001": own, **dict.fromkeys(("gpu002", "gpu003", "gpu004"), others)}
    result = evaluated("gpu.gpu_gemm", "gpu_gemm", values, "", gpus=1, models=models)
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize(
    ("models", "verdict"),
    [([H100, H100, DISPLAY], INCOMPLETE), ([H100, H100, H100], FAIL), ([H100, DISPLAY], FAIL), ([], FAIL)],
)
def test_a_gpu_is_compared_with_those_of_its_model_on_the_node(models: list[str], verdict: Verdict) -> None:
    result = evaluated(
        "gpu.gpu_gemm", "gpu_gemm", {"gpu001": gemm(700, 700, 60)}, "", gpus=3, models={"gpu001": models}
    )
    assert result.verdict is verdict, result.message


@pytest.mark.parametrize("measured", [4, 3])
@pytest.mark.parametrize(
    ("others", "verdict"),
    [([H100] * 4, PASS), ([A100] * 4, FAIL), ([H100] * 4 + [DISPLAY], PASS), ([A100] * 4 + [DISPLAY], FAIL)],
)
def test_a_part_of_a_mixed_node_is_compared_with_nodes_that_share_a_model_not_for_a_display(
    others: list[str], verdict: Verdict, measured: int
) -> None:
    values = {"gpu001": gemm(*[300] * measured), **{f"gpu00{at}": gemm(*[700] * measured) for at in (2, 3, 4)}}
    models = {"gpu001": [A100] * 4 + [DISPLAY], **{f"gpu00{at}": others for at in (2, 3, 4)}}
    result = evaluated("gpu.gpu_gemm", "gpu_gemm", values, "", gpus=measured, models=models)
    assert result.verdict is verdict, result.message


def test_a_gpu_with_none_of_its_model_to_compare_with_is_incomplete_beside_others() -> None:
    models = {"gpu001": [H100, H100, H100, A100]}
    result = evaluated("gpu.gpu_gemm", "gpu_gemm", {"gpu001": gemm(700, 700, 700, 25)}, "", gpus=4, models=models)
    assert result.verdict is INCOMPLETE
    assert "GPU 3, float16 products of 8192 × 8192: 25 TFLOP/s; expected further GPUs or nodes" in result.message
    assert "GPU 0" not in result.message


def test_a_floor_of_the_type_does_without_others_to_compare_with() -> None:
    assert evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": copies(55)}, gpus=1).verdict is PASS


# All GPUs


def between(*, is_waived: bool = False) -> dict[str, Any]:
    """Copies from the host, and between GPUs, which nvbandwidth waives where CUDA gives no GPU access to another."""
    made = copies(*[55.0] * 3)
    waived = "Running device_to_device_memcpy_read_ce.\nWaived: \n"
    return {**made, "runs": [*made["runs"], ran(waived if is_waived else MATRIX.replace("20", "39"))]}


@pytest.mark.parametrize(("others", "verdict"), [(False, INCOMPLETE), (True, PASS)])
def test_copies_that_are_waived_on_one_node_alone_are_no_pass(others: bool, verdict: Verdict) -> None:
    beside = {f"gpu00{number}": between(is_waived=others) for number in (2, 3, 4)}
    result = evaluated("gpu.gpu_bandwidth", "gpu_bandwidth", {"gpu001": between(is_waived=True), **beside}, gpus=3)
    seen = "GPU to GPU by nvbandwidth waived; expected copies as on 3 nodes" if not others else ""
    assert (result.verdict, result.message) == (verdict, seen)


BOUND = ("nvidia",) * 8


@pytest.mark.parametrize(
    ("given", "measured", "on_bus", "due"),
    [
        (8, 8, BOUND, 0),
        (8, 7, BOUND, 8),  # a GPU that the programs do not see
        (8, 1, (), 8),
        (None, 7, BOUND, 8),
        (7, 7, BOUND[:7], 8),  # a GPU that fell off the bus
        (7, 7, (*BOUND[:7], ""), 8),  # one that the driver did not take
        (7, 7, (), 8),
        (4, 4, BOUND, 0),  # a container that was given four GPUs
        (4, 3, BOUND, 4),
    ],
)
@pytest.mark.parametrize(
    ("check", "values", "what"),
    [
        ("gpu_gemm", gemm, ""),
        ("gpu_bandwidth", copies, "host to GPU by nvbandwidth: "),
        ("gpu_bandwidth", by_torch, "host to GPU by PyTorch: "),
    ],
)
def test_a_gpu_that_should_be_there_and_was_not_measured_is_no_pass(
    check: str, values: Any, what: str, given: int | None, measured: int, on_bus: tuple[str, ...], due: int
) -> None:
    value = {**values(*[55.0] * measured), "gpus": given}
    others = {f"gpu00{number}": {**values(*[55.0] * 8), "gpus": 8} for number in (2, 3, 4)}
    result = evaluated(f"gpu.{check}", check, {"gpu001": value, **others}, on_bus=on_bus)
    message = f"{what}{measured} of {due} GPUs were measured; expected all of them" if due else ""
    assert (result.verdict, result.message.partition("\n")[0]) == (INCOMPLETE if due else PASS, message)


def test_a_gpu_that_is_slow_is_named_beside_one_that_was_not_measured() -> None:
    result = evaluated("gpu.gpu_gemm", "gpu_gemm", {"gpu001": gemm(700, 700, 500)}, gpus=4)
    assert result.verdict is FAIL
    assert "incomplete: 3 of 4 GPUs were measured" in result.message
