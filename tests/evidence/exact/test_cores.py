"""This machine's cores without PyTorch: they compute correctly, and a faulty core is named."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.load.tool import MAX_OUTPUT_BYTES
from clusterproof.plugins.evidence.exact.on_node import cores

CORES = os.sched_getaffinity(0)
REQUEST: dict[str, Any] = {"kinds": "", "budget_s": 0.1, "seed": 1, "within_s": 600.0, "most_mib": 8}


@pytest.mark.long
def test_every_core_of_this_machine_computes_right(capsys: pytest.CaptureFixture[str]) -> None:
    cores.main(REQUEST)
    report = json.loads(capsys.readouterr().out)
    assert (report["wrong"], report["errors"]) == ([], [])
    assert {entry["type"]: entry["cores"] for entry in report["types"]} == dict.fromkeys(
        ("scalar", "SHA-256", "memory"), report["cores"]
    )
    assert report["memory_mib"] == 8 * report["cores"]
    assert report["cores"] == len(CORES) <= report["online"] == os.cpu_count()


def test_a_dot_product_that_is_wrong_is_found_and_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "mul", lambda left, right: left * right + (1 if isinstance(left, float) else 0))
    (wrong, *_) = cores.dot_products(1, 0.0)["wrong"]
    assert (wrong["where"], wrong["again"], wrong["of"]) == ("a dot product", 8, 8)


def test_a_chain_of_hashes_that_ends_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.hashes()["wrong"] == []
    monkeypatch.setattr(cores, "FIRST", b"exacu")
    assert cores.hashes()["wrong"][0]["where"] == "a chain of hashes"


def test_what_a_core_had_wrong_before_its_process_died_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "FIRST", b"exacu")
    monkeypatch.setattr(cores, "memory", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {min(CORES)})
    report = cores.measured(REQUEST)
    assert [(wrong["core"], wrong["where"]) for wrong in report["wrong"]] == [(min(CORES), "a chain of hashes")]
    assert report["errors"] == [{"core": min(CORES), "error": "its process ended with signal 9 and no answer"}]


def test_what_many_cores_have_wrong_stays_within_an_answer_and_hides_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [{"where": "x" * 60, "bits": [*range(8)], "again": 8, "of": 8}] * 9
    answer = {"types": [{"type": name, "products": 1, "wrong": wrong} for name in ("scalar", "memory")]}
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {*range(192)})
    monkeypatch.setattr(cores, "forked", lambda *_: [answer] * 192)
    report = cores.measured(REQUEST)
    assert {wrong["core"] for wrong in report["wrong"]} == {*range(192)}
    assert [entry["wrong_cores"] for entry in report["types"]] == [192, 192]
    assert len(json.dumps(report)) < MAX_OUTPUT_BYTES


def test_a_type_that_one_core_alone_did_not_multiply_is_an_error_of_that_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its multiplier may lose a bit in every product, as a library would that rounds."""
    why = {"type": "float32", "why": "PyTorch 2.9 rounds operands of 24 bits"}
    made, lacking = {"type": "float32", "products": 4, "wrong": []}, {"type": "float8", "why": "no product of it"}
    answers = [{"types": [of_type, lacking]} for of_type in (why, made, made)]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(cores, "forked", lambda *_: answers)
    (error,) = cores.measured(REQUEST)["errors"]
    assert error == {"core": 0, "error": f"float32 was multiplied on other cores, not on it: {why['why']}"}


class Memory(bytearray):
    """Memory in which bit 5 of one byte reads inverted."""

    def __getitem__(self, places: Any) -> bytes:  # type: ignore[override]
        read = bytearray(super().__getitem__(places))
        if places.start == cores.BLOCK:
            read[77] ^= 1 << 5
        return bytes(read)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_memory_that_loses_a_bit_is_found_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.memory(2 * cores.BLOCK, 1)["wrong"] == []
    monkeypatch.setattr("mmap.mmap", lambda _, length: Memory(length))
    (wrong, *_) = cores.memory(2 * cores.BLOCK, 1)["wrong"]
    assert (wrong["where"], wrong["bits"], wrong["again"]) == (
        f"byte {cores.BLOCK + 77} of what was written",
        [5],
        8,
    )


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({}, 1000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 1000),
        ({"sys/fs/cgroup/memory.max": f"{300 << 20}\n"}, 300),  # a container's
        (
            {
                "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                "sys/fs/cgroup/slurm/job_7/memory.max": f"{200 << 20}\n",
                "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            },
            200,
        ),
        (
            {
                "proc/self/cgroup": "9:cpu,memory:/slurm/job_7\n1:name=systemd:/slurm/job_7\n0::/\n",
                "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": f"{100 << 20}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            100,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, 1000),
    ],
)
def test_no_more_memory_is_taken_than_control_groups_allow(tmp_path: Path, files: dict[str, str], mib: int) -> None:
    for name, text in {"proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {1000 << 10} kB\n", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores.available_bytes(str(tmp_path)) == mib << 20
