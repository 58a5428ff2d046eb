"""A virtual machine with one H200 (driver 580.159.04, PyTorch 2.11, NCCL 2.28), recorded by the suite: its results.

Idle; after jobs with a faulting kernel (Xid 13, 31 and 43) and a crashing process; with a process that holds the GPU;
under load; and as a job sees it. Names were replaced by --redact.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.runs import Runs

CHECKS = ("--pyargs", "clusterproof.checks")
H200 = Path(__file__).parent / "h200"
OF_THE_MACHINE = {  # its name server is absent, and nothing synchronises its clock
    "network.nameservers": Verdict.FAIL,
    "host.clock_sync": Verdict.CONCERN,
    "host.ulimits": Verdict.CONCERN,
}


def of_recording(runs: Runs, name: str, *arguments: str) -> Mapping[str, Result]:
    """Each check's result on a recording."""
    runs.run("--cluster", f"replay:{H200 / name}", *arguments, "--results", str(runs.results_file), *CHECKS)
    return {result.check: result for result in runs.results}


def findings(results: Mapping[str, Result]) -> dict[str, Verdict]:
    return {
        name: result.verdict for name, result in results.items() if result.verdict in (Verdict.FAIL, Verdict.CONCERN)
    }


def test_nothing_is_reported_of_an_idle_gpu(runs: Runs) -> None:
    results = of_recording(runs, "idle")
    assert findings(results) == OF_THE_MACHINE
    assert (
        len([name for name, result in results.items() if name.startswith("gpu.") and result.verdict is Verdict.PASS])
        >= 20
    )
    assert results["gpu.inforom"].verdict is results["gpu.row_remap"].verdict is Verdict.PASS


def test_faults_of_programs_are_no_faults_of_the_gpu(runs: Runs) -> None:
    results = of_recording(runs, "after_crashes")
    assert findings(results) == {**OF_THE_MACHINE, "host.segfaults": Verdict.CONCERN}
    assert results["gpu.no_xid"].verdict is Verdict.PASS


def test_a_process_that_holds_the_gpu_is_named(runs: Runs) -> None:
    results = of_recording(runs, "held")
    assert set(findings(results)) == {*OF_THE_MACHINE, "host.segfaults", "gpu.no_leftover_processes"}
    assert "python3 (pid 1611)" in results["gpu.no_leftover_processes"].message


def test_a_job_gets_what_the_node_has(runs: Runs) -> None:
    results = of_recording(runs, "job", "-m", "job")
    assert findings(results) == {"host.ulimits": Verdict.CONCERN}
    assert {name for name, result in results.items() if result.verdict is Verdict.INCOMPLETE} == set()
    assert (
        results["software.container_devices"].verdict is results["software.container_libraries"].verdict is Verdict.PASS
    )


@pytest.mark.parametrize(
    ("check", "verdict", "words"),
    [
        ("gpu.gpu_exact", Verdict.PASS, ""),
        ("gpu.gpu_gemm", Verdict.INCOMPLETE, "666.8 TFLOP/s; expected further GPUs or nodes to compare with"),
        ("gpu.gpu_bandwidth", Verdict.INCOMPLETE, "host to GPU by PyTorch: 54.58 GB/s"),
        ("gpu.exact_step", Verdict.INCOMPLETE, "no majority among GPUs like it (float32, NVIDIA H200, 132 SMs"),
        ("gpu.exact_collective", Verdict.NOT_APPLICABLE, "one GPU exchanges nothing"),
        ("gpu.node_busbw", Verdict.NOT_APPLICABLE, "one GPU: there is no link to reduce over"),
        ("gpu.dcgm_diag", Verdict.INCOMPLETE, "not on this node (no dcgmi"),
    ],
)
def test_what_was_measured_under_load_is_read(runs: Runs, check: str, verdict: Verdict, words: str) -> None:
    result = of_recording(runs, "perf", "-m", "perf", "-k", check.rpartition(".")[2])[check]
    assert (result.verdict, words in result.message) == (verdict, True), result.message


@pytest.mark.parametrize(
    ("name", "words"),
    [("idle", ()), ("after_crashes", ()), ("held", ()), ("perf", ("-m", "perf")), ("job", ("-m", "job"))],
)
def test_without_names_all_is_said_as_with_them(runs: Runs, name: str, words: tuple[str, ...]) -> None:
    named = of_recording(runs, name, *words)
    nameless = of_recording(runs, name, *words, "--redact")
    assert {check: result.verdict for check, result in nameless.items()} == {
        check: result.verdict for check, result in named.items()
    }
