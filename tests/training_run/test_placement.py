"""The node and GPU of a slow or missing rank, and the command that measures that node's pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.placement import Slots, pairs_of
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun
from tests.builders.recordings import node
from tests.builders.runs import Runs
from tests.training_run.builders import result_of
from tests.training_run.recorded import hanging

WORLD, SLOW = 16, 12


def table(*, host: bool = False, gpu: bool = False) -> str:
    """Sixteen ranks, eight on each node, of which rank 12 is slow."""
    head = "rank,step,operation,duration" + ",host" * host + ",local_rank" * gpu
    rows = (
        f"{rank},{step},forward,{1.3 if rank == SLOW else 1.0}"
        + f",gpu{rank // 8 + 1:03}" * host
        + f",{7 - rank % 8}" * gpu
        for step in range(40)
        for rank in range(WORLD)
    )
    return "\n".join((head, *rows)) + "\n"


def read(folder: Path, text: str, *more: str) -> TrainingRun:
    (folder / "steps.csv").write_text(text, encoding="utf-8")
    return read_run([str(folder / "steps.csv"), *more])


def beside(run: TrainingRun, *nodes: Slots) -> TrainingRun:
    return replace(run, cluster="slurm:gpu", nodes=nodes)


def of_slow(run: TrainingRun) -> str:
    result = result_of("run.slow_rank", run)
    assert result.verdict.value == "fail"
    return result.message.partition("expected less than 1.1")[2]


def test_nothing_is_said_of_nodes_where_they_are_unknown(tmp_path: Path) -> None:
    assert of_slow(read(tmp_path, table())) == ""


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([("gpu001", "p5-a"), ("gpu002", "p5-b")], "p5-b, GPU 4"),
        ([("gpu001", "p5-a")], "gpu002, GPU 4"),
        ([("gpu002", "p5-a"), ("gpu002", "p5-b")], "gpu002, GPU 4"),
    ],
    ids=["a host is a pod", "another is", "a pod that was on two nodes"],
)
def test_a_host_that_is_a_pod_is_reported_by_its_node(tmp_path: Path, pods: list[tuple[str, str]], words: str) -> None:
    lines = [json.dumps({"pod": pod, "node": name}) + "\n" for pod, name in pods]
    (tmp_path / "pods.jsonl").write_text("".join(lines))
    assert words in of_slow(read(tmp_path, table(host=True), str(tmp_path / "pods.jsonl")))


@pytest.mark.parametrize("line", ['{"pod": 3, "node": "gpu001"}', '{"pod": "a", "node": ""}', "[]"])
def test_what_is_no_pod_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "pods.jsonl").write_text(f'{{"pod": "train-0", "node": "gpu001"}}\n{line}\n')
    assert read(tmp_path, table(), str(tmp_path / "pods.jsonl")).unread.startswith(f"{tmp_path}/pods.jsonl:2: ")


@pytest.mark.parametrize(("gpu", "words"), [(False, "gpu002, GPU 4"), (True, "gpu002, GPU 3")])
def test_a_column_gives_the_node_and_the_gpu_or_the_order_of_its_ranks_does(
    tmp_path: Path, gpu: bool, words: str
) -> None:
    assert of_slow(read(tmp_path, table(host=True, gpu=gpu))) == f"; rank 12 is on {words}"


def test_steps_as_json_lines_give_it_too(tmp_path: Path) -> None:
    rows = [
        {"rank": rank, "step": step, "dur": 1.0, "stages": {"forward": 1.3 if rank == 2 else 1.0}}
        | {"host": "gpu007", "gpu": f"cuda:{3 - rank}"}
        for step in range(40)
        for rank in range(4)
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert of_slow(read_run([str(tmp_path)])) == "; rank 2 is on gpu007, GPU 1"


def test_a_hostfile_seats_ranks_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("# of job 7\ngpu009 slots=8\ngpu003 slots=8 max-slots=8\n", encoding="utf-8")
    run = read(tmp_path, table(), str(tmp_path / "hostfile"))
    assert of_slow(run) == "; rank 12 is on gpu003, GPU 4 by the hostfile"


def test_a_line_that_is_none_of_a_hostfile_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "hostfile").write_text("gpu009 slots=8\ngpu003 slots=many\n", encoding="utf-8")
    with pytest.raises(
        RunError, match=r"hostfile:2: 'gpu003 slots=many' is no line of a hostfile; expected NODE slots=8"
    ):
        read_run([str(tmp_path / "hostfile")])


def test_the_clusters_order_seats_ranks_as_slurm_does_and_names_the_command(tmp_path: Path) -> None:
    run = beside(read(tmp_path, table()), Slots("gpu001", 8), Slots("gpu002", 8))
    assert of_slow(run) == (
        "; rank 12 is on gpu002, GPU 4 as Slurm's block distribution places ranks: "
        "pytest --cluster slurm:gpu -m perf -k pairwise --pairs 'gpu002~gpu001' measures that node"
    )


@pytest.mark.parametrize(
    "nodes", [(8, 8, 8), (4, 8), (0, 0), (8, 8, 0)], ids=["one more", "one smaller", "no GPUs known", "not of all"]
)
def test_a_cluster_that_these_ranks_do_not_fill_seats_nobody(tmp_path: Path, nodes: tuple[int, ...]) -> None:
    run = beside(read(tmp_path, table()), *(Slots(f"gpu{number:03}", gpus) for number, gpus in enumerate(nodes)))
    assert of_slow(run) == ""


def test_what_the_run_itself_records_counts_before_the_cluster(tmp_path: Path) -> None:
    run = beside(read(tmp_path, table(host=True)), Slots("gpu002", 8), Slots("gpu001", 8), Slots("gpu000", 8))
    assert of_slow(run) == (
        "; rank 12 is on gpu002, GPU 4: "
        "pytest --cluster slurm:gpu -m perf -k pairwise --pairs 'gpu002~gpu001,gpu002~gpu000' measures that node"
    )


def test_neither_node_is_named_for_a_rank_on_both(tmp_path: Path) -> None:
    text = table(host=True).replace("3,7,forward,1.0,gpu001", "3,7,forward,1.0,gpu002")
    run = beside(read(tmp_path, text), Slots("gpu002", 8), Slots("gpu001", 8), Slots("gpu000", 8))
    assert run.data.notes[0].startswith("rank 3 was on gpu001, then on gpu002: ")
    assert 3 not in run.placements


def test_no_gpu_is_numbered_by_rank_order_on_a_node_that_a_rank_left(tmp_path: Path) -> None:
    run = read(tmp_path, table(host=True) + "0,40,forward,1.0,gpu009\n8,40,forward,1.0,gpu009\n")
    assert run.placements[3].location == "gpu001"
    assert of_slow(run) == "; rank 12 is on gpu002"


@pytest.mark.parametrize(
    "first", [(8,), (8, 9), tuple(range(9))], ids=["its first", "its first two", "the node before"]
)
def test_no_gpu_is_numbered_by_rank_order_where_the_first_rank_of_a_node_is_unknown(
    tmp_path: Path, first: tuple[int, ...]
) -> None:
    rows = table(host=True).splitlines(keepends=True)
    run = read(tmp_path, "".join(row for row in rows if not row.startswith(tuple(f"{rank}," for rank in first))))
    assert of_slow(run) == "; rank 12 is on gpu002"


def test_a_missing_rank_has_its_node_too(tmp_path: Path) -> None:
    run = hanging(tmp_path, {rank: {"0": (50 if rank == 3 else 51, 50)} for rank in range(4)})
    result = result_of("run.first_missing", beside(run, Slots("gpu001", 2), Slots("gpu002", 2)))
    assert "expected every rank to come; rank 3 is on gpu002, GPU 1 as Slurm's" in result.message


def test_on_the_command_line_the_cluster_is_that_of_the_run(runs: Runs) -> None:
    (runs.folder / "steps.csv").write_text(table(), encoding="utf-8")
    cluster = runs.cluster([node("gpu001"), node("gpu002")])
    arguments = ("--cluster", cluster, "--run", "steps.csv", "-k", "slow_rank", "--results", str(runs.results_file))
    ran = runs.run(*arguments, "--expect", "gpus=8", "-p", "no:cacheprovider", "--pyargs", "clusterproof.checks.run")
    assert ran.ret == 1
    assert "rank 12 is on gpu002, GPU 4" in runs.results[0].message
    assert "-k pairwise --pairs 'gpu002~gpu001' measures that node" in runs.results[0].message


@given(st.integers(2, 30), st.data())
def test_a_node_is_measured_beside_its_neighbours_and_never_beside_itself(count: int, data: st.DataObject) -> None:
    nodes = [f"n{number}" for number in range(count)]
    own = data.draw(st.sampled_from(nodes))
    pairs = [pair.split("~") for pair in pairs_of(own, nodes).split(",")]
    assert all(first == own and second != own for first, second in pairs)
    assert len(pairs) == min(2, count - 1)
