"""The meter of exact integers: real gloo ranks on both ends, and how output of faulty ranks is read."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.real_runs import torch_python
from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.launchers.client_server import ssh
from clusterproof.plugins.benchmarks.meters import NOT_FOUND, Meter, MeterSettings, Output
from clusterproof.plugins.benchmarks.meters import exact as exact_meter
from clusterproof.plugins.benchmarks.meters.exact import client, server
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.evidence.pairs import Failure, Pair, Reading
from tests.benchmarks.launchers.launched import PATIENT, cluster_of
from tests.benchmarks.launchers.launched import measured as launched
from tests.benchmarks.meters.ends import measured
from tests.testbed.exact import Change, by_processors, exact, exchanged_wrong
from tests.testbed.needs import needs_root

METER = METERS["exact"]
EACH = 4  # ranks per node
OVER_GLOO = "the ranks exchanged over gloo, not over NCCL: no GPU took part"


def printed(node: int, *changes: Change) -> Output:
    """The output of one of two nodes with four GPUs; changes count the ranks of both."""
    collectives: dict[str, Any] = json.loads(exact(*changes))["collectives"]
    answers = collectives["answers"][EACH * node : EACH * (node + 1)]
    about = {"of_each_node": EACH, "node": node, "host": f"host-{node}", "message_bytes": 4 << 25}
    return Output(f"a warning of NCCL\n{json.dumps({**collectives, **about, 'answers': answers})}\n", 0, seconds=31.0)


def read(*changes: Change) -> Reading:
    """What the meter reads from both ends, the client's first."""
    return METER.read(MeterSettings(), (printed(1, *changes), printed(0, *changes)))


def test_all_right_is_correct_and_as_fast_as_the_slowest_rank() -> None:
    reading = read()
    assert (reading.is_correct, reading.busbw_gb_per_s, reading.problem, reading.ranks) == (True, 371.2, "", 8)
    assert (reading.hosts, reading.size_bytes, reading.seconds) == (("host-0", "host-1"), 4 << 25, 31.0)


def test_an_end_that_is_killed_after_its_last_word_has_proven_as_much() -> None:
    reading = METER.read(MeterSettings(), (printed(1), replace(printed(0), exit=-9)))
    assert (reading.is_correct, reading.problem) == (True, "")


@pytest.mark.parametrize(
    ("change", "message", "culprit"),
    [
        (exchanged_wrong("all_to_all", 5, [0, 1, 2, 3, 4, 6, 7]), "GPU 1 of host-1", "host-1"),
        (exchanged_wrong("all_to_all", 2, [3], (0, 1, 2)), "between GPU 2 of host-0 and GPU 3 of host-0", "host-0"),
        (exchanged_wrong("all_to_all", 2, [6], (0, 1, 2)), "the link between GPU 2 of host-0 and GPU 2 of host-1", ""),
        (exchanged_wrong("all_reduce", None, [*range(8)], kind="float32"), "whose fault it is cannot be told", ""),
    ],
)  # fmt: skip
def test_wrong_elements_fail_the_pair_and_name_a_node_only_where_all_suspects_are_its_own(
    change: Change, message: str, culprit: str
) -> None:
    reading = read(change)
    assert (reading.is_correct, reading.busbw_gb_per_s, reading.culprit) == (False, None, culprit)
    assert message in reading.problem


def test_nodes_that_call_themselves_the_same_are_two_nodes() -> None:
    def same(report: dict[str, Any]) -> Output:
        return Output(json.dumps({**report, "host": "localhost"}), 0)

    change = exchanged_wrong("all_to_all", 2, [6], (0, 1, 2))
    ends = [same(json.loads(printed(node, change).text.splitlines()[1])) for node in (1, 0)]
    reading = METER.read(MeterSettings(), tuple(ends))
    assert "the link between GPU 2 of the first node and GPU 2 of the second node" in reading.problem


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((), "it printed nothing"),
        ((Output("", 0), Output("", 0)), "it printed nothing"),
        ((printed(1), Output("", None)), "it did not end in its time"),
        ((printed(1), Output("Segmentation fault", 139)), "it ended with 139; Segmentation fault"),
        ((printed(1), Output('{"answers": []}', 0)), "expected"),
        ((printed(1), Output("[" * 100_000, 0)), "["),
    ],
)
def test_what_no_rank_of_an_end_proves_is_not_correct(outputs: tuple[Output, ...], message: str) -> None:
    reading = METER.read(MeterSettings(), outputs)
    assert (reading.busbw_gb_per_s, reading.is_correct) == (None, None)
    assert message in reading.problem


