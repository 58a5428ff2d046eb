"""GPUs' exchanges and identical training steps: the wrong one is named and nobody else, and no gap passes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.checks.perf.given import evaluated, ran
from tests.testbed.exact import (
    Change,
    by_processors,
    exact,
    exchanged_wrong,
    gpu_without_steps,
    rank_without_answer,
    trained_otherwise,
    unsteady,
)

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS
COLLECTIVE, STEP = "gpu.exact_collective", "gpu.exact_step"


def value(part: str, *changes: Change, **more: object) -> dict[str, Any]:
    """What a node with these changes sends."""
    return {"gpus": 8, **more, **ran(json.dumps(json.loads(exact(*changes))[part]))}


def exchanged(*changes: Change) -> Result:
    """The check's result on a node whose ranks printed this."""
    return evaluated(COLLECTIVE, "exact_collective", {"gpu001": value("collectives", *changes)})


def trained(*nodes: tuple[Change, ...], drivers: tuple[str, ...] = (), gpus: int = 8) -> Result:
    """The result on the first of these nodes, each with its changes and driver."""
    values = {
        f"gpu{number:03}": value("steps", *changes, gpus=gpus, driver=drivers[number - 1] if drivers else "580.65")
        for number, changes in enumerate(nodes, 1)
    }
    return evaluated(STEP, "exact_step", values, gpus=gpus)


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


def test_one_gpu_that_differs_is_wrong_and_named_beside_one_that_made_no_steps() -> None:
    result = trained((trained_otherwise([6], "bfloat16", other_from=5), gpu_without_steps(1, "out of memory")))
    assert result.verdict is FAIL
    assert "GPU 6, bfloat16: from step 5 on another result than most of 7 GPUs of its kind" in result.message
    assert "incomplete: GPU 1: out of memory" in result.message


def test_a_node_whose_gpus_all_differ_from_the_other_nodes_has_other_software_not_eight_sick_gpus() -> None:
    result = trained((trained_otherwise([*range(8)], "float32"),), (), ())
    assert result.verdict is CONCERN
    assert "8 of 24 GPUs of one kind, driver and library have this result, others another: differs by" in result.message
    assert trained((), (), (trained_otherwise([*range(8)], "float32"),)).verdict is PASS


def test_two_halves_name_no_gpu() -> None:
    result = trained((trained_otherwise([0, 1, 2, 3], "float32"),))
    assert result.verdict is CONCERN
    assert "GPU 0, 1, 2, 3, 4, 5, 6, 7: float32: 4 of 8 GPUs" in result.message


def test_nodes_with_another_driver_are_not_compared() -> None:
    other = (trained_otherwise([*range(8)], "float32"),)
    assert trained(other, (), (), drivers=("570.1", "580.65", "580.65")).verdict is PASS


def test_a_gpu_that_differs_from_itself_is_wrong_unless_most_do() -> None:
    result = trained((unsteady([2], "float32"),))
    assert (result.verdict, "GPU 2, float32: other results when it repeats its steps" in result.message) == (FAIL, True)
    assert "steps are repeated" not in result.message  # its software is not blamed as well
    most = trained((unsteady([0, 1, 2, 4, 5], "float32"),))
    assert most.verdict is CONCERN
    assert "float32: other results when steps are repeated, on 5 of 8 GPUs: its software or the GPU" in most.message


def test_several_gpus_of_a_node_that_differ_from_themselves_may_have_software_that_does() -> None:
    def otherwise(report: dict[str, Any]) -> None:
        trained_otherwise([2], "float32", "1111")(report)
        unsteady([2, 3], "float32")(report)

    result = trained((otherwise,))
    assert result.verdict is CONCERN
    assert "GPU 2, 3: float32: other results when steps are repeated, on 2 of 8 GPUs: its software" in result.message


