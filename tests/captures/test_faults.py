"""Each check fails on captured logs with its fault and on nothing else, through `--cluster capture:`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clusterproof.plugins.benchmarks.load.options import COLLECTORS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.plugins.evidence.fact import ONLY_CAPTURED
from tests.faults.captured import FAULTS
from tests.faults.captured_fault import CapturedFault, changes, evaluated
from tests.testbed.outputs import P5, TRN1

FINDINGS = (Verdict.FAIL, Verdict.CONCERN)
LOGS = {
    name
    for name, check in node_checks().items()
    if check.collectors & (ONLY_CAPTURED | COLLECTORS) and "preflight" in occasions(check)
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_captured_fault_changes_just_the_verdicts_that_it_should(fault: CapturedFault) -> None:
    changed = changes(fault)
    verdicts = {name: result.verdict for name, result in changed.items()}
    assert verdicts == dict(fault.expect), {name: result.message for name, result in changed.items()}
    assert fault.words in changed[next(iter(fault.expect))].message


def test_every_check_over_logs_has_a_captured_fault_that_it_finds() -> None:
    names = {name for fault in FAULTS for name, verdict in fault.expect.items() if verdict in FINDINGS}
    assert names >= LOGS


@pytest.mark.parametrize(("files", "passed"), [(P5, LOGS - {"neuron.nccom"}), (TRN1, {"neuron.nccom"})])
def test_what_was_collected_on_a_healthy_node_has_no_finding(files: Mapping[str, str], passed: set[str]) -> None:
    results = evaluated(files)
    assert {name: result.message for name, result in results.items() if result.verdict in FINDINGS} == {}
    assert {name for name in LOGS if results[name].verdict is Verdict.PASS} == passed


def test_where_no_log_was_captured_the_checks_over_logs_do_not_apply() -> None:
    results = evaluated({"dmesg.txt": P5["dmesg.txt"]})
    assert {results[name].verdict for name in LOGS} == {Verdict.NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("output", "check", "message"),
    [
        ("WARNING: infoROM is corrupted at gpu 0000:53:00.0", "gpu.inforom", "GPU at 0000:53:00.0: the InfoROM is"),
        ("No devices were found", "gpu.gpu_count", "NVML starts and counts 0 GPUs; expected at least one"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "gpu.gpu_count", "NVML does"),
        (
            "Unable to determine the device handle for GPU 0000:64:00.0: Unknown Error",
            "gpu.gpu_answers",
            "0000:64:00.0",
        ),
    ],
)
def test_what_nvidia_smi_says_is_said_where_nothing_else_was_captured(output: str, check: str, message: str) -> None:
    result = evaluated({"nvidia-smi.txt": output + "\n"})[check]
    assert {finding.verdict for finding in result.by_verdict} & set(FINDINGS)
    assert message in result.message
