"""stress-ng: its arguments, the real program's output, and that stopping it keeps the output so far."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.load.options import LoadOptions
from clusterproof.plugins.benchmarks.load.stress import EACH_S_MIB
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.stress import StressNg
from tests.benchmarks.load.loaded import evidence_of, loaded
from tests.checks.perf.given import evaluated
from tests.testbed.load import loadable_p5, with_speed
from tests.testbed.needs import needs_nodes, needs_root, needs_stress_ng

CHECK = "host.stress_ng"


@needs_stress_ng
@needs_root
def test_the_real_one_verifies_cores_and_memory_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    collector = loaded({"stress_ng"}, LoadOptions(stress_s=5)).collectors["stress_ng"]
    assert collector.status is Status.READ, collector.detail
    ran = StressNg(collector.value)
    assert (ran.exit, ran.failed, ran.lacked_memory) == (0, (), False), ran.output
    assert set(ran.done) == {"cpu", "vm"}
    assert f"--vm-bytes {ran.memory_mib}m" in ran.called
    assert ran.memory_mib == 5 * EACH_S_MIB * len(os.sched_getaffinity(0))
    assert list(tmp_path.iterdir()) == []
    due = Verdict.INCOMPLETE if ran.kernel_unread else Verdict.PASS  # in a container without /dev/kmsg
    assert evaluated(CHECK, "stress_ng", {"gpu001": collector.value}).verdict is due


@needs_nodes
def test_one_that_hangs_is_ended_and_what_it_said_counts() -> None:
    symptoms = ("stress fail vm: detected 24 bit errors while stressing memory", "stress hangs")
    chosen = LoadOptions(stress_s=1, seconds={"stress_ng": 25.0})  # it is stopped after 10 of them
    value = evidence_of(with_speed(loadable_p5(), *symptoms), "stress_ng", chosen).value
    assert value["exit"] is None
    result = evaluated(CHECK, "stress_ng", {"gpu001": value})
    assert result.verdict is Verdict.FAIL
    assert "vm: detected 24 bit errors" in result.message
    assert "incomplete: stress-ng still ran after its 1 s and was killed" in result.message
    value["output"] = ""
    assert evaluated(CHECK, "stress_ng", {"gpu001": value}).verdict is Verdict.INCOMPLETE


GOOD = {
    "command": "stress-ng",
    "exit": 0,
    "seconds": 60.1,
    "cores": 2,
    "memory_mib": 100,
    "budget_s": 60,
    "kernel": [],
    "kernel_lost": 0,
    "kernel_unread": "",
    "output": "stress-ng: info:  [1] cpu      7      1.0\nstress-ng: metrc: [1] vm      9      1.0\n",
}
UNCORRECTED = [[80.5, "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"]]
BERT = [[80.5, "BERT: Error records from previous boot:"], [80.6, "[Hardware Error]: event severity: fatal"]]


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        ({}, Verdict.PASS, ""),
        ({"seconds": 2.0}, Verdict.INCOMPLETE, "stress-ng ran for 2.0 s; expected 60"),
        ({"cores": 2, "online": 192}, Verdict.INCOMPLETE, "2 of 192 CPUs were stressed; expected all of them"),
        ({"cores": 192, "online": 192}, Verdict.PASS, ""),
        ({"output": ""}, Verdict.INCOMPLETE, "reports no bogo operations for cpu, vm"),
        ({"exit": 9}, Verdict.INCOMPLETE, "ended with 9 (which its manual does not explain)"),
        ({"exit": -11, "output": ""}, Verdict.INCOMPLETE, "it printed nothing; expected 0"),
        ({"kernel_unread": "/dev/kmsg: Permission denied"}, Verdict.INCOMPLETE, "could not be followed under load"),
        ({"kernel_lost": 3}, Verdict.INCOMPLETE, "3 or more records of the kernel log were lost"),
        ({"kernel": UNCORRECTED}, Verdict.FAIL, "Machine Check Exception"),
        ({"kernel": UNCORRECTED, "kernel_lost": 3, "exit": None}, Verdict.FAIL, "Machine Check Exception"),
        ({"kernel": [[80.5, "Out of memory: Killed process 7 (python3)"]]}, Verdict.PASS, ""),
        ({"kernel": BERT}, Verdict.PASS, ""),
        ({"kernel": "text"}, Verdict.INCOMPLETE, ""),
        ({"output": f"stress-ng: fail:  [1] cpu: sqrt error\n{GOOD['output']}"}, Verdict.FAIL, "cpu: sqrt error"),
        ({"output": f"xstress-ng: fail:  [1] cpu: sqrt error\n{GOOD['output']}"}, Verdict.PASS, ""),
    ],
)
def test_a_run_counts_by_what_it_verified_and_what_the_kernel_said(
    change: dict[str, object], verdict: Verdict, message: str
) -> None:
    result = evaluated(CHECK, "stress_ng", {"gpu001": {**GOOD, **change}})
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_what_users_of_neuron_devices_may_have_written_into_the_log_fails_no_node() -> None:
    logged = {"kernel": UNCORRECTED}
    verdicts = {
        kind: evaluated(CHECK, "stress_ng", {"gpu001": {**GOOD, **logged}}, kind).verdict
        for kind in ("p5.48xlarge", "trn1.32xlarge")
    }
    assert verdicts == {"p5.48xlarge": Verdict.FAIL, "trn1.32xlarge": Verdict.CONCERN}