def test_one_of_two_gpus_that_differs_from_itself_is_not_the_majority() -> None:
    def two(report: dict[str, Any]) -> None:
        del report["steps"]["gpus"][2:]

    result = trained((unsteady([1], "float32"), two), gpus=2)
    assert result.verdict is CONCERN
    assert "GPU 1: float32: other results when steps are repeated, on 1 of 2 GPUs" in result.message


def test_what_a_gpu_trained_before_it_was_lost_counts() -> None:
    def lost(report: dict[str, Any]) -> None:
        report["steps"]["gpus"][6]["error"] = "no answer in 150 s"

    result = trained((trained_otherwise([6], "bfloat16"), lost))
    assert result.verdict is FAIL
    assert "GPU 6, bfloat16: from step 0 on another result" in result.message
    assert "incomplete: GPU 6: no answer in 150 s" in result.message


def test_a_node_that_says_odd_things_hides_no_fault_of_another() -> None:
    def odd(report: dict[str, Any]) -> None:
        report["steps"]["gpus"][0]["name"] = "a\x1fb"
        report["steps"]["gpus"][1]["types"][0]["digests"][3] = "a\x1fb c"

    result = trained((trained_otherwise([6], "bfloat16", other_from=5),), (odd,))
    assert result.verdict is FAIL
    assert "GPU 6, bfloat16: from step 5 on another result" in result.message


def test_two_gpus_that_differ_leave_open_which_is_wrong() -> None:
    def two(report: dict[str, Any]) -> None:
        del report["steps"]["gpus"][2:]

    result = trained((trained_otherwise([1], "float32"), two))
    assert result.verdict is INCOMPLETE
    assert "GPU 0, 1: no majority among GPUs like it (float32, NVIDIA H100 80GB HBM3, 132 SMs, 580.65" in result.message


def only_one(report: dict[str, Any]) -> None:
    """The node has one GPU."""
    del report["steps"]["gpus"][1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            trained_otherwise([0], "float32"),
            "1 of 3 GPUs of one kind, driver and library have this result, most another",
        ),
        (unsteady([0], "float32"), "other results when steps are repeated, on 1 of 3 GPUs"),
    ],
)
def test_the_only_gpu_of_a_node_may_have_other_software_and_is_not_to_be_replaced(change: Change, message: str) -> None:
    result = trained((change, only_one), (only_one,), (only_one,), gpus=1)
    assert result.verdict is CONCERN
    assert f"GPU 0: float32: {message}" in result.message
    assert "its software or the GPU; expected one result" in result.message


def no_digests(report: dict[str, Any]) -> None:
    """A GPU has no digest in one type."""
    report["steps"]["gpus"][2]["types"][0]["digests"] = []


def once(report: dict[str, Any]) -> None:
    """A GPU did not repeat its steps."""
    report["steps"]["gpus"][2]["types"][0]["passes"] = 1


@pytest.mark.parametrize("garbled", [None, "x", float("nan"), []])
def test_what_is_garbled_of_one_gpu_hides_no_other(garbled: object) -> None:
    def odd(report: dict[str, Any]) -> None:
        report["steps"]["gpus"][1] = report["collectives"]["answers"][1] = garbled
        report["steps"]["gpus"][2]["types"] = garbled

    assert trained((trained_otherwise([6], "bfloat16"), odd)).verdict is FAIL
    assert exchanged(exchanged_wrong("all_to_all", 5, [0, 2, 3]), odd).verdict is FAIL


def no_types(report: dict[str, Any]) -> None:
    """A GPU reports no type."""
    report["steps"]["gpus"][2]["types"] = []


def refused(report: dict[str, Any]) -> None:
    """PyTorch takes no steps in a type."""
    report["steps"]["gpus"][2]["types"][1] = {"type": "bfloat16", "why": "not implemented"}


def no_gpus(report: dict[str, Any]) -> None:
    """No GPU answers."""
    report["steps"]["gpus"] = []


@pytest.mark.parametrize("change", [no_digests, once, no_types, refused, no_gpus])
def test_a_gpu_without_digests_is_no_pass(change: Change) -> None:
    assert trained((change,)).verdict is INCOMPLETE


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