def test_an_operation_that_nccl_did_not_make_and_a_rank_without_an_answer_are_failures() -> None:
    def refused(report: dict[str, Any]) -> None:
        report["collectives"]["answers"][6]["operations"][3].update(why="unsupported", rounds=0)

    def silent(report: dict[str, Any]) -> None:
        report["collectives"]["answers"][6] = {"error": "no answer in 100 s"}

    assert read(refused).problem == "reduce-scatter of float32 was not made: unsupported"
    assert read(silent).problem == "rank 6: no answer in 100 s"


def test_what_processors_exchanged_measures_no_gpu() -> None:
    reading = read(by_processors)
    assert (reading.busbw_gb_per_s, reading.is_correct) == (None, None)
    assert reading.problem == f"{OVER_GLOO}; expected nccl"


def test_sums_that_are_wrong_on_one_node_blame_neither() -> None:
    reading = read(
        exchanged_wrong("all_reduce", None, [4, 5, 6, 7], (*range(20),), kind="float32"),
        exchanged_wrong("all_reduce", None, [4], (30, 31), kind="float32"),
    )
    assert (reading.is_correct, reading.culprit) == (False, "")
    assert "whose fault it is cannot be told" in reading.problem


@pytest.mark.long
def test_a_node_without_pytorch_says_what_to_do() -> None:
    reading, _ = measured(METER, MeterSettings(program="/bin/false"))
    assert "/bin/false is not a program here that has PyTorch; install it, or name a Python" in reading.problem
    assert reading.failure is Failure.NO_PROGRAM


@needs_root
@pytest.mark.long
@pytest.mark.parametrize(
    "is_linked", [False, True], ids=["of another user", "of root's, in an environment of another's"]
)
def test_root_runs_no_python_that_another_user_decides_about(tmp_path: Path, is_linked: bool) -> None:
    """One that `--meter-program` names is run all the same."""
    program = tmp_path / "environment/bin/python3"
    program.parent.mkdir(parents=True)
    of_root = tmp_path / "python3"
    of_root.write_text(f"#!/bin/sh\necho >>{tmp_path / 'sprung'}\n")
    of_root.chmod(0o755)
    program.symlink_to(of_root) if is_linked else of_root.rename(program)
    os.chown(tmp_path / "environment", 41_001, 41_001)
    os.chown(program, 41_001, 41_001, follow_symlinks=False)
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    for settings, is_run in ((MeterSettings(), False), (MeterSettings(program=str(program)), True)):
        words = ["sh", "-c", server(settings, 1)]
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert (tmp_path / "sprung").exists() == is_run, ran.stderr
        assert ran.returncode != NOT_FOUND or "(of others)" in ran.stderr  # where no other Python here has PyTorch


def of_two_ends(meter: Meter) -> Reading:
    """The output of two real ranks on each of two ends. Skips without PyTorch."""
    python = torch_python(None)
    if python is None:
        pytest.skip("no PyTorch here: apt-get install python3-torch")
    settings = MeterSettings(program=python, ranks_per_node=2)
    campaign = MeterCampaign(meter, settings, cluster_of({"a": "", "b": ""}, "local"), PATIENT)
    with ssh(campaign) as launcher:
        return launched(launcher, [Pair("a", "b")])["a~b"]


@pytest.mark.long
def test_real_ranks_of_two_ends_meet_and_agree_on_every_element_but_are_no_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact_meter, "BUDGET_S", 1.0)
    meter = replace(METER, server=partial(server, backend="gloo"), client=partial(client, backend="gloo"))
    reading = of_two_ends(meter)
    assert reading.problem == f"{OVER_GLOO}; expected nccl"  # reported only if the ranks have everything else right
    assert (reading.is_correct, reading.busbw_gb_per_s) == (None, None)


@pytest.mark.long
def test_ends_without_gpus_say_so_and_measure_nothing() -> None:
    reading = of_two_ends(METER)
    assert (reading.is_correct, reading.busbw_gb_per_s) == (None, None)
    assert "PyTorch does not count its GPUs: AssertionError: Torch not compiled with CUDA enabled" in reading.problem
