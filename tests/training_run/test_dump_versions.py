"""Flight Recorder dumps in the formats of PyTorch 2.2 (1.x) to 2.9, and as JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import result_of
from tests.training_run.recorded import Reached, dump

# Rank 1 does not reach collective 51 of all ranks.
BEHIND: dict[int, Reached] = {rank: {"0": (50 if rank == 1 else 51, 50)} for rank in range(4)}
Change = Callable[[dict[str, Any]], Any]


def entries(recording: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    return {**recording, "entries": [change(entry) for entry in recording["entries"]]}


def without(fields: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in keys}


def with_frames(recording: dict[str, Any]) -> dict[str, Any]:
    frames = [{"name": "forward", "filename": "train.py", "line": 42}]
    return entries(recording, lambda entry: {**entry, "frames": frames, "duration_ms": None, "timeout_ms": 600_000})


def with_lists_of_ranks(recording: dict[str, Any]) -> dict[str, Any]:
    groups = {name: {**group, "ranks": json.loads(group["ranks"])} for name, group in recording["pg_config"].items()}
    return {**recording, "pg_config": groups}


def before_names_of_groups(recording: dict[str, Any]) -> dict[str, Any]:
    def older(entry: dict[str, Any]) -> dict[str, Any]:
        return {"seq_id": entry["collective_seq_id"], **without(entry, "collective_seq_id", "process_group", "is_p2p")}

    return entries(without(recording, "pg_config", "pg_status", "version"), older)


def status_as_text(recording: dict[str, Any]) -> dict[str, Any]:
    status = {
        group: {key: str(value) for key, value in of_group.items()}
        for group, of_group in recording["pg_status"].items()
    }
    return {**recording, "pg_status": status}


VERSIONS: list[tuple[str, Change]] = [
    ("2.9", lambda recording: recording),
    ("2.3, with stacks", with_frames),
    ("2.1, without status", lambda recording: without(recording, "pg_status")),
    ("2.0, ranks as a list", with_lists_of_ranks),
    ("numbers as text", status_as_text),
    ("1.5", before_names_of_groups),
    ("1.0, only operations", lambda recording: before_names_of_groups(recording)["entries"]),
]


def of_gloo(recording: dict[str, Any]) -> dict[str, Any]:
    """As PyTorch 2.8 writes them for gloo: only one state, and a single group without a name."""

    def other(entry: dict[str, Any]) -> dict[str, Any]:
        name = entry["profiling_name"].replace("nccl:", "gloo:")
        return {**entry, "profiling_name": name, "state": "scheduled", "retired": entry["state"] == "completed"}

    group = {**recording["pg_config"]["0"], "name": "", "desc": ""}
    return entries(status_as_text({**recording, "pg_config": {"": group}}), other)


def written(folder: Path, dumps: Mapping[int, Any], *, as_json: bool = False) -> TrainingRun:
    for rank, recording in dumps.items():
        packed = json.dumps(recording).encode() if as_json else pickle.dumps(recording)
        (folder / f"nccl_trace_rank_{rank}{'.json' * as_json}").write_bytes(packed)
    return read_run([str(folder)])


@pytest.mark.parametrize("change", [change for _, change in VERSIONS], ids=[name for name, _ in VERSIONS])
def test_the_rank_that_is_behind_is_named_in_each_version(tmp_path: Path, change: Change) -> None:
    dumps = {rank: change(dump(rank, reached, keeps_ended=True)) for rank, reached in BEHIND.items()}
    result = result_of("run.first_missing", written(tmp_path, dumps))
    assert result.verdict is Verdict.FAIL, result.message
    assert result.message.startswith("rank 1 missing in all_reduce 51 of ")


def test_a_dump_as_json_reads_the_same(tmp_path: Path) -> None:
    dumps = {rank: dump(rank, reached) for rank, reached in BEHIND.items()}
    assert written(tmp_path, dumps, as_json=True).missing.ranks == (1,)


def operation(name: str, number: int, state: str, group: str = "0", *, is_p2p: bool = False) -> dict[str, Any]:
    return {
        "process_group": (group, "default_pg"),
        "pg_id": 0,
        "collective_seq_id": 7 if is_p2p else number,
        "p2p_seq_id": number if is_p2p else 0,
        "profiling_name": f"nccl:{name}",
        "state": state,
        "is_p2p": is_p2p,
    }


def ring(*operations: dict[str, Any]) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"version": "2.9", "pg_config": config, "entries": list(operations)}


def test_calls_that_were_coalesced_end_with_the_call_that_coalesces_them(tmp_path: Path) -> None:
    ended = [
        *(operation("_all_gather_base", 5, "scheduled") for _ in range(3)),  # they keep this state for ever
        operation("coalesced", 5, "completed"),
    ]
    dumps = {rank: ring(*ended, *([operation("all_reduce", 6, "started")] if rank != 2 else [])) for rank in range(3)}
    run = written(tmp_path, dumps)
    assert run.missing.ranks == (2,)
    assert result_of("run.first_missing", run).message.startswith("rank 2 missing in all_reduce 6 of default_pg")


def test_what_ended_before_a_later_call_of_the_group_waits_no_more(tmp_path: Path) -> None:
    dumps = {
        rank: ring(operation("broadcast", 5, "started"), operation("broadcast", 6, "completed")) for rank in (0, 1, 2)
    }
    assert result_of("run.first_missing", written(tmp_path, dumps)).verdict is Verdict.PASS


@pytest.mark.parametrize("backend", ["nccl", "nccl2", "xccl"])  # pytorch/pytorch#192233
def test_a_rank_to_which_others_wait_to_send_and_that_waits_for_nobody_is_named(tmp_path: Path, backend: str) -> None:
    dumps = {
        0: ring(operation("send 0->1", 40, "started", is_p2p=True)),
        1: ring(
            operation("recv 1<-0", 40, "completed", is_p2p=True), operation("send 1->2", 41, "started", is_p2p=True)
        ),
        2: ring(operation("recv 2<-1", 12, "completed", is_p2p=True)),
    }
    for recording in dumps.values():
        for entry in recording["entries"]:
            entry["profiling_name"] = entry["profiling_name"].replace("nccl", backend)
    result = result_of("run.first_missing", written(tmp_path, dumps))
    assert result.message.startswith("rank 2 missing in send to rank 2 41 of default_pg (rank 1 waiting)")


def test_a_rank_that_waits_to_receive_is_not_named_though_others_wait_for_it_in_a_collective(tmp_path: Path) -> None:
    """Two pipeline stages with two replicas: rank 2, of the second stage, is stuck, and rank 0 waits for it."""
    config = {
        name: {"name": name, "desc": purpose, "ranks": ranks}
        for name, purpose, ranks in (
            ("0", "default_pg", "[0, 1, 2, 3]"),
            ("1", "DATA_PARALLEL", "[0, 1]"),
            ("2", "DATA_PARALLEL", "[2, 3]"),
        )
    }
    in_group = {"process_group": ("1", "DATA_PARALLEL"), "pg_id": 1}
    entries = {
        0: [operation("recv 0<-2", 7, "started", is_p2p=True), {**operation("all_reduce", 4, "completed"), **in_group}],
        1: [{**operation("all_reduce", 5, "started"), **in_group}],
        2: [{**operation("all_reduce", 4, "completed"), "process_group": ("2", "DATA_PARALLEL"), "pg_id": 1}],
        3: [{**operation("all_reduce", 5, "started"), "process_group": ("2", "DATA_PARALLEL"), "pg_id": 1}],
    }
    run = written(
        tmp_path,
        {
            rank: {
                "version": "2.9",
                "pg_config": {name: of for name, of in config.items() if str(rank) in of["ranks"]},
                "entries": of_rank,
            }
            for rank, of_rank in entries.items()
        },
    )
    result = result_of("run.first_missing", run)
    assert result.verdict is Verdict.FAIL
    assert result.message.startswith("rank 2 missing in all_reduce 5 of DATA_PARALLEL (rank 3 waiting)")


def test_ranks_that_wait_for_each_other_do_not_fail_but_are_incomplete(tmp_path: Path) -> None:
    dumps = {
        0: ring(operation("send 0->1", 40, "started", is_p2p=True)),
        1: ring(operation("recv 1<-0", 40, "started", is_p2p=True)),
        2: ring(),
    }
    assert result_of("run.first_missing", written(tmp_path, dumps)).verdict is Verdict.INCOMPLETE


def test_a_batch_of_sends_has_ended_when_the_call_that_coalesces_it_has(tmp_path: Path) -> None:
    sends = [operation(f"send 0->{peer}", 9, "scheduled", is_p2p=True) for peer in (1, 2)]
    dumps = {rank: ring(*sends, operation("coalesced", 9, "completed", is_p2p=True)) for rank in range(3)}
    assert result_of("run.first_missing", written(tmp_path, dumps)).verdict is Verdict.PASS


def test_dumps_of_gloo_name_the_rank_that_does_not_come(tmp_path: Path) -> None:
    dumps = {rank: of_gloo(dump(rank, {"0": reached["0"]}, keeps_ended=True)) for rank, reached in BEHIND.items()}
    result = result_of("run.first_missing", written(tmp_path, dumps, as_json=True))
    assert result.message == (
        "rank 1 missing in all_reduce 51 of default_pg (ranks 0, 2, 3 waiting); expected every rank to come"
    )


def test_dumps_of_gloo_without_a_wait_name_nobody(tmp_path: Path) -> None:
    dumps = {rank: of_gloo(dump(rank, {"0": (50, 50)}, keeps_ended=True)) for rank in range(4)}
    assert result_of("run.first_missing", written(tmp_path, dumps, as_json=True)).verdict is Verdict.PASS
