"""GPUs' exchanges and identical training steps: the wrong one is named and nobody else, and no gap passes."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.perf.given import COLLECTIVE, STEP, evaluated, exchanged, ran, trained
from tests.testbed.exact import (
    Change,
    by_processors,
    exchanged_wrong,
    rank_without_answer,
    trained_otherwise,
    unsteady,
)

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS


def test_collectives_and_steps_that_are_all_right_pass() -> None:
    assert (exchanged().verdict, trained(()).verdict, trained((), ()).verdict) == (PASS, PASS, PASS)


def test_a_wrong_gpu_hides_neither_a_rank_that_is_silent_nor_an_operation_that_was_not_made() -> None:
    def refused(report: dict[str, Any]) -> None:
        report["collectives"]["answers"][4]["operations"][0].update(why="Invalid scalar type", rounds=0)

    wrong = exchanged_wrong("all_to_all", 5, [0, 1, 2, 4, 6, 7])
    result = exchanged(wrong, rank_without_answer(3, "no answer in 150 s"), refused)
    assert result.verdict is FAIL
    for message in (
        "6 wrong in all-to-all of int32 (first rank 0 from rank 5: 12 elements from 512 on, bit 9): GPU 5; expected",
        "incomplete: GPU 3: no answer in 150 s",
        "all-reduce of float64 not tested on GPU 4: Invalid scalar type",
    ):
        assert message in result.message


def test_what_processors_exchanged_proves_no_gpu() -> None:
    result = exchanged(by_processors)
    assert result.verdict is INCOMPLETE
    assert "exchanged over gloo, not over NCCL: no GPU took part; expected nccl" in result.message


def test_ranks_that_were_not_started_say_why_in_one_line() -> None:
    why = "PyTorch does not count its GPUs: torch.cuda.is_available() is False"
    result = exchanged(*(rank_without_answer(rank, why) for rank in range(8)))
    assert result.verdict is INCOMPLETE
    assert f"GPU 0, 1, 2, 3, 4, 5, 6, 7: {why}; expected" in result.message


def test_what_a_rank_saw_before_it_hung_is_said() -> None:
    def hung(report: dict[str, Any]) -> None:
        for answer in report["collectives"]["answers"]:
            answer["error"] = "no answer in 150 s"

    result = exchanged(exchanged_wrong("all_to_all", 5, [0, 1, 2, 3, 4, 6, 7]), hung)
    assert result.verdict is FAIL
    assert "GPU 5; expected every bit right" in result.message
    assert "GPU 0, 1, 2, 3, 4, 5, 6, 7: no answer in 150 s" in result.message


def test_a_wrong_gpu_is_named_with_its_place_on_the_bus() -> None:
    """Its number is another in a job that was given some of the GPUs, or once one before it is lost."""

    def placed(report: dict[str, Any]) -> None:
        for number in range(8):
            address = f"0000:{number + 0x50:02x}:00.0"
            report["steps"]["gpus"][number]["address"] = report["collectives"]["answers"][number]["address"] = address

    result = exchanged(exchanged_wrong("all_to_all", 5, [0, 1, 2, 3, 4, 6, 7]), placed)
    assert "bit 9): GPU 5 (0000:55:00.0); expected every bit right" in result.message
    result = exchanged(exchanged_wrong("all_to_all", 1, [6], (0, 4, 9)), placed)
    assert "the link between GPU 1 (0000:51:00.0) and GPU 6 (0000:56:00.0); expected" in result.message
    result = trained((trained_otherwise([6], "bfloat16", other_from=5), unsteady([2], "float32"), placed))
    assert "GPU 6 (0000:56:00.0), bfloat16: from step 5 on another result" in result.message
    assert "GPU 2 (0000:52:00.0), float32: other results when it repeats its steps" in result.message


def test_no_more_bits_of_a_block_than_a_rank_names_are_not_taken_for_all_that_differ() -> None:
    def many(report: dict[str, Any]) -> None:
        for answer in report["collectives"]["answers"]:
            for block in (block for operation in answer["operations"] for block in operation["wrong"]):
                block["bits"] = [*range(8)]

    result = exchanged(exchanged_wrong("all_to_all", 5, [0, 1, 2, 3, 4, 6, 7]), many)
    assert "12 elements from 512 on, bits 0, 1, 2, 3, 4, 5, 6, 7 or more): GPU 5;" in result.message


def nothing_answered(report: dict[str, Any]) -> None:
    report["collectives"]["answers"] = []


def half_answered(report: dict[str, Any]) -> None:
    del report["collectives"]["answers"][4:]


def no_operations(report: dict[str, Any]) -> None:
    report["collectives"]["answers"][2]["operations"] = []


def no_rounds(report: dict[str, Any]) -> None:
    report["collectives"]["answers"][2]["operations"][3]["rounds"] = 0


def fewer_rounds_than_none(report: dict[str, Any]) -> None:
    report["collectives"]["answers"][2]["operations"][3]["rounds"] = -1


def garbled(report: dict[str, Any]) -> None:
    """A rank's report is invalid."""
    report["collectives"]["answers"][2]["operations"][3]["wrong"] = "none"


@pytest.mark.parametrize(
    "change", [nothing_answered, half_answered, no_operations, no_rounds, fewer_rounds_than_none, garbled]
)
def test_an_operation_that_was_not_made_everywhere_is_no_pass(change: Change) -> None:
    assert exchanged(change).verdict is INCOMPLETE


def test_ranks_that_nobody_has_are_named_by_nobody() -> None:
    def odd(report: dict[str, Any]) -> None:
        report["collectives"].update(ranks=10**20, of_each_node=0, node=10**20)

    result = exchanged(exchanged_wrong("all_to_all", 10**20, [1, 2]), odd)
    assert result.verdict is FAIL
    assert "whose fault it is cannot be told" in result.message


@pytest.mark.parametrize("printed", ["", "{}", '{"gpus": []}', '{"error": "no GPU"}', "Segmentation fault"])
@pytest.mark.parametrize(("check", "collector"), [(COLLECTIVE, "exact_collective"), (STEP, "exact_step")])
def test_what_was_not_made_proves_nothing(check: str, collector: str, printed: str) -> None:
    assert evaluated(check, collector, {"gpu001": {"gpus": 8, **ran(printed, -11)}}).verdict is INCOMPLETE


@pytest.mark.parametrize(("check", "collector"), [(COLLECTIVE, "exact_collective"), (STEP, "exact_step")])
@pytest.mark.parametrize(
    ("instance_type", "verdict"), [("p5.48xlarge", INCOMPLETE), ("c6i.32xlarge", Verdict.NOT_APPLICABLE)]
)
def test_the_type_decides_whether_a_gpu_is_expected(
    check: str, collector: str, instance_type: str, verdict: Verdict
) -> None:
    assert evaluated(check, collector, {"gpu001": {"none": "no NVIDIA GPU"}}, instance_type).verdict is verdict


def of_seven(report: dict[str, Any]) -> None:
    """The output lacks a GPU."""
    del report["steps"]["gpus"][7], report["collectives"]["answers"][7]
    report["collectives"].update(ranks=7, of_each_node=7)


def test_a_gpu_that_took_no_part_is_no_pass() -> None:
    for result in (exchanged(of_seven), trained((of_seven,), ())):
        assert (result.verdict, result.observed) == (INCOMPLETE, "7 of 8 GPUs were measured")
