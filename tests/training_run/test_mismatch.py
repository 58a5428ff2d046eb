"""Ranks that call different collectives are told apart from those with legitimately different sizes, or late ones."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.training_run.builders import result_of
from tests.training_run.recorded import Sized, calling, differing, dump

USUAL: Sized = ("all_reduce", (513_000,))


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("all_reduce", "fail"),
        ("broadcast", "fail"),
        ("_reduce_oop", "fail"),
        ("_allgather_base", "fail"),
        ("_reduce_scatter_base", "fail"),
        ("all_gather_into_tensor_coalesced", "fail"),
        ("all_to_all", "pass"),
        ("gather", "pass"),
        ("scatter", "pass"),
        ("all_reduce_sparse", "pass"),
        ("all_reduce_barrier", "pass"),
    ],
)
def test_sizes_must_agree_only_where_every_rank_gives_as_much(name: str, verdict: str) -> None:
    run = differing([calling(rank, [USUAL, (name, (100 + rank // 3,))], ended=1) for rank in range(4)])
    assert result_of("run.collectives_match", run).verdict.value == verdict


def test_the_function_of_pytorch_that_called_an_operation_does_not_matter() -> None:
    names = ("all_gather", "_allgather_base", "_all_gather_base", "all_gather")
    run = differing([calling(rank, [(name, (100,))], ended=0) for rank, name in enumerate(names)])
    assert result_of("run.collectives_match", run).verdict is Verdict.PASS


def test_parts_of_a_batch_at_one_place_may_have_any_size() -> None:
    def batch(rank: int) -> dict[str, Any]:
        parts: list[Sized] = [
            ("_broadcast_oop", (10 + rank,)),
            ("_broadcast_oop", (20,)),
            ("ALLGATHER_coalesced", (3,)),
        ]
        return calling(rank, parts, ended=0, collective_seq_id=1)

    assert result_of("run.collectives_match", differing(list(map(batch, range(4))))).verdict is Verdict.PASS


def test_what_all_have_ended_was_no_mismatch() -> None:
    run = differing([calling(rank, [("all_reduce", (rank + 1,)), USUAL], ended=2) for rank in range(4)])
    assert result_of("run.collectives_match", run).verdict is Verdict.PASS


def test_the_first_place_of_a_ring_that_has_lost_its_beginning_is_not_compared() -> None:
    calls: list[list[Sized]] = [[USUAL, USUAL], [("all_reduce", (7,)), USUAL]]
    for is_cut, verdict in ((True, Verdict.PASS), (False, Verdict.FAIL)):
        run = differing([calling(rank, calls[rank == 1], ended=0, is_cut=is_cut) for rank in range(4)])
        assert result_of("run.collectives_match", run).verdict is verdict


def test_groups_of_one_name_that_have_other_ranks_are_not_compared() -> None:
    dumps = [calling(rank, [("all_reduce", (rank // 2 + 1,))], ended=0) for rank in range(4)]
    for rank, of_rank in enumerate(dumps):
        of_rank["pg_config"] = {"0": {"name": "0", "desc": "TENSOR", "ranks": "[0, 1]" if rank < 2 else "[2, 3]"}}
    assert result_of("run.collectives_match", differing(dumps)).verdict is Verdict.PASS


def test_a_rank_that_skipped_a_collective_is_named_at_the_first_that_differs() -> None:
    steps: list[Sized] = [("all_reduce", (513_000,)), ("all_reduce", (4_717_568,))] * 3
    run = differing([calling(rank, steps[1:] if rank == 2 else steps, ended=0) for rank in range(4)])
    message = result_of("run.collectives_match", run).message
    assert message.startswith(
        "at collective 1 of default_pg rank 2 called all_reduce of 4,717,568 Float, ranks 0, 1, 3"
    )


def test_neither_of_two_ranks_that_differ_is_the_odd_one() -> None:
    run = differing([calling(rank, [("all_reduce", (rank + 1,))], ended=0) for rank in range(2)])
    (mismatch,) = run.mismatches
    assert not mismatch.has_majority


def test_the_line_of_the_program_is_said_and_not_that_of_pytorch() -> None:
    frames = [
        {"name": "all_reduce", "filename": "/site-packages/torch/distributed/distributed_c10d.py", "line": 3068},
        {"name": "step\x1b", "filename": "/home/mia/train.py", "line": 35},
    ]
    run = differing([calling(rank, [("all_reduce", (rank // 3,))], ended=0, frames=frames) for rank in range(4)])
    assert r"(step\x1b, train.py:35)" in result_of("run.collectives_match", run).message


@pytest.mark.parametrize(
    "of_each",
    [
        {"frames": [{"name": "step"}, 7, {"name": "f", "filename": 3, "line": "x"}], "input_sizes": [[7]]},
        {"frames": "none", "input_sizes": [[float("inf")]]},
        {"frames": [], "input_sizes": [["7"], 7, [None]]},
        {"frames": None, "input_sizes": 7, "input_dtypes": 7, "time_created_ns": "7"},
    ],
)
def test_sizes_and_stacks_of_another_form_lose_nothing_else(of_each: dict[str, Any]) -> None:
    run = differing([calling(rank, [USUAL], ended=1, **of_each) for rank in range(4)])
    for check in ("run.first_missing", "run.collectives_match"):
        assert result_of(check, run).verdict is Verdict.PASS


def test_a_rank_without_a_dump_may_have_called_anything() -> None:
    run = differing([calling(rank, [USUAL], ended=0) for rank in range(3)])
    result = result_of("run.collectives_match", run)
    assert (result.verdict, result.message) == (Verdict.INCOMPLETE, "rank 3 left no dump; expected one of every rank")


def test_a_gpu_that_has_not_begun_what_its_rank_has_called_is_waited_for() -> None:
    def rank_of(rank: int) -> dict[str, Any]:
        of_rank = calling(rank, [USUAL, USUAL], ended=1)
        of_rank["entries"][0]["time_discovered_started_ns"] = 1
        of_rank["entries"][1]["state"] = "scheduled" if rank == 1 else "started"
        return of_rank

    message = result_of("run.first_missing", differing(list(map(rank_of, range(4))))).message
    assert message.startswith(
        "rank 1: its GPU has not begun all_reduce 2 of default_pg (ranks 0, 2, 3 waiting), which it called"
    )


def test_a_rank_that_stands_within_a_batch_has_called_no_other_collective() -> None:
    parts: list[Sized] = [("_broadcast_oop", (10,)), ("_broadcast_oop", (20,)), ("ALLGATHER_coalesced", (3,))]
    dumps = [calling(rank, parts[: 1 if rank == 1 else 3], ended=0, collective_seq_id=1) for rank in range(4)]
    assert result_of("run.collectives_match", differing(dumps)).verdict is Verdict.PASS


def test_what_differs_behind_the_collective_in_which_all_wait_does_not_hold_them_up() -> None:
    run = differing([calling(rank, [USUAL, ("barrier", (1,)) if rank == 1 else USUAL], ended=0) for rank in range(4)])
    result = result_of("run.collectives_match", run)
    assert result.verdict is Verdict.CONCERN
    assert result.message.startswith("at collective 2 of default_pg, in which nobody waits yet, rank 1 called barrier")
    assert result_of("run.first_missing", run).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(("timeout_ms", "verdict"), [(600_000, "pass"), (86_400_000, "fail"), (None, "pass")])
def test_a_dump_of_an_attempt_before_is_compared_with_no_later_one(timeout_ms: int | None, verdict: str) -> None:
    dumps = [calling(rank, [USUAL, ("all_reduce", (rank // 3,))], ended=1, timeout_ms=timeout_ms) for rank in range(4)]
    for entry in dumps[3]["entries"]:
        entry["time_created_ns"] -= 3600 * 10**9
    assert result_of("run.collectives_match", differing(dumps)).verdict.value == verdict


@pytest.mark.parametrize("field", ["input_sizes", "input_dtypes"])
def test_a_size_or_type_that_one_dump_lacks_differs_from_none(field: str) -> None:
    dumps = [calling(rank, [USUAL], ended=0) for rank in range(4)]
    del dumps[1]["entries"][0][field]
    assert result_of("run.collectives_match", differing(dumps)).verdict is Verdict.PASS


def test_an_empty_tensor_differs_from_one_that_is_not() -> None:
    run = differing([calling(rank, [("all_reduce", (min(rank, 1),))], ended=0) for rank in range(4)])
    assert "rank 0 called all_reduce of 0 Float" in result_of("run.collectives_match", run).message


@pytest.mark.parametrize("is_in_ring", [True, False])
def test_groups_in_which_ranks_send_number_their_collectives_apart(is_in_ring: bool) -> None:
    dumps = [calling(rank, [USUAL, (("all_reduce", "broadcast")[rank % 2], (1,))], ended=1) for rank in range(4)]
    for of_rank in dumps:
        first, second = of_rank["entries"]
        batch = {**first, "is_p2p": True, "profiling_name": "nccl:coalesced", "p2p_seq_id": 0}
        of_rank["entries"] = [first, batch, second] if is_in_ring else [first, {**second, "p2p_seq_id": 12}]
    result = result_of("run.collectives_match", differing(dumps))
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith("dumps number sends and collectives of a group together")


def test_a_group_whose_ranks_no_dump_lists_is_not_compared() -> None:
    dumps = [calling(rank, [("all_reduce", (rank // 2 + 1,))], ended=0) for rank in range(4)]
    for of_rank in dumps:
        del of_rank["pg_config"]
    assert result_of("run.collectives_match", differing(dumps)).verdict is Verdict.INCOMPLETE


def test_a_ring_that_does_not_number_its_entries_may_have_lost_its_beginning() -> None:
    dumps = [calling(rank, [("all_reduce", (rank // 3,))], ended=0) for rank in range(4)]
    for of_rank in dumps:
        del of_rank["entries"][0]["record_id"]
    assert result_of("run.collectives_match", differing(dumps)).verdict is Verdict.PASS


def test_a_gpu_that_has_not_begun_does_not_hide_a_rank_without_a_dump() -> None:
    """Rank 3 left no dump, and nobody waits in a collective with it: ranks 0 and 1 wait in their own group."""
    dumps = [dump(rank, {"1": (91, 90)}, keeps_ended=True) for rank in (0, 1)] + [dump(2, {"2": (92, 92)})]
    for rank, state in enumerate(("started", "scheduled")):
        dumps[rank]["entries"][0]["time_discovered_started_ns"] = 1
        dumps[rank]["entries"][-1]["state"] = state
    message = result_of("run.first_missing", differing(dumps)).message
    assert "rank 1: its GPU has not begun all_reduce 91 of TENSOR" in message
    assert "rank 3 left no dump" in message
