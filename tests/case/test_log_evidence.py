"""Which kernel logs are evidence against a node: the kernel's own words, of that node, at the time of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case import SUPPORTED
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.folder import collect
from tests.case.files import BROKEN_GPU, WITHOUT_LOG, XID_79, case_of, written


def test_a_node_is_not_blamed_for_what_it_logged_long_after_the_end_of_the_job(tmp_path: Path) -> None:
    local = {name: BROKEN_GPU[name].replace(" 08:", " 10:").replace(" 07:", " 09:") for name in BROKEN_GPU}
    case = case_of(tmp_path, {**local, "gpu003-dmesg.txt": XID_79.format(time="10:00:01")})
    assert (case.verdict.cause, case.verdict.nodes, case.advice.nodes["gpu003"]) == ("unknown", (), "test")


def test_a_log_that_any_user_can_write_into_is_no_evidence(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**WITHOUT_LOG, "gpu003-messages.txt": BROKEN_GPU["gpu003-dmesg.txt"]})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())
    assert any("any user can write" in gap for gap in case.collected.missing)


JOURNAL = "Mar  1 07:00:{second:02d} gpu003 kernel: ACPI: thing {second}\n"
OF_KERNEL = "".join(JOURNAL.format(second=second) for second in range(60))
FORGED = f"Mar  1 08:00:01 gpu003 {{program}}: {XID_79.partition(' ')[2]}"


@pytest.mark.parametrize("program", ["kernel[4321]", "sshd[77]", "python", "systemd[1]"])
@pytest.mark.parametrize("name", ["gpu003-journal.txt", "gpu003-dmesg.txt"])
def test_a_journal_in_which_programs_speak_is_no_evidence(program: str, name: str, tmp_path: Path) -> None:
    true = FORGED.format(program="kernel")
    case = case_of(tmp_path, {**WITHOUT_LOG, name: f"{OF_KERNEL * 7}{true}{FORGED.format(program=program)}"})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())
    assert any(gap.startswith(f"{name}: no evidence, as any user can write") for gap in case.collected.missing)


def test_what_systemd_says_at_a_boot_is_in_the_kernels_own_journal(tmp_path: Path) -> None:
    boot = (
        "Mar  1 06:00:00 gpu003 kernel: Linux version 6.8.0-1021-aws (x)\n"
        "Mar  1 06:00:01 gpu003 systemd[1]: Inserted module 'autofs4'\n"
    )
    journal = "Mar  1 07:59:00 gpu003 systemd-journald[512]: Received client request to flush runtime journal.\n"
    log = {"gpu003-journal.txt": f"{boot}{OF_KERNEL}{journal}{FORGED.format(program='kernel')}"}
    assert case_of(tmp_path / "whole", {**BROKEN_GPU, **log}).verdict.nodes == ("gpu003",)


def test_a_message_that_looks_like_a_programs_line_is_no_other_program(tmp_path: Path) -> None:
    log = {"gpu003-dmesg.txt": "2026-03-01T07:00:00,000000+00:00 nvme nvme0: ready\n" + XID_79.format(time="08:00:01")}
    assert case_of(tmp_path, {**BROKEN_GPU, **log}).verdict.nodes == ("gpu003",)
    undated = "".join(f"[ {at}.000001] nvme nvme0: I/O {at} QID 3 timeout\n" for at in range(5000, 5009))
    log = {"gpu003-dmesg.txt": f"{undated}[ 5010.000001] {XID_79.partition(' ')[2]}"}
    assert case_of(tmp_path, {**BROKEN_GPU, **log}).verdict.nodes == ("gpu003",)


def test_a_log_that_others_may_have_written_is_no_evidence(tmp_path: Path) -> None:
    folder = written(tmp_path, BROKEN_GPU)
    (folder / "gpu003-dmesg.txt").chmod(0o666)
    case = opened_case(collect(folder))
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())
    assert "gpu003-dmesg.txt: no evidence against a node, as it may be written by others" in case.collected.missing


def test_a_log_whose_lines_are_of_another_node_than_its_name_is_no_evidence(tmp_path: Path) -> None:
    other = f"Mar  1 08:00:01 gpu004 kernel: {XID_79.partition(' ')[2]}"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": other})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())
    assert any("its lines are of gpu004" in gap for gap in case.collected.missing)


@pytest.mark.parametrize(
    "name", ["gpu003-dmesg.txt", "dmesg-gpu003.log", "gpu003/dmesg.txt", "job-77_gpu003_kern.log", "journal.txt"]
)
def test_a_log_is_of_the_node_that_its_name_its_folder_or_its_lines_have(name: str, tmp_path: Path) -> None:
    log = f"Mar  1 08:00:01 gpu003 kernel: {XID_79.partition(' ')[2]}"
    assert case_of(tmp_path, {**WITHOUT_LOG, name: log}).verdict.nodes == ("gpu003",)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("05:00:00", "hours before"),
        ("07:20:00", "before steps that the job still made"),
        ("09:00:00", "after the job had ended"),
    ],
)
def test_evidence_of_another_time_blames_nobody(when: str, why: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": XID_79.format(time=when)})
    assert case.verdict.cause == "unknown", why


def test_evidence_of_a_node_of_another_job_is_left_out_and_said(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**WITHOUT_LOG, "gpu009-dmesg.txt": XID_79.format(time="08:00:01")})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())
    assert any("gpu009" in gap for gap in case.collected.missing)


def test_an_undated_log_counts_only_where_a_rank_of_that_node_says_the_same(tmp_path: Path) -> None:
    undated = "[ 5000.000001] " + XID_79.partition(" ")[2]
    agreed = case_of(tmp_path / "agreed", {**WITHOUT_LOG, "gpu003-dmesg.txt": undated})
    assert (agreed.verdict.cause, agreed.verdict.nodes, agreed.verdict.standing) == ("hardware", ("gpu003",), SUPPORTED)
    alone = case_of(tmp_path / "alone", {**WITHOUT_LOG, "gpu002-dmesg.txt": undated})
    assert (alone.verdict.cause, alone.verdict.nodes) == ("unknown", ())
