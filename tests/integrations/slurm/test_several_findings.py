"""A node with several findings: its reason and its log name the worst, and say how many more there are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import health_check, installation, rehearsal, slurm_conf
from clusterproof.integrations.slurm.call import MAX_LOGGED
from clusterproof.integrations.slurm.checking import NoVerdict
from clusterproof.integrations.slurm.rehearsal import Evaluated, Rehearsal
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.slurm_conf import SlurmReport
from clusterproof.integrations.slurm.verdict import MAX_REASON, PREFIX, CheckFinding, CheckRun, reason_of
from clusterproof.plugins.core.result import Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Verdict
from tests.integrations.slurm.calls import call_of, state_in

LOST = CheckFinding("gpu.gpu_answers", "fail", ", ".join(f"GPU {number}: GPU_IS_LOST" for number in range(16)))


@pytest.mark.parametrize(
    ("others", "end"),
    [
        (["gpu.no_xid"], "…; also gpu.no_xid"),
        (["gpu.no_xid", "gpu.no_xid", "gpu.gpu_answers"], "…; also gpu.no_xid"),
        ([f"gpu.check_{number}" for number in range(20)], "gpu.check_3 and 16 more"),
        (["x" * 300, "gpu.no_xid"], "…; and 2 more"),
    ],
    ids=["one", "one twice, and the same again", "many", "a name that is too long"],
)
def test_a_long_first_finding_leaves_room_in_the_reason_for_what_else_fails(others: Sequence[str], end: str) -> None:
    reason = reason_of((LOST, *(CheckFinding(check, "fail", "") for check in others)))
    assert reason.startswith(f"{PREFIX}gpu.gpu_answers: GPU 0: GPU_IS_LOST")
    assert reason.endswith(end)
    assert len(reason) <= MAX_REASON


def test_the_log_has_failures_first_and_says_how_many_findings_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = [CheckFinding(f"host.check_{number}", "incomplete", "unread") for number in range(MAX_LOGGED)]
    findings = (*gaps, CheckFinding("host.swap", "concern", "swap"), LOST)
    call = call_of("prolog", state_in(tmp_path))
    call.log_run(CheckRun("boot", 100.0, 0.4, 47, findings, None, None))
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("clusterproof: test: fail: gpu.gpu_answers: ")
    assert lines[-1] == "clusterproof: test: 2 more findings, 1 incomplete, 1 concern"
    assert len(lines) == 1 + MAX_LOGGED + 1


def silent(check: str, *devices: str) -> CheckFinding:
    return CheckFinding(check, "fail", f"{', '.join(devices)}: hangs; expected an answer", devices)


MOUNTS = "storage.mounts_alive"


@pytest.mark.parametrize(
    ("first", "second", "confirmed"),
    [
        ([silent(MOUNTS, "/fsx")], [silent(MOUNTS, "/fsx")], [silent(MOUNTS, "/fsx")]),
        ([silent(MOUNTS, "/fsx")], [silent(MOUNTS, "/home")], []),
        ([silent(MOUNTS, "/fsx", "/home")], [silent(MOUNTS, "/home")], [silent(MOUNTS, "/home")]),
        ([silent(MOUNTS, "/home")], [silent(MOUNTS, "/fsx", "/home")], [silent(MOUNTS, "/home")]),
        (
            [silent("gpu.driver_answers_in_time")],
            [silent("gpu.driver_answers_in_time")],
            [silent("gpu.driver_answers_in_time")],
        ),
        ([silent("gpu.driver_answers_in_time")], [silent(MOUNTS, "/fsx")], []),
        ([LOST, silent(MOUNTS, "/fsx")], [], [LOST]),
    ],
    ids=["the same", "another", "one of two", "one more", "the driver", "another check", "what answered"],
)
def test_what_did_not_answer_drains_if_a_second_look_finds_that_it_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: list[CheckFinding],
    second: list[CheckFinding],
    confirmed: list[CheckFinding],
) -> None:
    monkeypatch.setattr(health_check, "RETRY_S", 0.0)
    monkeypatch.setattr(health_check, "check", lambda *_: CheckRun("boot", 100.0, 0.4, 47, tuple(second), None, None))
    call = call_of("health-check", state_in(tmp_path))
    assert health_check.confirmed(call, tuple(first), None) == tuple(confirmed)


@pytest.mark.parametrize("problem", [NoVerdict("the probe gave no evidence"), BrokenPipeError("Broken pipe")])
def test_a_second_look_that_breaks_hides_no_finding_that_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def broken(*_: object) -> CheckRun:
        raise problem

    monkeypatch.setattr(health_check, "RETRY_S", 0.0)
    monkeypatch.setattr(health_check, "check", broken)
    call = call_of("health-check", state_in(tmp_path))
    assert health_check.confirmed(call, (LOST, silent(MOUNTS, "/fsx")), None) == (LOST,)


PROBE_THAT_ENDS = """
from clusterproof.integrations.slurm import checking, standby
from clusterproof.integrations.slurm.settings import DEFAULT
standby._probe = None  # calling it fails, as what half an upgrade has left does
try:
    checking.check(("prolog",), DEFAULT, 60.0, None)
except checking.NoVerdict as why:
    print(why)
"""


def test_a_probe_that_ends_without_an_answer_is_no_verdict_on_the_node() -> None:
    ran = subprocess.run([sys.executable, "-c", PROBE_THAT_ENDS], capture_output=True, text=True, check=True)
    assert ran.stdout == "the probe gave no evidence: the answer is empty\n"


def test_what_a_check_found_is_rehearsed_apart_from_what_it_could_not_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Finding(Verdict.FAIL, "2 errors; expected 0", ("GPU 3",))
    unread = Finding(Verdict.INCOMPLETE, "the counter is not read", ("GPU 5",), "NVML")
    result = with_findings(Result("gpu.no_uncorrected_ecc", "gpu001", Verdict.FAIL), (found, unread))
    monkeypatch.setattr(rehearsal, "check", lambda *arguments: arguments[-1](result))
    rehearsal.rehearse("health-check", Settings(state=str(tmp_path)))
    rows = [Evaluated(**row) for row in json.loads(capsys.readouterr().out)["evaluated"]]
    assert [(row.verdict, row.message, row.cause) for row in rows] == [
        ("fail", "GPU 3: 2 errors; expected 0", ""),
        ("incomplete", "GPU 5: the counter is not read", "NVML"),
    ]
    monkeypatch.setattr(
        installation, "rehearsed", lambda occasion, _: Rehearsal(occasion, 40.0, 1.0, tuple(rows), "p5.48xlarge")
    )
    monkeypatch.setattr(slurm_conf, "slurm_report_of", lambda _: SlurmReport({}, None, "no answer"))
    installation.check_installation("gpu001")
    shown = " ".join(capsys.readouterr().out.split())
    assert "health check 1.00 s of 40 s: 1 checks evaluated (1 fail, 1 incomplete), 0 not applicable" in shown
    assert "evaluated gpu.no_uncorrected_ecc" in shown
    assert "for as long as these cannot be evaluated: gpu.no_uncorrected_ecc" in shown
