"""All-reduces within a node: what their bandwidth is compared with, and what proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.samples import sample
from tests.checks.perf.given import A100, DISPLAY, H100, evaluated, ran
from tests.testbed.outputs import NCCL_ROWS, NCCL_SUMMARY, nccl_log

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
PASS, NA = Verdict.PASS, Verdict.NOT_APPLICABLE


def test_a_type_with_one_gpu_has_nothing_to_reduce_over() -> None:
    value = {"none": "one GPU: there is no link to reduce over"}
    assert evaluated("gpu.node_busbw", "node_busbw", {"gpu001": value}, "g6.xlarge").verdict is NA


@pytest.mark.parametrize(
    ("file", "instance_type", "verdict", "message"),
    [
        ("gcm-a100-single.txt", "p4de.24xlarge", PASS, ""),
        ("gcm-a100-single.txt", "p5.48xlarge", CONCERN, "all-reduce of 1 GiB: 231.7 GB/s; expected 440"),
        ("gcm-a100-single.txt", "p5en.48xlarge", INCOMPLETE, "expected further nodes to compare with"),
        ("dcgm-mock-fail-oob.txt", "p5.48xlarge", FAIL, "expected 0"),
        ("azure-mpi-bad-gpu-count.txt", "p5.48xlarge", INCOMPLETE, "measured nothing"),
    ],
)
def test_a_captured_log_of_nccl_tests_is_evaluated(
    file: str, instance_type: str, verdict: Verdict, message: str
) -> None:
    value = {"gpus": 8, **ran(sample(f"nccl-tests/{file}").text, 0, "all_reduce_perf")}
    result = evaluated("gpu.node_busbw", "node_busbw", {"gpu001": value}, instance_type)
    assert result.verdict is verdict, result.message
    assert message in result.message


def all_reduce(busbw: float = 450.0, status: int = 0, **log: str) -> dict[str, object]:
    """A run of all_reduce_perf over one size of 1 GiB."""
    row = f"{2**30} {2**28} float sum -1 4253.0 252.47 {busbw:.2f} 0 4255.4 252.33 473.12 0\n"
    return {"gpus": 8, **ran(nccl_log(**{"network": "", "rows": row} | log), status, "all_reduce_perf")}


@pytest.mark.parametrize(
    ("own", "others", "instance_type", "verdict", "message"),
    [
        (all_reduce(), [], "p5.48xlarge", PASS, ""),
        (all_reduce(430), [], "p5.48xlarge", CONCERN, "all-reduce of 1 GiB: 430 GB/s; expected 440 as others measured"),
        (all_reduce(), [], "p5en.48xlarge", INCOMPLETE, "450 GB/s; expected further nodes to compare with"),
        (all_reduce(), [all_reduce()], "p5en.48xlarge", INCOMPLETE, "450 GB/s; expected further nodes to compare with"),
        (all_reduce(), [all_reduce()] * 2, "p5en.48xlarge", PASS, ""),
        (all_reduce(400), [all_reduce()] * 2, "p5en.48xlarge", FAIL, "below the median of 3 nodes (450)"),
        (all_reduce(status=3), [], "p5.48xlarge", INCOMPLETE, "ended with exit status 3 after 1 GiB; expected 0"),
        (all_reduce(summary=""), [], "p5.48xlarge", INCOMPLETE, "ended with exit status 0 after 1 GiB"),
        (
            all_reduce(summary=NCCL_SUMMARY.replace("0 OK", "3 OK")),
            [],
            "p5.48xlarge",
            FAIL,
            "out of bounds values: 3 OK",
        ),
        (all_reduce(summary=NCCL_SUMMARY.replace("0 OK", "0 FAILED")), [], "p5.48xlarge", FAIL, "values: 0 FAILED"),
        (all_reduce(rows=NCCL_ROWS.replace("    0  ", "  N/A  ")), [], "p5.48xlarge", INCOMPLETE, "no check of 1 GiB"),
        (all_reduce(rows=NCCL_ROWS.replace(" 473.38", "    N/A")), [], "p5.48xlarge", INCOMPLETE, "no bandwidth or no"),
        (all_reduce(rows=""), [], "p5.48xlarge", INCOMPLETE, "measured nothing (exit status 0); expected a row"),
    ],
)
def test_an_all_reduce_within_a_node_is_evaluated_by_its_largest_message(
    own: Any, others: list[Any], instance_type: str, verdict: Verdict, message: str
) -> None:
    values = {f"gpu{number:03}": value for number, value in enumerate((own, *others), 1)}
    result = evaluated("gpu.node_busbw", "node_busbw", values, instance_type)
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_a_slow_all_reduce_whose_end_is_unknown_is_slow_nevertheless() -> None:
    others = {f"gpu00{number}": all_reduce() for number in (2, 3)}
    unended = {key: value for key, value in all_reduce(300).items() if key != "exit"}
    result = evaluated("gpu.node_busbw", "node_busbw", {"gpu001": unended, **others})
    assert result.verdict is FAIL
    assert "300 GB/s, 33 % below the median of 3 nodes" in result.message
    assert "incomplete: all_reduce_perf ended with exit status None" in result.message


def output_of(busbw: float, gpus: int = 8) -> str:
    columns = "#   size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    row = f" 8589934592 2147483648 float sum -1 32000.0 268.00 {busbw:.2f} 0 32000.0 268.00 {busbw:.2f} 0\n"
    ends = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth : {busbw}\n"
    return f"# nThread 1 nGpus {gpus} validation: 1\n{columns}{row}{ends}"


@pytest.mark.parametrize(
    ("models", "given", "busbw", "verdict"),
    [
        ([A100] * 8, 8, 235, INCOMPLETE),
        ([H100] * 8, 8, 235, FAIL),
        ([H100] * 8 + [DISPLAY], 8, 235, FAIL),  # the programs were not given the display card
        ([H100] * 8 + [DISPLAY], 8, 470, PASS),
        ([H100] * 8 + [DISPLAY], 9, 235, INCOMPLETE),
        ([H100] * 8 + [DISPLAY] * 4, 12, 20, INCOMPLETE),  # cards that compute as well
    ],
)
def test_an_all_reduce_is_compared_with_those_of_the_same_models(
    models: list[str], given: int, busbw: float, verdict: Verdict
) -> None:
    values = {name: {"gpus": 8, **ran(output_of(470))} for name in ("gpu001", "gpu002", "gpu003")}
    values["gpu004"] = {"gpus": given, **ran(output_of(busbw))}
    on_bus = {name: models if name == "gpu004" else [H100] * 8 for name in values}
    result = evaluated("gpu.node_busbw", "node_busbw", values, "", "gpu004", gpus=8, models=on_bus)
    assert result.verdict is verdict, result.message


def test_an_all_reduce_over_fewer_gpus_than_the_node_should_have_is_no_pass() -> None:
    for given, verdict in ((8, PASS), (7, INCOMPLETE)):
        value = {"gpus": given, **ran(output_of(470, gpus=7))}
        result = evaluated("gpu.node_busbw", "node_busbw", {f"gpu00{number}": value for number in (1, 2, 3, 4)})
        assert (result.verdict, "7 of 8 GPUs were measured" in result.message) == (verdict, given == 7)
