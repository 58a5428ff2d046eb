"""Logs that were packed, rotated or saved by Windows are read like others, and what is missing of them is said."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from clusterproof.plugins.case import log_file, names
from clusterproof.plugins.case.ends import HEAD_BYTES, TAIL_BYTES
from clusterproof.plugins.case.folder import collect
from tests.case.files import BROKEN_GPU, CUDA_OF_3, SACCT, STEPS, XID_79, case_of, written

RECORD = {"sacct.txt": SACCT.format(state="FAILED")}
FAILED = "2026-03-01 08:00:00,000 [rank3]: KeyError: 'caption'\n"
GOES_ON = "".join(f"2026-03-01 08:00:{second},000 iteration {second}/900 | loss: 2.0\n" for second in range(10, 20))


def windows(text: bytes) -> bytes:
    return text.decode().replace("\n", "\r\n").encode("utf-16")


WAYS = {
    "{}.gz": gzip.compress,
    "{}.1.gz": gzip.compress,
    "{}.zst": zstandard.ZstdCompressor().compress,
    "{}.1": bytes,
    "{}-20260301": bytes,
    "{}": windows,
}


@pytest.mark.parametrize(("form", "packed"), WAYS.items(), ids=WAYS)
def test_a_log_is_read_however_it_is_packed(form: str, packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = written(tmp_path, RECORD)
    for name in ("rank_1.log", "rank_3.log", "gpu003-dmesg.txt"):
        (folder / form.format(name)).write_bytes(packed(BROKEN_GPU[name].encode()))
    case = case_of(folder, {})
    assert (case.verdict.nodes, case.verdict.standing, case.verdict.rank) == (("gpu003",), "established", 3)


@pytest.mark.parametrize("name", ["gpu003/dmesg.1", "gpu003/dmesg.2.gz", "gpu003/kern.log.1", "gpu003-kern.log.3.gz"])
def test_a_rotated_kernel_log_is_of_the_node_that_its_folder_or_name_has(name: str, tmp_path: Path) -> None:
    content = XID_79.format(time="08:00:01").encode()
    folder = written(tmp_path, {**RECORD, "rank_3.log": STEPS + CUDA_OF_3})
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert case_of(folder, {}).verdict.nodes == ("gpu003",)


@pytest.mark.parametrize(
    ("name", "rank"),
    [("log.rank.3", 3), ("job.task-5", 5), ("rank_3.log.1.gz", 3), ("3.out.2", 3), ("train.log.1", None)],
)
def test_the_number_of_a_rank_is_not_that_of_a_part(name: str, rank: int | None) -> None:
    assert names.rank_of(name) == rank


def test_a_kernel_log_named_behind_a_dot_is_of_the_whole_name() -> None:
    assert log_file.node_of(Path("case/dmesg.gpu-12"), Path("case")) == "gpu-12"


def test_a_job_outlives_in_the_next_part_of_a_rotated_log_what_it_said_in_the_one_before(tmp_path: Path) -> None:
    parts = {"train.log.2": STEPS, "train.log.1": FAILED, "train.log": GOES_ON}
    case = case_of(tmp_path, {**RECORD, **parts})
    assert (case.collected.events, [event.sign for event in case.collected.outlived]) == ((), ["exception"])
    assert case.collected.read == ("1 record of Slurm", "1 file of output")
    assert case.collected.outlived[0].source == f"train.log:{STEPS.count(chr(10)) + 1}"


@pytest.mark.parametrize("damaged", ["train.log.1", "train.log"])
def test_a_part_of_a_rotated_log_that_is_no_text_is_said(damaged: str, tmp_path: Path) -> None:
    written(tmp_path, {**RECORD, "train.log.2": FAILED, "train.log.1": STEPS, "train.log": STEPS})
    (tmp_path / damaged).write_bytes(b"\0\xff\xfe\x80")
    collected = collect(tmp_path)
    assert [event.source for event in (*collected.events, *collected.outlived)] == ["train.log:1"]
    assert f"{damaged}: its form is not known" in collected.missing


def test_of_a_rotated_log_one_part_is_in_memory_at_a_time(tmp_path: Path) -> None:
    part = STEPS + f"{'x' * 15_000}\n" * 25
    most: list[int] = []
    for earlier in (1, 10):
        written(
            tmp_path, {**RECORD, "train.log": part, **{f"train.log.{number + 1}": part for number in range(earlier)}}
        )
        tracemalloc.start()
        assert collect(tmp_path).read == ("1 record of Slurm", "1 file of output")
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] - most[0] < 3 * len(part)


@pytest.mark.parametrize("parts", [("train.out.1", "train.out.0"), ("train.out.0", "train.out.1", "train.out")])
def test_files_that_may_each_be_of_another_rank_are_no_parts_of_one(parts: tuple[str, ...], tmp_path: Path) -> None:
    texts = (FAILED.partition(" [rank3]: ")[2], GOES_ON, GOES_ON)
    case = case_of(tmp_path, {**RECORD, **dict(zip(parts, texts, strict=False))})
    assert [event.sign for event in case.collected.events] == ["exception"]


def noise(size: int) -> str:
    """Text that hardly packs."""
    source = random.Random(0)
    return "".join(f"{source.randbytes(8_192).hex()}\n" for _ in range(size // 16_384))


@pytest.mark.long
@pytest.mark.parametrize("cut", [0, 30_000])
def test_of_a_packed_log_its_beginning_and_its_end_are_read(cut: int, tmp_path: Path) -> None:
    text = f"{CUDA_OF_3}{noise(HEAD_BYTES + TAIL_BYTES + 100_000)}{FAILED}".encode()
    packed = gzip.compress(text, 1)
    written(tmp_path, RECORD)
    (tmp_path / "job.out.gz").write_bytes(packed[: len(packed) - cut])
    collected = collect(tmp_path)
    assert [event.sign for event in collected.events] == ["illegal", *([] if cut else ["exception"])]
    assert [gap for gap in collected.missing if "job.out.gz" in gap] == [
        *(["job.out.gz: it breaks off; expected a whole file"] if cut else []),
        "job.out.gz: all between its first 2 MiB and its last 6 MiB",
    ]


def test_a_log_that_unpacks_to_too_much_keeps_no_other_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.case.folder.MAX_BYTES", 9 << 20)
    written(tmp_path, {**RECORD, "rank_3.log": FAILED})
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(bytes(10 << 20), 1))
    case = case_of(tmp_path, {})
    assert case.verdict.cause == "code"
    assert any(gap.startswith("a.log.gz: with it more than 9,437,184 bytes") for gap in case.collected.missing)


def test_a_kernel_log_that_breaks_off_keeps_no_node(tmp_path: Path) -> None:
    ready = "2026-03-01T07:30:00,000000+00:00 nvme nvme0: ready\n"
    written(tmp_path, RECORD)
    (tmp_path / "gpu002-dmesg.txt.gz").write_bytes(gzip.compress(ready.encode() * 20)[:-8])
    case = case_of(tmp_path, {})
    assert case.advice.nodes["gpu002"] == "not known"
    assert "gpu002-dmesg.txt.gz: it breaks off; expected a whole file" in case.collected.missing


def test_an_empty_file_is_an_output(tmp_path: Path) -> None:
    assert collect(written(tmp_path, {**RECORD, "slurm-77.err": ""})).read == ("1 record of Slurm", "1 file of output")
