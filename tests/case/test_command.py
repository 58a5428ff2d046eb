"""`clusterproof case FOLDER`: its formats, its errors, and files that are not what they seem."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clusterproof.plugins.case.command import case
from tests.case.files import BROKEN_GPU, written

RECORD = {"sacct.txt": BROKEN_GPU["sacct.txt"]}
HOSTILE = {
    "pods.json": '{"kind": "List", "items": ' + "[" * 5000,
    "results.jsonl": '{"check": 1, "node": 2, "verdict": "fail", "action": "replace"}\n',
    "rank_1.log": "\x1b[2J\x07 CUDA out of memory \u202e" + "x" * 10_000,
    "sacct.txt": "JobID|State|NodeList\n77|NODE_FAIL|gpu[1-99999999]\n",
    "gpu001-dmesg.txt": "not a kernel log\n",
    "odd.bin": "\0\0\0",
}


def test_the_text_fits_a_terminal_but_for_commands_to_copy(tmp_path: Path) -> None:
    status, text = case([str(written(tmp_path, BROKEN_GPU))])
    assert status == 0
    assert [line for line in text.splitlines() if len(line) > 80 and not line.startswith("  ")] == []
    assert text.startswith("Job 77 on 4 nodes (gpu[001-004]), FAILED")
    assert "clusterproof check ssh:gpu003 -k no_xid" in text
    assert "scontrol update nodename=gpu003 state=drain" in text
    assert "- no kernel log of gpu001, gpu002, gpu004" in text


def test_the_order_of_events_has_the_first_and_the_cascades(tmp_path: Path) -> None:
    _, text = case([str(written(tmp_path, BROKEN_GPU)), "--json"])
    rows = json.loads(text)["timeline"]
    assert [(row["mark"], row["where"]) for row in rows] == [(">", "gpu003"), ("", "gpu003 rank 3"), ("~", "rank 1")]


def test_programs_get_everything(tmp_path: Path) -> None:
    status, text = case([str(written(tmp_path, BROKEN_GPU)), "--json"])
    report = json.loads(text)
    assert (status, report["schema"], report["cause"], report["nodes"]) == (0, 1, "hardware", ["gpu003"])
    assert report["actions"]["gpu003"] == "drain"
    assert report["ticket"].startswith("Job 77")


def test_markdown_keeps_the_words_of_others_in_code(tmp_path: Path) -> None:
    hostile = {**BROKEN_GPU, "rank_5.log": "2026-03-01 08:00:03,000 KeyError: '`| [x](http://x)'\n"}
    _, text = case([str(written(tmp_path, hostile)), "--markdown"])
    (row,) = [line for line in text.splitlines() if "KeyError" in line]
    assert "`KeyError: ''\\| [x](http://x)'`" in row


@pytest.mark.long
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_redacted_nothing_names_a_node_a_file_or_a_job(form: list[str], tmp_path: Path) -> None:
    secret = {**BROKEN_GPU, "rank_5.log": "2026-03-01 08:00:03,000 KeyError: 'alice@secret.example'\n"}
    _, text = case([str(written(tmp_path, secret)), "--redact", *form])
    assert [word for word in ("gpu00", "secret", "alice", "rank_3.log", "sacct", tmp_path.name) if word in text] == []
    assert "node-" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/no/such/folder"], "is not a folder; expected"),
        (["."], "no file in it"),
        ([".", "--utc-offset", "2"], "expected a zone such as +02:00"),
        ([".", "--utc-offset", "+14:01"], "expected a zone such as +02:00, of at most 14 hours"),
        ([".", "--utc-offset=-99:00"], "expected a zone such as +02:00, of at most 14 hours"),
        ([".", "--utc-offset"], "expected one argument"),
        ([""], "the job is empty; expected a Slurm job ID"),
        ([" "], "the job is empty; expected a Slurm job ID"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status, text = case(words)
    except SystemExit:
        status, text = 4, capsys.readouterr().err
    assert (status, text.count("\n")) == (4, 1)
    assert message in text


def test_times_without_a_zone_are_of_the_one_that_is_named(tmp_path: Path) -> None:
    files = {**BROKEN_GPU, "gpu003-dmesg.txt": BROKEN_GPU["gpu003-dmesg.txt"].replace("T08:", "T06:")}
    folder = str(written(tmp_path, files))
    assert json.loads(case([folder, "--json"])[1])["cause"] == "unknown"
    assert json.loads(case([folder, "--json", "--utc-offset", "+02:00"])[1])["cause"] == "hardware"


def test_a_zone_west_of_utc_is_named_as_one_east_of_it_is(tmp_path: Path) -> None:
    files = {**BROKEN_GPU, "gpu003-dmesg.txt": BROKEN_GPU["gpu003-dmesg.txt"].replace("T08:", "T13:")}
    folder = str(written(tmp_path, files))
    for options in (["--utc-offset", "-05:00"], ["--utc-offset=-05:00"]):
        assert json.loads(case([folder, "--json", *options])[1])["cause"] == "hardware"


GROUP = "/system.slice/slurmstepd.scope/job_4242"
OUT_OF_MEMORY = (
    "2026-03-01T08:00:00,000000+00:00 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,"
    f"mems_allowed=0,oom_memcg={GROUP},task_memcg={GROUP}/step_0,task=secretproj,pid=1234,uid=1005\n"
    "2026-03-01T08:00:00,000000+00:00 Memory cgroup out of memory: Killed process 1234 (secretproj) total-vm:1kB, "
    "anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1005 pgtables:1kB oom_score_adj:0\n"
)


def test_redacted_the_kill_of_another_job_is_no_cause_either(tmp_path: Path) -> None:
    killed = "2026-03-01 08:00:03,000 srun: error: gpu003: task 3: Killed\n"
    folder = str(written(tmp_path, {**RECORD, "gpu003-dmesg.txt": OUT_OF_MEMORY, "job.out": killed}))
    for options in ([], ["--redact"]):
        assert json.loads(case([folder, "--json", *options])[1])["cause"] == "unknown"


@pytest.mark.long
def test_redacted_the_path_of_a_group_names_no_job_and_no_program(tmp_path: Path) -> None:
    files = {"sacct.txt": BROKEN_GPU["sacct.txt"].replace("FAILED", "OUT_OF_MEMORY"), "gpu003-dmesg.txt": OUT_OF_MEMORY}
    folder = str(written(tmp_path, files))
    assert "4242" in case([folder])[1]
    for form in ([], ["--json"], ["--markdown"]):
        text = case([folder, "--redact", *form])[1]
        assert ("4242" in text, "secretproj" in text, "killed a process" in text) == (False, False, True)


def test_links_are_not_followed_and_pipes_are_not_waited_for(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    folder = written(tmp_path / "job", BROKEN_GPU)
    (folder / "rank_7.log").symlink_to(outside)
    (folder / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(folder / "rank_8.log")
    report = json.loads(case([str(folder), "--json"])[1])
    assert [gap for gap in report["missing"] if "links are not followed" in gap] == [
        "links are not followed: elsewhere, rank_7.log"
    ]
    assert not any("out of memory" in row["words"] for row in report["timeline"])


def test_files_that_are_broken_are_said_and_cost_nothing_else(tmp_path: Path) -> None:
    folder = written(tmp_path, {**BROKEN_GPU, **HOSTILE})
    (folder / "nccl_trace_rank_0").write_bytes(b"\x80\x04cos\nsystem\n.")
    status, text = case([str(folder)])
    assert status == 0
    assert text.replace("\n", "").isprintable()
    for name in ("nccl_trace_rank_0", "gpu001-dmesg.txt", "odd.bin"):
        assert f"- {name}" in text


@pytest.mark.long
def test_a_file_is_read_from_its_beginning_and_its_end(tmp_path: Path) -> None:
    filler = f"a line that says nothing at all{'=' * 16_000}\n" * 900
    files = {"rank_0.log": f"{filler}2026-03-01 08:00:00,000 KeyError: 'image'\n", "sacct.txt": BROKEN_GPU["sacct.txt"]}
    report = json.loads(case([str(written(tmp_path, files)), "--json"])[1])
    assert report["cause"] == "code"
