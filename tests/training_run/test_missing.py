"""A run that hangs: the rank is named that all others wait for, from dumps in which no code can hide."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run import RunError, rank_names
from clusterproof.plugins.training_run.formats import flight_recorder
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.rules.hang import missing
from tests.training_run.builders import labelled, result_of
from tests.training_run.recorded import Reached, dump, hanging
from tests.untrusted.programs import bounded

ALL_DONE: Reached = {"0": (50, 50), "1": (90, 90)}
# Rank 1 does not reach collective 91 of its tensor group: rank 0 waits there, the other two wait for both.
HOST_HANGS: dict[int, Reached] = {
    0: {"0": (50, 50), "1": (91, 90)},
    1: {"0": (50, 50), "1": (90, 90)},
    2: {"0": (51, 50), "2": (92, 92)},
    3: {"0": (51, 50), "2": (92, 92)},
}
# Rank 1 has enqueued everything but its GPU completes nothing; the others have completed what they could.
GPU_STOPS: dict[int, Reached] = {
    0: {"0": (50, 50), "1": (95, 93)},
    1: {"0": (51, 49), "1": (96, 90)},
    2: {"0": (51, 50), "2": (92, 92)},
    3: {"0": (51, 50), "2": (92, 92)},
}


def test_the_ranks_that_were_broken_on_purpose_are_named_and_no_other() -> None:
    folder = labelled("flight-recorder/gpu_error_1st")
    label = (folder / "fault_injection.log").read_text(encoding="utf-8").splitlines()[0]
    run = read_run([str(folder)])
    assert label == "Fault ranks: [12, 14]"
    assert run.missing.ranks == (12, 14)
    assert result_of("run.first_missing", run).verdict is Verdict.FAIL
    assert run.data.notes == ["not understood: fault_injection.log"]


@pytest.mark.parametrize("reached", [HOST_HANGS, GPU_STOPS], ids=["its host hangs", "its GPU stops"])
@pytest.mark.parametrize("keeps_ended", [False, True], ids=["only what waits", "all of the ring"])
def test_a_rank_that_waits_for_nobody_is_named_and_one_that_waits_is_not(
    tmp_path: Path, reached: dict[int, Reached], keeps_ended: bool
) -> None:
    result = result_of("run.first_missing", hanging(tmp_path, reached, keeps_ended=keeps_ended))
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith("rank 1 missing in all_reduce ")


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("all_reduce", "fail"),
        ("_all_gather_base", "fail"),
        ("_reduce_scatter_base", "fail"),
        ("all_to_all", "fail"),
        ("all_reduce_barrier", "fail"),
        ("broadcast", "incomplete"),
        ("_broadcast_oop", "incomplete"),
        ("reduce", "incomplete"),
        ("_reduce_oop", "incomplete"),
        ("gather", "incomplete"),
        ("scatter", "incomplete"),
    ],
)
def test_a_rank_in_a_collective_that_another_completed_has_stopped_only_if_all_complete_together(
    tmp_path: Path, kind: str, verdict: str
) -> None:
    """Rank 0 has completed 90, in which rank 1 still is: a broadcast's root completes it while the others wait."""
    reached = {0: {"1": (91, 90)}, 1: {"1": (95, 89)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}
    result = result_of("run.first_missing", hanging(tmp_path, reached, kind=kind))
    assert result.verdict.value == verdict
    assert ("rank 1 missing" in result.message) is (verdict == "fail")


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "reduce", "gather", "scatter"])
def test_a_rank_that_never_came_is_named_whatever_others_wait_for(tmp_path: Path, kind: str) -> None:
    result = result_of("run.first_missing", hanging(tmp_path, HOST_HANGS, kind=kind))
    assert result.message.startswith(f"rank 1 missing in {kind} 51 of default_pg")


def test_ranks_that_have_all_come_pass(tmp_path: Path) -> None:
    reached = {rank: {"0": (50, 50), "1" if rank < 2 else "2": (90, 90)} for rank in range(4)}
    assert result_of("run.first_missing", hanging(tmp_path, reached)).verdict is Verdict.PASS


