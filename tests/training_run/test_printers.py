"""Labels before a line tell which rank printed it, whichever program added them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.training_run.formats.printer import Printer, bar_of, printer
from clusterproof.plugins.training_run.reading import read_run
from tests.training_run.builders import result_of
from tests.training_run.logs import finite, read, titan


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("{}: ", "task 5"),
        ("[default{}]:", "local rank 5"),
        ("[rank{}]:", "rank 5"),
        ("1: [default{}]:", "task 1, local rank 5"),
        ("1: [rank{}]:", "task 1, rank 5"),
        ("2026-05-18T16:00:00.123456789Z [rank{}]:", "rank 5"),
        ("2026-05-18T16:00:00.123456789Z stdout F [rank{}]:", "rank 5"),
        ("2026-05-18T16:00:00+0000 gpu001 torchrun[4242]: [rank{}]:", "rank 5"),
        ("2026-05-18T16:00:00.123456+00:00 gpu001 python[42]: [default{}]:", "gpu001, local rank 5"),
        ("May 18 16:00:00 gpu001 torchrun[4242]: [default{}]:", "gpu001, local rank 5"),
        ("[pod/llama-worker-1/pytorch] [rank{}]:", "rank 5"),
        (
            "[pod/llama-worker-1/pytorch] 2026-05-18T16:00:00.1234567Z [default{}]:",
            "llama-worker-1/pytorch, local rank 5",
        ),
        ("[pod/llama-worker-{}/pytorch] ", "llama-worker-5/pytorch"),
        ("worker-{}  | ", "worker-5"),
        ("trainer_{}     | ", "trainer_5"),
        ("[1,{}]<stdout>:", "rank 5"),
        ("2026-05-18T16:00:00.123000+00:00 llama/algo-1-abcd [rank{}]:", "rank 5"),
        ("gpu001 somebody's own words, [default{}]: ", "local rank 5"),
        ("algo-1-ndfg3  | [1,mpirank:{},algo-1]<stdout>:", "rank 5"),
        ("(RayTrainWorker pid=10{}, ip=10.0.0.1) ", "RayTrainWorker pid=105, ip=10.0.0.1"),
    ],
)
def test_the_labels_of_launchers_and_collectors_say_who_printed_a_line(tmp_path: Path, label: str, name: str) -> None:
    lines = [
        titan(step, step + rank / 100, prefix=label.format(rank)).replace("6.0388", "nan" if rank == 5 else "6.0388")
        for step in range(1, 9)
        for rank in range(8)
    ]
    assert finite(tmp_path, "".join(lines)).message.startswith(f"{name}: the loss is nan from step 1 on, in 8 of 8")


def of_containers(step: int, rank: int, names: tuple[str, str]) -> str:
    return titan(step, step + rank / 100, prefix=names[rank]).replace("6.0388", "nan" if rank else "6.0388")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("node0  | ", "node1  | "), "node1: "),
        (("n0         | ", "gpu-Rack1  | "), "gpu-Rack1: "),
        (("node0  | [rank0]:", "node1  | [rank1]:"), "rank 1: "),
    ],
)
def test_names_of_containers_that_alternate_say_who_printed_a_line(
    tmp_path: Path, names: tuple[str, str], words: str
) -> None:
    lines = [of_containers(step, rank, names) for step in range(1, 9) for rank in range(2)]
    assert finite(tmp_path, "Attaching to them\n" + "".join(lines)).message.startswith(words)


@pytest.mark.parametrize(
    "columns",
    [
        [f"epoch{step}  | loss: 2.3" for step in range(9)],
        ["train  | loss: 2.3", "valid  | loss: 2.5"] * 4,
        ["node0 | loss: 2.3", "node1 | loss: 2.5"] * 4,
        ["node0  | loss: 2.3"] * 4,
        [*["node0  | loss: 2.3", "node1  | loss: 2.5"] * 4, *["and more"] * 9],
        [],
    ],
)
def test_columns_of_the_program_itself_are_no_names_of_containers(columns: list[str]) -> None:
    assert bar_of("\n".join(columns)) == 0


@pytest.mark.parametrize(
    "words",
    [
        "epoch4 | iter 40: loss",
        "step100 | loss: 2.3",
        "epoch_4 | loss: 2.3",
        "v1.2.3  | INFO",
        "Epoch train[12]: loss",
        "2026-05-18T16:00:00.123456789Z Epoch train[12]: loss",
        "2026-05-18T16:00:00.123456789+08:00 Epoch train[12]: loss",
    ],
)
def test_words_of_the_program_itself_are_no_label(words: str) -> None:
    assert printer(words, of_file=9) == Printer(9)


def test_a_time_before_a_line_is_no_label(tmp_path: Path) -> None:
    lines = [titan(step, step, prefix=f"{step:02}:15:03 ") for step in range(1, 9)]
    run = read(tmp_path, "".join(lines))
    assert list(run.data.losses.losses) == [(0, 0)]
    assert len(run.data.steps[0]) == 7


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("[rank3]:", "rank 3"),
        ("[default3]:", "a rank that its files do not name"),
        ("[pod/llama-worker-1/pytorch] ", "a rank that its files do not name"),
        ("", "rank 0"),
    ],
)
def test_the_number_of_a_rank_on_its_node_is_not_said_to_be_the_ranks(tmp_path: Path, label: str, name: str) -> None:
    lines = [
        f"{label}2024/05/01 10:{step:02}:00 - mmengine - INFO - Epoch(train)  [1][{step:4d}/9000]  lr: 1.0e-03  "
        "time: 1.0  data_time: 0.6  loss: 1.0\n"
        for step in range(1, 40)
    ]
    assert f"{name} waits for data" in result_of("run.data_wait", read(tmp_path, "".join(lines))).message


def test_the_rank_in_a_files_name_is_named_behind_the_label_of_a_pod(tmp_path: Path) -> None:
    lines = [
        f"[pod/llama-worker-1/pytorch] 2024/05/01 10:{step:02}:00 - mmengine - INFO - Epoch(train)  "
        f"[1][{step:4d}/9000]  lr: 1.0e-03  time: 1.0  data_time: 0.6  loss: 1.0\n"
        for step in range(1, 40)
    ]
    (tmp_path / "rank3.log").write_text("".join(lines))
    run = read_run([str(tmp_path / "rank3.log")])
    assert result_of("run.data_wait", run).message.startswith("rank 3 waits for data")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("[rank{}]:", "rank 5"),
        ("[default{}]:", "a rank that its files do not name"),
        ("{}: ", "a rank that its files do not name"),
    ],
)
def test_a_rank_that_logs_no_more_is_missed_whether_or_not_it_is_named(tmp_path: Path, label: str, name: str) -> None:
    lines = [
        titan(step, step + rank / 100, prefix=label.format(rank))
        for step in range(1, 400)
        for rank in range(8)
        if rank != 5 or step < 150
    ]
    result = result_of("run.step_outliers", read(tmp_path, "".join(lines)))
    assert result.message.startswith(f"{name} logs nothing after step 149 of 399"), result.message
    assert result.verdict.value == "incomplete"
