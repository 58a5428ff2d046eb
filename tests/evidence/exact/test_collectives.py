"""Real gloo collectives on loopback: clean ones are right, and a fault in one rank is identified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.evidence.exact.facts_collective import Blame, NodeResult
from tests.evidence.exact.in_torch import TorchPython
from tests.tiers import each_with_some

pytestmark = [pytest.mark.long, pytest.mark.any_user]

ONCE = "which cannot be told yet"


def collectives(
    python: TorchPython, ranks: int, case: str, budget_s: float = 0.0, within_s: float = 240.0
) -> dict[str, Any]:
    """The answers of one node's ranks."""
    program = "tests.evidence.exact.collectives_with_torch"
    report: dict[str, Any] = json.loads(python.printed_by(program, str(ranks), case, str(budget_s), str(within_s)))
    return report


def description_of(report: dict[str, Any]) -> str:
    """The conclusion from them."""
    return Blame.of([NodeResult(report)]).description


@pytest.mark.parametrize("ranks", [4, 8])
def test_clean_collectives_are_right_to_the_last_bit_on_every_rank(python: TorchPython, ranks: int) -> None:
    report = collectives(python, ranks, "clean", budget_s=1.0)
    assert [answer["rank"] for answer in report["answers"]] == [*range(ranks)]
    made = {
        (operation["operation"], operation["type"])
        for operation in report["answers"][0]["operations"]
        if "why" not in operation
    }
    names = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"}
    assert {name for name, _ in made} == names
    assert ("all_reduce", "int8") in made
    operations = [operation for answer in report["answers"] for operation in answer["operations"]]
    rounds = {operation["rounds"] for operation in operations if "why" not in operation}
    assert len(rounds) == 1  # all ranks made the same number
    assert description_of(report) == ""


FAULTS = [
    ("an element that one rank sends to each", "bit 9): GPU 2"),
    ("an element that one rank receives of each", "(first rank 2 from rank 0: 1 element from 17 on, bit 9): GPU 2"),
    ("an element of what is gathered", "wrong in all-gather of int32 (first rank 0 from rank 2: "),
    ("a block that one rank does not receive", "from 0 on, never written): the link between GPU 1 and GPU 2 or"),
    ("a block that one rank sends twice", "elements from 0 on, as meant for rank {last}): "),
    ("blocks that one rank sends in another order", "as meant for rank {last}): GPU 2"),
    ("a part that is not added", "100 elements from 100 on, without that of rank 2): GPU 2"),
    ("a part that is added twice", "100 elements from 100 on, counting twice that of rank 2): GPU 2"),
    ("an element of a sum", "whose fault it is cannot be told"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "ranks"), each_with_some(FAULTS, [4, 8]), ids=lambda value: value[0] if isinstance(value, tuple) else None
)
def test_a_fault_in_one_rank_is_found_as_what_it_is(python: TorchPython, ranks: int, fault: tuple[str, str]) -> None:
    case, message = fault
    description = description_of(collectives(python, ranks, case))
    assert message.format(last=ranks - 1) in description


def test_an_element_that_is_wrong_again_and_again_between_two_ranks_is_their_link(python: TorchPython) -> None:
    case = "an element that one rank sends to another"
    once = description_of(collectives(python, 4, case))
    assert "1 wrong in all-to-all of int32" in once
    assert once.endswith(ONCE)
    report = collectives(python, 4, case, budget_s=2.0)
    if report["answers"][0]["rounds"] <= 3:  # on a busy machine
        report = collectives(python, 4, case, budget_s=60.0)
    assert report["answers"][0]["rounds"] > 3
    assert description_of(report).endswith(": the link between GPU 1 and GPU 2")


def test_what_is_wrong_everywhere_again_and_again_is_said_in_few_words(python: TorchPython) -> None:
    report = collectives(python, 4, "all that each rank receives", budget_s=4.0)
    for answer in report["answers"]:
        described = [len(operation["wrong"]) for operation in answer["operations"] if "why" not in operation]
        assert min(described) >= 1
        assert sum(described) <= 44 + len(described)
    assert 8 * len(json.dumps(report["answers"][0])) < 64 * 1024, "a node of eight GPUs is read whole"


def test_a_rank_that_ends_in_the_middle_is_named_and_the_others_end_too(python: TorchPython) -> None:
    answers = collectives(python, 4, "a rank that dies")["answers"]
    assert answers[2]["error"] == "SystemExit: 3"
    assert all("error" in answer for answer in answers)


def test_what_ranks_saw_before_another_died_is_kept(python: TorchPython) -> None:
    report = collectives(python, 4, "a rank that dies after a wrong sum")
    assert report["answers"][2]["error"] == "SystemExit: 3"
    assert all("error" in answer for answer in report["answers"])
    assert "100 elements from 100 on, without that of rank 2): GPU 2" in description_of(report)


def test_ranks_that_hang_are_given_up_before_the_whole_time_is_over(python: TorchPython) -> None:
    answers = collectives(python, 4, "a rank that hangs", within_s=8.0)["answers"]
    assert [answer["error"] for answer in answers] == ["no answer in 3 s"] * 4


@pytest.mark.parametrize(
    ("case", "within_s", "why"),
    [
        ("no GPU", 240.0, "PyTorch does not count its GPUs: AssertionError: Torch not compiled with CUDA enabled"),
        ("GPUs that are not counted", 8.0, "PyTorch does not count its GPUs: no answer in 3 s"),
        ("fewer GPUs", 240.0, "PyTorch finds 2 GPUs; expected 4"),
    ],
)
def test_without_a_gpu_for_each_rank_nothing_is_exchanged(
    python: TorchPython, case: str, within_s: float, why: str
) -> None:
    report = collectives(python, 4, case, within_s=within_s)
    assert (report["backend"], report["answers"]) == ("nccl", [{"error": why}] * 4)


def test_no_result_is_compared_of_a_collective_that_nccl_has_aborted(
    python: TorchPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")  # as sites set it
    assert [answer.get("error") for answer in collectives(python, 2, "how ranks end")["answers"]] == [None, None]


def test_ranks_of_one_node_meet_in_a_folder_of_their_own_that_does_not_stay(
    python: TorchPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answers = collectives(python, 2, "where ranks meet")["answers"]
    assert [answer.get("error") for answer in answers] == [None, None]
    assert [*tmp_path.iterdir()] == []