def test_a_rank_without_a_dump_is_named_where_others_wait_for_it_and_that_is_incomplete(tmp_path: Path) -> None:
    result = result_of("run.first_missing", hanging(tmp_path, {rank: HOST_HANGS[rank] for rank in (0, 2, 3)}))
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message.startswith("rank 1 left no dump, and others wait for them in all_reduce 51 of default_pg")


def test_ranks_that_all_wait_in_the_same_place_are_incomplete(tmp_path: Path) -> None:
    reached = {rank: {"0": (51, 50), "1" if rank < 2 else "2": (90, 90)} for rank in range(4)}
    result = result_of("run.first_missing", hanging(tmp_path, reached))
    assert result.verdict is Verdict.INCOMPLETE
    assert "none is behind the others" in result.message


def test_without_dumps_nobody_is_missing() -> None:
    assert missing({}).ranks == ()


BEYOND = {"last_enqueued_collective": float("nan"), "last_completed_collective": 10**30}
MARK_OF_2 = b"\x80\x02"  # the protocol


def shared(depth: int) -> Any:
    """A list that contains one list twice, which contains one list twice, and so on."""
    nested: Any = ["x"]
    for _ in range(depth):
        nested = [nested, nested]
    return nested


def pickled(keys: Iterable[int]) -> bytes:
    """A pickled dictionary with these keys, never built here: that takes seconds if they collide."""
    pairs = (pickle.dumps(key, protocol=2)[2:-1] + pickle.dumps(0, protocol=2)[2:-1] for key in keys)
    return MARK_OF_2 + b"}(" + b"".join(pairs) + b"u."


BOMBS = {
    "an object's number": MARK_OF_2 + b"Nr\xff\xff\xff\x7f.",
    "an array as long as it says": b"\x80\x05\x96" + (1 << 35).to_bytes(8, "little") + b".",
    "a text as long as it says": b"\x80\x04\x8d" + (1 << 40).to_bytes(8, "little") + b".",
    "a number of a megabyte": MARK_OF_2 + b"\x8b" + (1 << 20).to_bytes(4, "little") + b"\x7f" * (1 << 20) + b".",
    "a name of shared lists": pickle.dumps({"pg_config": {"0": {"ranks": "[0]", "desc": shared(60)}}, "entries": []}),
    "an operation of shared lists": pickle.dumps({"pg_config": {}, "entries": [{"profiling_name": shared(60)}]}),
    "a number of shared lists": pickle.dumps({"pg_config": {"0": {"ranks": [shared(60)]}}, "entries": []}),
    "keys that collide": pickled(number * (2**61 - 1) for number in range(20_000)),
    "a deep tuple": MARK_OF_2 + b")" + b"\x85" * 1_000_000 + b".",
    "a list that is in itself": MARK_OF_2 + b"]q\x00h\x00a.",
}


@pytest.mark.long
@pytest.mark.parametrize("name", BOMBS)
def test_a_dump_takes_no_more_time_and_room_than_its_bytes_are_worth(tmp_path: Path, name: str) -> None:
    (tmp_path / "dump_0").write_bytes(BOMBS[name])
    ran = bounded(f"from clusterproof.plugins.training_run.reading import read_run; read_run([{str(tmp_path)!r}])")
    assert "RunError: " in ran.stderr, ran
    assert "MemoryError" not in ran.stderr


def test_groups_that_share_their_ranks_are_counted_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "MAX_MEMBERS", 1_000)
    ranks = list(range(200))
    groups = {str(number): {"ranks": ranks} for number in range(6)}
    (tmp_path / "dump_0").write_bytes(pickle.dumps({"pg_config": groups, "entries": []}))
    with pytest.raises(RunError, match="groups of more than 1000 ranks together"):
        read_run([str(tmp_path)])


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/clusterproof-was-here",)


