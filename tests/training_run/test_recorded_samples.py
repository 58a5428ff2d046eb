"""Sample files: read back as written, a cut costs only the tail, and anything wrong is one clear error."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
import zstandard

from clusterproof.plugins.training_run import RunError, sample_columns
from clusterproof.plugins.training_run.files import RunFile
from clusterproof.plugins.training_run.formats import watch_samples
from clusterproof.plugins.training_run.rank_processes import RankLook
from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.sample_columns import (
    SUFFIX,
    Header,
    SampledGpu,
    SamplesFile,
    columns_for,
    whole_frames,
)
from clusterproof.plugins.training_run.samples import CPU, GPU, MEMORY, NETWORK, POWER, Sample
from tests.builders.wheel import ROOT

GPUS = 8
HEADER = Header(
    "gpu001",
    "5f0c8f6e-37f6-4b7e-9f0f-0d4b5f4b8d11",
    1_763_600_000.0,
    10.0,
    tuple(SampledGpu(f"GPU-{index:08x}-4f1a-9c3e", 81_559.0, 700.0) for index in range(GPUS)),
    columns_for(GPUS),
)
SCHEMA = json.loads((ROOT / "plugins/training_run/samples.schema.json").read_text(encoding="utf-8"))


def values(random: Random) -> list[float | None]:
    """A moment of a node in training, as noisy as real ones."""
    of_gpu: dict[str, Any] = {
        "util": random.randint(92, 99), "sm": random.randint(55, 70), "tensor": random.randint(35, 45),
        "nvlink": random.randint(30_000, 45_000), "pcie": random.randint(1_000, 2_000), "mem": 70_123,
        "clock": random.randint(1_590, 1_980), "power": random.randint(550, 690), "temp": random.randint(58, 62),
        "capped": random.randint(0, 60), "slowed": 0, "ecc": 0, "ecc_corrected": 3, "link_errors": 0,
    }  # fmt: skip
    host = {"cpu": random.randint(10, 20), "net_rx": random.randint(1, 9), "rdma_rx": random.randint(20_000, 30_000)}
    return [of_gpu[column.partition(".")[2]] if "." in column else host.get(column, 0) for column in HEADER.columns]


def written(folder: Path, count: int = 60) -> Path:
    path = folder / f"gpu001{SUFFIX}"
    file, random = SamplesFile(path), Random(1)
    file.begin(HEADER)
    for number in range(count):
        file.sample(10.0 * number, values(random))
    file.event(10.0 * count, "kernel", "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.")
    file.ranks(10.0 * count, [RankLook(rank, 4, "gpu001:29500", "S", "futex_do_wait", 1.5) for rank in range(4)])
    file.gap(HEADER.began + 10 * count, HEADER.began + 10 * count + 60, "the connection broke")
    return path


def lines(path: Path) -> list[Any]:
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()
    return [json.loads(line) for line in text.splitlines()]


def in_one_frame(path: Path, rows: Sequence[str]) -> Path:
    path.write_bytes(zstandard.ZstdCompressor().compress("".join(f"{row}\n" for row in rows).encode()))
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    run = read_run([str(written(tmp_path))])
    samples = run.data.samples
    assert {key[1:] for key in samples.series if key[0] == GPU} == {("gpu001", f"gpu{gpu}") for gpu in range(GPUS)}
    assert {len(series) for series in samples.of(GPU).values()} == {60}
    memory = samples.of(MEMORY)["gpu001", "gpu3"]
    assert {round(cell.mean, 2) for cell in memory.values()} == {85.98}
    assert all(78 < cell.mean < 99 for cell in samples.of(POWER)["gpu001", "gpu0"].values())
    assert all(20_000 < cell.mean < 30_010 for cell in samples.of(NETWORK)["gpu001", ""].values())
    assert set(samples.of(CPU)) == {("gpu001", "")}
    assert {rank: process.name for rank, process in run.data.processes.latest.items()} == dict.fromkeys(
        range(4), "futex_do_wait"
    )
    assert run.data.notes == []


@pytest.mark.long
def test_every_line_has_the_form_of_the_schema(tmp_path: Path) -> None:
    written_lines = lines(written(tmp_path))
    assert len(written_lines) == 64
    for line in written_lines:
        jsonschema.validate(line, SCHEMA)


@pytest.mark.parametrize("wrong", [{}, [], {"clusterproof.samples": 2}, {"event": {}}, ["10"], {"gap": {"from": 1}}])
def test_the_schema_refuses_what_is_no_line(wrong: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


@pytest.mark.long
def test_a_sample_takes_at_most_350_bytes(tmp_path: Path) -> None:
    assert written(tmp_path, 1_000).stat().st_size / 1_000 <= 350


@pytest.mark.long
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_loses_its_tail_only(tmp_path: Path, share: float) -> None:
    path = written(tmp_path, 600)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    read = len(read_run([str(path)]).data.samples.of(GPU)["gpu001", "gpu0"])
    assert read >= share * 600 - 2 * sample_columns.LINES


def test_writing_goes_on_behind_the_last_whole_frame(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + path.read_bytes()[:100])
    assert whole_frames(path) == whole
    again = SamplesFile(path)
    assert path.stat().st_size == whole
    again.begin(HEADER)
    assert len(lines(path)) == 65


def test_a_write_that_fails_leaves_the_file_whole_and_its_lines_to_the_next(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole, file = path.stat().st_size, SamplesFile(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.begin(HEADER)
        assert path.stat().st_size == whole
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.flush()
    assert len(lines(path)) == 65
    assert file.forget() == 0


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"clusterproof.samples": 2}', "clusterproof.samples is 2; expected 1"),
        ("[10.0, 1]", "2 values; expected 128, as the header names them"),
        ('"text"', "is no sample; expected"),
        ('{"event": {"time": "soon"}}', "time is 'soon'; expected a number"),
        ('{"gap": {"from": 2, "to": 1}}', "a gap ends before it begins"),
        ('{"other": 1}', "is no sample; expected"),
        (json.dumps([10.0, 101, *[0] * 126]), "gpu is 101; expected 0 to 100"),
        (json.dumps([10.0, -1, *[0] * 126]), "gpu is -1; expected 0 to 100"),
        (json.dumps([10.0, "1", *[0] * 126]), "a value is '1'; expected a number or null"),
        (json.dumps([10.0, True, *[0] * 126]), "a value is True; expected a number"),
        (json.dumps([-100.0, *[0] * 127]), "time is -100; expected seconds since the header's"),
        ("[10.0, NaN" + ", 0" * 126 + "]", "a value is nan; expected a number"),
        ("{", "is not JSON; expected"),
    ],
)
def test_a_wrong_line_is_one_error_with_file_and_line(tmp_path: Path, row: str, words: str) -> None:
    path = in_one_frame(tmp_path / f"gpu001{SUFFIX}", [json.dumps(HEADER.to_json()), row, "[]"])
    with pytest.raises(RunError) as wrong:
        read_run([str(path)])
    assert str(wrong.value).startswith(f"{path}:2: ")
    assert words in str(wrong.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("columns", [["gpu0.util"]], "is not a column"),
        ("columns", [["a", "%"], ["a", "%"]], "a column is there twice"),
        ("columns", [["a", "%"]] * 5_000, "expected a list of 4,096 at most"),
        ("gpus", "many", "gpus is 'many'"),
        ("every_s", 0, "every_s is 0; expected seconds between samples"),
        ("node", "\x1b[2J", "node is"),
        ("began", None, "began is None"),
    ],
)
def test_a_wrong_header_is_one_error(tmp_path: Path, key: str, value: object, words: str) -> None:
    head = json.dumps({**HEADER.to_json(), key: value})
    path = in_one_frame(tmp_path / f"gpu001{SUFFIX}", [head, json.dumps(HEADER.to_json())])
    with pytest.raises(RunError) as wrong:
        read_run([str(path)])
    assert f"{path}:1: " in str(wrong.value)
    assert words in str(wrong.value)


def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = in_one_frame(tmp_path / f"gpu001{SUFFIX}", [json.dumps(HEADER.to_json()), "[" + "0," * (4 << 20)])
    with pytest.raises(RunError, match=r"expected lines of less than 1,048,576 bytes"):
        read_run([str(path)])


@pytest.mark.long
def test_bytes_that_are_damaged_are_one_error(tmp_path: Path) -> None:
    path = written(tmp_path, 600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(RunError, match=f"{path}: .*; expected a file that can be read"):
        read_run([str(path)])


@pytest.mark.long
def test_a_day_is_read_with_as_much_memory_as_an_hour(tmp_path: Path) -> None:
    code = (
        "import sys, resource\n"
        "from pathlib import Path\n"
        "from clusterproof.plugins.training_run.formats.watch_samples import read_samples\n"
        "from clusterproof.plugins.training_run.files import RunFile\n"
        "sum(1 for _ in read_samples(RunFile(Path(sys.argv[1]))))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )

    def peak_kib(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", code, str(written(folder, count))]
        return int(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)

    assert peak_kib(2_160) < peak_kib(60) + 4_096


def test_a_metric_without_its_measure_is_left_out(tmp_path: Path) -> None:
    bare = json.dumps({**HEADER.to_json(), "gpus": [{}] * GPUS})
    path = in_one_frame(tmp_path / f"gpu001{SUFFIX}", [bare, json.dumps([0.0, *values(Random(1))])])
    metrics = {sample.metric for sample in watch_samples.read_samples(RunFile(path)) if isinstance(sample, Sample)}
    assert MEMORY not in metrics
    assert GPU in metrics
