"""Training steps under PyTorch are repeatable, no flipped bit goes unseen, and GPUs vote on their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.evidence.exact.facts_step import Opinion, opinion
from tests.evidence.exact.in_torch import TorchPython
from tests.testbed.compiled import shared_library

PROGRAM = "tests.evidence.exact.steps_with_torch"
STEP = 5


def report_of(python: TorchPython, case: str, *arguments: str) -> dict[str, Any]:
    """The output of one case of the program."""
    report: dict[str, Any] = json.loads(python.printed_by(PROGRAM, case, *arguments))
    return report


@pytest.fixture(scope="module")
def clean(python: TorchPython) -> list[dict[str, Any]]:
    """The steps without a fault, by type."""
    return list(report_of(python, "clean")["types"])


@pytest.mark.long
@pytest.mark.any_user
def test_steps_are_the_same_in_another_process_and_when_repeated(
    python: TorchPython, clean: list[dict[str, Any]]
) -> None:
    assert [entry["type"] for entry in clean] == ["float32", "bfloat16"]
    afresh = json.loads(python.printed_afresh_by(PROGRAM, "clean"))
    assert afresh["types"] == clean
    for entry in clean:
        assert len(set(entry["digests"])) == len(entry["digests"]) == 16
        assert (entry["differing"], entry["passes"]) == ([], 2)
    assert clean[0]["digests"] != clean[1]["digests"]


@pytest.mark.long
@pytest.mark.any_user
@pytest.mark.parametrize("case", ["a bit of a gradient", "a bit of a weight"])
def test_a_bit_that_flips_on_one_gpu_gives_it_another_digest_from_that_step_on(
    python: TorchPython, clean: list[dict[str, Any]], case: str
) -> None:
    for entry, right in zip(report_of(python, case)["types"], clean, strict=True):
        differs = [own != other for own, other in zip(entry["digests"], right["digests"], strict=True)]
        assert differs.index(True) == STEP
        assert entry["differing"] == []  # it repeats: only the other GPUs reveal it


@pytest.mark.long
@pytest.mark.any_user
@pytest.mark.parametrize("case", ["once in the first pass", "once in a later pass"])
def test_a_bit_that_flips_once_makes_a_gpu_differ_from_itself(python: TorchPython, case: str) -> None:
    for entry in report_of(python, case)["types"]:
        assert entry["differing"] == [{"pass": 1, "step": STEP}]


@pytest.mark.long
@pytest.mark.any_user
def test_what_differed_before_a_gpu_was_lost_is_kept(python: TorchPython) -> None:
    report = report_of(python, "lost after a bit has flipped")
    assert report["error"] == "RuntimeError: CUDA error: unspecified launch failure"
    assert report["types"][0]["differing"] == [{"pass": 1, "step": STEP}]


@pytest.mark.long
@pytest.mark.any_user
def test_a_digest_counts_every_bit_and_where_it_is(python: TorchPython) -> None:
    digests = report_of(python, "digests")["digests"]
    assert len(set(digests)) == len(digests) == 36


LIBRARIES = {
    "libcublas.so.12": "int cublasGetProperty(int which, int *value) { *value = 12 - 4 * which; return 0; }",
    "libcublasLt.so.12": "unsigned long cublasLtGetVersion(void) { return 120804; }",
    "libcudart.so.12": "",
}


@pytest.mark.long
@pytest.mark.any_user
def test_software_is_alike_only_with_the_same_libraries_inside_and_the_same_overrides(
    python: TorchPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name, text in LIBRARIES.items():
        source, path = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(text)
        path.write_bytes(shared_library(source, name))
        paths.append(str(path))
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    listed = set(report_of(python, "software", *paths)["software"])
    assert {*LIBRARIES, "cuBLAS 12.8.4", "cuBLASLt 120804", "NVIDIA_TF32_OVERRIDE=1"} <= listed


AGREES, WRONG, EITHER = Opinion.AGREES, Opinion.WRONG, Opinion.EITHER
SOFTWARE, UNKNOWN = Opinion.SOFTWARE, Opinion.UNKNOWN


@pytest.mark.parametrize(
    ("own", "votes", "expected"),
    [
        ("a", {"a": 8}, AGREES),
        ("a", {"a": 7, "b": 1}, AGREES),
        ("b", {"a": 7, "b": 1}, WRONG),
        ("b", {"a": 6, "b": 1, "c": 1}, WRONG),
        ("b", {"a": 2, "b": 1}, WRONG),
        ("b", {"a": 4, "b": 4}, SOFTWARE),
        ("a", {"a": 4, "b": 4}, SOFTWARE),
        ("b", {"a": 6, "b": 2}, SOFTWARE),  # two GPUs do not fail in the same way
        ("a", {"a": 1, "b": 1, "c": 1}, SOFTWARE),
        ("a", {"a": 1}, UNKNOWN),
        ("a", {"a": 1, "b": 1}, UNKNOWN),
        ("a", {}, UNKNOWN),
    ],
)
def test_who_differs_is_named_by_vote(own: str, votes: dict[str, int], expected: Opinion) -> None:
    assert opinion(own, votes, ["a"]) is expected


@pytest.mark.parametrize(
    ("beside", "expected"),
    [(["a"], WRONG), (["c", "a"], WRONG), ([], EITHER), (["c"], EITHER), (["b"], EITHER)],
)
def test_a_gpu_is_wrong_only_where_another_of_its_node_has_what_most_have(beside: list[str], expected: Opinion) -> None:
    assert opinion("b", {"a": 6, "b": 1, "c": 1}, beside) is expected
