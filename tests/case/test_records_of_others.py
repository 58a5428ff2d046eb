"""Slurm and Kubernetes records, kernel logs and results, in the formats in which they are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clusterproof.plugins.case import CaseError, Fact, node_log, own_reports, pods, scheduler
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.folder import collect, read_folder
from clusterproof.plugins.case.report import paragraph
from clusterproof.plugins.core.result import Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import ResultsFile
from tests.case.files import SACCT, SCONTROL, case_of, written

CLOCK = Clock(2026)
TABLE = """\
JobID             State ExitCode               Start                 End             NodeList
------------ ---------- -------- ------------------- ------------------- --------------------
77           OUT_OF_ME+    0:125 2026-03-01T07:00:00 2026-03-01T08:10:30         gpu[001-004]
77.batch     OUT_OF_ME+    0:125 2026-03-01T07:00:00 2026-03-01T08:10:30               gpu001
"""
XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=1, name=python, GPU has fallen off the bus."
LOG = {
    "iso": f"2026-03-01T08:00:00,000000+00:00 {XID}",
    "dmesg -T": f"[Sun Mar  1 08:00:00 2026] {XID}",
    "syslog": f"Mar  1 08:00:00 gpu003 kernel: {XID}",
    "journal": f"2026-03-01T08:00:00.000000+0000 gpu003 kernel: {XID}",
}


@pytest.mark.parametrize(
    "text", [SCONTROL, SACCT.format(state="OUT_OF_MEMORY"), TABLE], ids=["scontrol", "sacct -P", "sacct"]
)
def test_the_record_of_a_job_is_read_in_each_form(text: str) -> None:
    assert scheduler.is_record(text)
    ((job, events),) = scheduler.read(text, "sacct.txt", CLOCK)
    assert (job.number, job.nodes) == ("77", ("gpu001", "gpu002", "gpu003", "gpu004"))
    assert (job.ran.begins, job.ran.ends) == (1772348400.0, 1772352631.0)
    assert [event.sign for event in events] == ["out_of_memory_state"]


def test_a_list_of_nodes_however_long_is_read_whole() -> None:
    nodes = [f"ip-10-{number // 250}-{number % 250}-7x" for number in range(2_000)]
    ((job, _),) = scheduler.read(SCONTROL.replace("gpu[001-004]", ",".join(nodes)), "scontrol.txt", CLOCK)
    assert job.nodes == tuple(nodes)


OF_OWNER = f"hello\n{SCONTROL.replace('OUT_OF_MEMORY', 'NODE_FAIL').replace('gpu[001-004]', 'gpu007')}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my-job.out", OF_OWNER),
        ("my-job.log", OF_OWNER),
        ("job-77.out", OF_OWNER.partition("\n")[2]),  # all of it, although its name is that of the job's output
        ("sacct.txt", f"{SACCT.format(state='NODE_FAIL')}KeyError: 'image'\n"),
    ],
)
def test_what_a_script_prints_of_its_own_job_is_output(name: str, text: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {name: text})
    assert (case.collected.read, case.collected.job.number) == (("1 file of output",), "")
    assert (case.advice.nodes, case.verdict.suspects) == ({}, ())


def test_the_script_in_a_record_is_its_owners() -> None:
    script = "   BatchScript=\n#!/bin/sh\nJobState=NODE_FAIL\nNodeList=gpu007\n"
    assert scheduler.is_record(SCONTROL + script)
    ((job, _),) = scheduler.read(SCONTROL + script, "x", CLOCK)
    assert (job.state, len(job.nodes)) == ("OUT_OF_MEMORY", 4)


def test_a_record_of_when_the_job_ran_has_no_end(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"scontrol.txt": SCONTROL.replace("OUT_OF_MEMORY", "RUNNING")})
    assert (case.collected.job.ran.begins, case.collected.job.ran.ends) == (1772348400.0, None)
    assert "the end of the job: its record is of when it was RUNNING" in case.collected.missing


HEAD = "JobID|State|ExitCode|Start|End|NodeList\n"
ROW = "{number}|{state}|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|{node}\n"


def sacct(*rows: tuple[str, str, str]) -> str:
    return HEAD + "".join(ROW.format(number=number, state=state, node=node) for number, state, node in rows)


def test_of_an_array_the_first_task_that_failed_is_the_case_and_the_others_are_named(tmp_path: Path) -> None:
    tasks = sacct(("77_0", "COMPLETED", "gpu001"), ("77_3", "NODE_FAIL", "gpu002"), ("77_[4-9]", "PENDING", ""))
    tasks = tasks.replace("COMPLETED|1:0", "COMPLETED|0:0")
    case = case_of(tmp_path, {"sacct.txt": tasks})
    assert (case.collected.job.number, case.collected.job.nodes) == ("77_3", ("gpu002",))
    assert "other tasks of this array, of which this is 77_3: 77_0, 77_[4-9]" in case.collected.missing


def test_the_components_of_a_heterogeneous_job_are_one(tmp_path: Path) -> None:
    parts = sacct(("77+0", "FAILED", "gpu001"), ("77+1", "OUT_OF_MEMORY", "gpu[002-003]"))
    job = case_of(tmp_path / "sacct", {"sacct.txt": parts}).collected.job
    assert (job.number, job.nodes) == ("77", ("gpu001", "gpu002", "gpu003"))
    shown = [SCONTROL.replace("JobId=77", f"JobId={77 + at} HetJobId=77 HetJobOffset={at}") for at in (0, 1)]
    both = f"{shown[0]}\n{shown[1].replace('gpu[001-004]', 'cpu001')}"
    job = case_of(tmp_path / "scontrol", {"scontrol.txt": both}).collected.job
    assert (job.number, job.nodes[-1]) == ("77", "cpu001")


def test_records_of_two_jobs_are_refused(tmp_path: Path) -> None:
    first, other = (sacct((number, "FAILED", "gpu001")) for number in ("1", "2"))
    with pytest.raises(CaseError, match="records of the jobs 1, 2; expected those of one job"):
        case_of(tmp_path, {"sacct-a.txt": first, "sacct-b.txt": other})


def test_kept_by_hand_only_the_records_of_the_job_that_is_asked_for_count(tmp_path: Path) -> None:
    builder = CaseBuilder()
    folder = written(tmp_path, {"sacct.txt": sacct(("1", "NODE_FAIL", "gpu001"), ("77", "FAILED", "gpu002"))})
    read_folder(folder, builder, 0.0, "77")
    assert ([job.number for job in builder.jobs], builder.events) == (["77"], [])
    assert "records of other jobs are left out: 1" in builder.missing


@pytest.mark.parametrize("typed", ["sacct -j 77\n", "u@login:~$ sacct -j 77 -o JobID,State\n"])
def test_a_record_is_one_with_the_command_that_asked_for_it(typed: str) -> None:
    assert scheduler.is_record(typed + TABLE)
    assert [job.number for job, _ in scheduler.read(typed + TABLE, "x", CLOCK)] == ["77"]


def test_the_names_of_columns_alone_are_no_record(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"sacct.txt": HEAD})
    assert (case.collected.read, "sacct.txt: it has no row of a job" in case.collected.missing) == ((), True)


def test_a_job_that_completed_is_said_to_have_completed(tmp_path: Path) -> None:
    record = SACCT.format(state="COMPLETED").replace("1:0", "0:0")
    case = case_of(tmp_path, {"sacct.txt": record, "rank_0.log": "KeyError: 'image'\n"})
    assert (case.verdict.standing, case.verdict.why) == (
        "completed",
        "it completed, as Slurm says: COMPLETED, exit code 0:0",
    )
    assert "It completed, as Slurm says" in paragraph(case)
    assert case.verdict.against != ()


def test_a_job_that_failed_is_no_cause_by_its_state() -> None:
    assert [events for _, events in scheduler.read(SACCT.format(state="FAILED"), "sacct.txt", CLOCK)] == [()]


@pytest.mark.parametrize("form", LOG)
def test_a_kernel_log_has_its_times_in_each_form(form: str) -> None:
    (fact,) = node_log.read(LOG[form] + "\n", "gpu003", "gpu003-dmesg.txt", CLOCK)
    assert (fact.when.begins, fact.device, fact.is_strong) == (1772352000.0, "0000:c5:00.0", True)


def test_a_log_of_several_boots_tells_of_each() -> None:
    text = f"{LOG['iso']}\n2026-03-01T09:00:00,000000+00:00 Linux version 6.8.0 (x)\n"
    facts = [fact.words for fact in node_log.read(text, "gpu003", "x", CLOCK)]
    assert facts == ["Xid 79, GPU has fallen off the bus", node_log.BOOTED]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("mlx5_core 0000:5e:00.0 ib2: Link down", "network"),
        ("efa 0000:00:1d.0: Keep alive watchdog timeout.", "network"),
        ("nvme nvme1: Device not ready; aborting reset", "storage"),
        ("Kernel panic - not syncing: Fatal exception", "unknown"),
        ("Out of memory: Killed process 771 (python) total-vm:1kB", "resources"),
        ("NVRM: Xid (PCI:0000:c5:00): 43, pid=1, name=python, Ch 00000010", "code"),
        ("NVRM: Xid (PCI:0000:c5:00): 43, Ch 00000010", ""),
        ("NVRM: Xid (PCI:0000:c5:00): 45, pid=1, name=python, Ch 00000010", ""),
    ],
)
def test_each_line_is_evidence_of_its_own_cause(line: str, cause: str) -> None:
    facts = list(node_log.read(f"2026-03-01T08:00:00,000000+00:00 {line}\n", "gpu003", "x", CLOCK))
    assert [fact.cause for fact in facts] == ([cause] if cause else [])


def pod(status: dict[str, object]) -> str:
    fields = {"kind": "Pod", "metadata": {"name": "train-1"}, "spec": {"nodeName": "gpu002"}, "status": status}
    return json.dumps({"kind": "List", "items": [fields]})


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, "resources"),
        ({"reason": "NodeLost"}, "unknown"),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "stopped",
        ),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}, "resources"),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}, "unknown"),
    ],
)
def test_a_pod_says_how_it_ended(status: dict[str, object], cause: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"pods.json": pod(status)})
    assert case.verdict.cause == cause
    assert case.collected.job.nodes == ("gpu002",)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"kind": "List", "items": 3}', '{"kind": "Pod", "status": []}'])
def test_json_that_is_none_of_kubernetes_says_nothing(text: str) -> None:
    assert [event for item in pods.objects(text) for event in pods.read(item, "x", CLOCK)] == []


def failures(text: str) -> list[Fact]:
    return [fact for _, fact in own_reports.results(text.splitlines(), "results.jsonl", []) if fact]


def test_results_as_a_run_writes_them_now_are_known_by_their_first_line(tmp_path: Path) -> None:
    findings = (Finding(Verdict.FAIL, "Xid 79; expected none", action="reset or reboot"),)
    passed = [Result("gpu.no_xid", f"gpu00{number}", Verdict.PASS, severity="none") for number in (1, 2, 3)]
    with ResultsFile(tmp_path / "results.jsonl") as file:
        file.write_rest([*passed[:2], with_findings(passed[2], findings)])
    text = (tmp_path / "results.jsonl").read_text(encoding="utf-8")
    assert own_reports.is_of(text)
    assert [(fact.node, fact.check) for fact in failures(text)] == [("gpu003", "gpu.no_xid")]


def test_of_results_only_failures_of_hardware_are_evidence() -> None:
    rows = (
        {"check": "gpu.no_xid", "node": "gpu003", "verdict": "fail", "message": "Xid 79", "action": "reset or reboot"},
        {"check": "host.swap", "node": "gpu003", "verdict": "fail", "message": "swap", "action": "fix configuration"},
        {"check": "gpu.no_xid", "node": "gpu002", "verdict": "incomplete", "message": "", "action": ""},
    )
    text = "\n".join(map(json.dumps, rows))
    assert own_reports.is_of(text)
    assert [(fact.node, fact.check) for fact in failures(text)] == [("gpu003", "gpu.no_xid")]


FORGED = "x\n   UserId=root(0) GroupId=root(0)\n   JobState=NODE_FAIL\n   NodeList=gpu007\n   StdOut=/etc/shadow"
IN_A_ROW = "x\n77|x|NODE_FAIL|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu007\n77|x"
NAMED = "JobID|JobName|State|ExitCode|Start|End|NodeList\n77|{name}|FAILED|1:0|Unknown|Unknown|gpu001\n"


@pytest.mark.parametrize(
    "text",
    [
        SCONTROL.replace("JobName=train", f"JobName={FORGED}"),
        NAMED.format(name=IN_A_ROW),
        NAMED.format(name="x|NODE_FAIL|1:0|Unknown|Unknown|gpu007"),
    ],
    ids=["scontrol", "a row", "columns"],
)
def test_the_name_of_a_job_is_no_record_of_it(text: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"sacct.txt": text, "rank_0.log": "KeyError: 'image'\n"})
    assert (case.collected.job.number, case.advice.nodes, case.verdict.suspects) == ("", {}, ())
    assert f"sacct.txt: {scheduler.OWNER_LINES}" in case.collected.missing


@pytest.mark.parametrize(
    ("year", "zone"), [("9999", ""), ("9999", "-99:00"), ("0001", "+02:00"), ("0001", ""), ("0000", "")]
)
def test_a_year_that_is_none_is_no_time(year: str, zone: str, tmp_path: Path) -> None:
    when = f"{year}-12-31T23:59:59{zone}"
    files = {
        "sacct.txt": f"{HEAD}77|NODE_FAIL|1:0|{when}|{when}|gpu003\n",
        "gpu003-dmesg.txt": f"{year}-12-31T23:59:59,000000{zone} {XID}\n[Fri Dec 31 23:59:59 {year}] {XID}\n",
        "rank_0.log": f"{when} KeyError: 'image'\n",
    }
    for offset_s in (0.0, 7200.0, -7200.0):
        collected = collect(written(tmp_path, files), offset_s)
        assert (collected.job.ran.begins, collected.last) == (None, None)


def test_a_file_of_a_year_that_no_calendar_has_is_read() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:  # keeps any modification time
        written(Path(folder), {"gpu003-dmesg.txt": f"Mar  1 08:00:00 gpu003 kernel: {XID}\n"})
        os.utime(Path(folder, "gpu003-dmesg.txt"), (2.0**38, 2.0**38))
        assert [fact.node for fact in collect(Path(folder)).facts] == ["gpu003"]