@pytest.mark.parametrize("data", [Evil(), {"entries": [Evil()]}, os.system, Path("x")])
def test_a_dump_that_names_a_class_or_a_function_is_refused(tmp_path: Path, data: Any) -> None:
    (tmp_path / "dump_0").write_bytes(pickle.dumps({"entries": [data]}))
    with pytest.raises(RunError, match=r"dump_0: UnpicklingError: it has \w*GLOBAL, which plain data does not"):
        read_run([str(tmp_path / "dump_0")])
    assert not Path("/tmp/clusterproof-was-here").exists()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(dump(0, ALL_DONE))[:-20],
        pickle.dumps({"entries": []}),
        pickle.dumps({"pg_config": {"0": {"ranks": "[" * 10_000}}, "entries": []}),
        pickle.dumps({"pg_config": {}, "entries": [{"is_p2p": False}]}),
        pickle.dumps({"pg_config": {}, "entries": 7}),
        pickle.dumps({"pg_config": {"0": {"ranks": "[0]"}}, "entries": [], "pg_status": {"0": BEYOND}}),
        json.dumps({"pg_config": {"0": {"ranks": [float("inf")]}}, "entries": []}).encode(),
        b'{"pg_config": {}, "pg_status": {"0": {"last_enqueued_collective": 1e999}}, "entries": []}',
        b'{"pg_config": {"0": {"ranks": [' + b"9" * 3000 + b']}}, "entries": []}',
        b"\x80\x04" + b"(" * 1_000 + b"entries",
    ],
)
def test_a_dump_that_is_cut_or_of_another_kind_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "dump_3").write_bytes(data)
    with pytest.raises(RunError, match=r"dump_3: .*; expected what TORCH_NCCL_DUMP_ON_TIMEOUT writes"):
        read_run([str(tmp_path / "dump_3")])


def test_a_dump_of_an_unknown_rank_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(pickle.dumps(dump(0, ALL_DONE)))
    with pytest.raises(
        RunError, match="the file's name does not end in its rank; expected one like nccl_trace_rank_12"
    ):
        read_run([str(tmp_path)])


def test_two_dumps_of_one_rank_are_not_of_one_moment(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dump_0").write_bytes(pickle.dumps(dump(0, ALL_DONE)))
    with pytest.raises(RunError, match="rank 0 has a dump already; expected the dumps of one moment"):
        read_run([str(tmp_path)])


def test_the_order_of_a_ranks_groups_gives_the_numbers_by_which_it_knows_them() -> None:
    dumps = read_run([str(labelled("flight-recorder/gpu_error_1st"))]).data.dumps.values()
    assert len(dumps) == 16
    for of_rank in dumps:  # what some ranks' operations show agrees with what the order shows for all
        assert set(of_rank.local) == set(of_rank.members)
        assert len(set(of_rank.local.values())) == len(of_rank.local)


@pytest.mark.parametrize("data", [pickle.dumps([1, 2]), b"\x80", b"\x80\x04" + b"(" * 1_000])
def test_a_pickle_without_a_word_of_dumps_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "dump_3").write_bytes(data)
    with pytest.raises(RunError, match=r"dump_3(: its form is not| is neither text nor a form that is) known"):
        read_run([str(tmp_path / "dump_3")])


SPLIT: list[Reached] = [{"1": (91, 90)}, {"1": (90, 90)}, {"2": (92, 92)}, {"2": (92, 92)}]


def test_a_rank_missing_in_a_group_is_named_though_other_ranks_have_a_group_of_the_same_name(tmp_path: Path) -> None:
    """As `split_group` names them: each rank knows only its own group 1."""
    reached = {rank: {"0": (50, 50), **of_tensor} for rank, of_tensor in enumerate(SPLIT)}
    for rank, progress in reached.items():
        text = json.dumps(dump(rank, progress)).replace('"2"', '"1"')
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(json.loads(text)))
    result = result_of("run.first_missing", read_run([str(tmp_path)]))
    assert result.verdict is Verdict.FAIL, result.message
    assert result.message.startswith("rank 1 missing in all_reduce 91 of TENSOR")


def test_ranks_that_are_not_named_are_counted() -> None:
    assert rank_names(range(8)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7"
    assert rank_names(range(12)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"
