"""Identical training steps on GPUs: the one that differs is named, and told from other software."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.perf.given import exchanged, trained
from tests.testbed.exact import (
    Change,
    exchanged_wrong,
    gpu_without_steps,
    trained_otherwise,
    unsteady,
)

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS


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
