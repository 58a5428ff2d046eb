"""A site's own measurements: saved, read again, and compared for the same key and software."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.meters import baseline
from clusterproof.plugins.benchmarks.meters.baseline import BaselineError, BaselineFigure, Stack
from clusterproof.plugins.catalog.busbw import (
    BusbwKey,
)
from clusterproof.plugins.evidence.pairs import Reading

GIB = 2**30
P5 = BusbwKey(
    instance_type="p5.48xlarge", efa=32, nodes=2, ranks_per_node=8, collective="all_reduce", size_bytes=8 * GIB
)


STACK = Stack(driver="580.95.05", nccl="2.27.7", efa_installer="1.43.2", libfabric="2.1.0amzn5.0")
FIGURE = BaselineFigure(P5, STACK, 470.0, 12)


def test_figures_are_the_medians_of_the_readings_that_succeeded() -> None:
    well = [Reading(busbw_gb_per_s=busbw) for busbw in (470.0, 480.0, 300.0)]
    ill = [Reading(problem="failed"), Reading(busbw_gb_per_s=999.0, is_correct=False), Reading(busbw_gb_per_s=0.0)]
    other = replace(STACK, nccl="2.28.3")
    figures = baseline.figures_of(
        [(P5, STACK, each) for each in well + ill] + [(P5, other, Reading(busbw_gb_per_s=1.0))]
    )
    assert figures == (BaselineFigure(P5, STACK, 470.0, 3), BaselineFigure(P5, other, 1.0, 1))


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    figures = (FIGURE, BaselineFigure(replace(P5, nodes=4), Stack(), 380.5, 1))
    baseline.write(file, figures)
    assert baseline.read(file) == figures
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


def test_a_baseline_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    baseline.write(file, (FIGURE,))
    with pytest.raises(BaselineError, match="nothing to save; an older file is left as it is"):
        baseline.write(file, ())
    assert baseline.read(file) == (FIGURE,)
    with pytest.raises(BaselineError, match="No such file or directory; expected a file that can be written"):
        baseline.write(tmp_path / "none" / "baseline.json", (FIGURE,))


def test_the_figure_of_the_same_key_and_stack_comes_first_and_another_stack_says_so() -> None:
    newer = replace(FIGURE, stack=replace(STACK, driver="595.10", nccl=""), busbw_gb_per_s=481.0)
    same = baseline.expectation((FIGURE, newer), P5, STACK)
    assert same == baseline.Expectation(FIGURE)
    last = baseline.expectation((FIGURE, newer), P5, Stack(driver="600.1"))
    assert last is not None
    assert last.figure == newer
    assert last.stack_differs == (
        "driver 595.10, now 600.1; efa installer 1.43.2, now unknown; libfabric 2.1.0amzn5.0, now unknown"
    )
    assert baseline.expectation((FIGURE, newer), replace(P5, size_bytes=GIB), STACK) is None


WHOLE: Mapping[str, Any] = {
    "instance_type": "p5.48xlarge",
    "efa": 32,
    "nodes": 2,
    "ranks_per_node": 8,
    "collective": "all_reduce",
    "size_bytes": 8 * GIB,
    "busbw_gb_per_s": 470.0,
    "readings": 12,
    "stack": {"driver": "580", "nccl": "", "efa_installer": "", "libfabric": ""},
}


def output_of(**changes: Any) -> str:
    row = {key: value for key, value in {**WHOLE, **changes}.items() if value is not ...}
    return json.dumps({"schema": baseline.SCHEMA, "figures": [row]})


def test_a_whole_file_is_read() -> None:
    assert baseline.parse(output_of(), "b")[0].busbw_gb_per_s == 470.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "b: its JSON cannot be read"),
        ("[" * 100_000, "b: its JSON cannot be read"),
        ("[]", r"b: \[\] is not an object; expected a file of --save-baseline"),
        ('{"schema": "clusterproof baseline 1"}', "b: 'figures' is missing"),
        ('{"schema": 2, "figures": []}', "b: schema is 2; expected 'clusterproof baseline 1'"),
        ('{"schema": "clusterproof baseline 1", "figures": []}', "b: figures is not a list of 1 to 10000"),
        (output_of(efa=...), "b: figure 1: 'efa' is missing"),
        (output_of(colour=1), "b: figure 1: 'colour' is unknown"),
        (output_of(efa=-1), "b: figure 1: efa is -1; expected a whole number from 0"),
        (output_of(nodes=True), "b: figure 1: nodes is True; expected a whole number from 1"),
        (output_of(size_bytes=1e9), "b: figure 1: size_bytes is 1000000000.0"),
        (output_of(size_bytes=10**400), "b: figure 1: size_bytes is 1000"),
        (output_of(busbw_gb_per_s=float("nan")), "b: figure 1: busbw_gb_per_s is nan; expected a number above 0"),
        (output_of(busbw_gb_per_s=float("inf")), "b: figure 1: busbw_gb_per_s is inf"),
        (output_of(busbw_gb_per_s=-1), "b: figure 1: busbw_gb_per_s is -1"),
        (output_of(busbw_gb_per_s=10**400), "b: figure 1: busbw_gb_per_s is 1000"),
        (output_of(collective="all\nreduce"), "b: figure 1: collective is 'all.nreduce'; expected text"),
        (output_of(instance_type="x" * 300), "b: figure 1: instance_type is 'xxx"),
        (output_of(stack="580"), "b: figure 1: stack: '580' is not an object"),
        (
            output_of(stack={"driver": 580, "nccl": "", "efa_installer": "", "libfabric": ""}),
            "stack: driver is 580; expected text",
        ),
        (
            json.dumps({"schema": baseline.SCHEMA, "figures": [WHOLE, WHOLE]}),
            "b: two figures have the same key and stack; expected each once",
        ),
    ],
)
def test_a_file_that_is_not_right_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(BaselineError, match=message) as error:
        baseline.parse(text, "b")
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match=r"none: No such file or directory; expected a file of --save-baseline"):
        baseline.read(tmp_path / "none")
    (tmp_path / "odd").write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(BaselineError, match="byte 12 is not UTF-8; expected a file of --save-baseline"):
        baseline.read(tmp_path / "odd")
    (tmp_path / "huge").write_bytes(b" " * (baseline.MAX_BYTES + 1))
    with pytest.raises(BaselineError, match=r"has more than 16,777,216 bytes"):
        baseline.read(tmp_path / "huge")
