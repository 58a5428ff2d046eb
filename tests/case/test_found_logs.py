"""Kernel logs as grep and other programs print them: behind names of files and numbers of lines, or with facilities."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import BROKEN_GPU, XID_79, case_of

XID = XID_79.partition(" ")[2].strip()
ISO = f"2026-03-01T08:00:01.000000+00:00 gpu003 kernel: {XID}\n"
SYSLOG = f"Mar  1 08:00:01 gpu003 kernel: {XID}\n"
SSHD = "2026-03-01T08:00:03.000000+00:00 gpu003 sshd[12]: hi\n"
LOGREAD = f"Sun Mar  1 08:00:01 2026 kern.err kernel: {XID}\n"
BUSYBOX = f"Mar  1 08:00:01 gpu003 kern.err kernel: {XID}\n"
OF_OTHERS = {
    "syslog, as grep -H found it": f"/var/log/syslog:{ISO}/var/log/syslog:{SSHD}",
    "a file into which programs write, and no line of theirs": f"/var/log/syslog:{ISO}",
    "lines with numbers": f"17:{ISO}18:{SSHD}",
    "the kernel's file, with a program's line": f"/var/log/kern.log:{ISO}/var/log/kern.log:{SSHD}",
    "logread": f"{LOGREAD}Sun Mar  1 08:00:03 2026 user.notice bob: hi\n",
    "busybox": f"{BUSYBOX}Mar  1 08:00:03 gpu003 user.notice bob: hi\n",
}


@pytest.mark.parametrize("log", OF_OTHERS.values(), ids=OF_OTHERS)
def test_a_log_into_which_any_user_writes_is_no_evidence_in_whatever_form_it_is_printed(
    log: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    assert (case.verdict.cause, case.collected.facts, case.collected.nodes_with_log) == ("unknown", (), ())
    assert any("any user can write lines like the kernel's there" in one for one in case.collected.missing)


@pytest.mark.parametrize("before", ["/var/log/kern.log:", "17:", "/var/log/kern.log:17:", "     17\t"])
@pytest.mark.parametrize("line", [ISO, SYSLOG], ids=["rsyslog's", "syslog's"])
def test_what_grep_finds_in_the_kernels_own_file_is_evidence_at_its_time(
    before: str, line: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": f"{before}{line}"})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))


@pytest.mark.parametrize("before", ["/var/log/kern.log:", "17:"])
def test_what_grep_finds_of_another_week_is_of_that_week(before: str, tmp_path: Path) -> None:
    old = f"{before}{SYSLOG.replace('Mar  1', 'Feb 20')}"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": old})
    assert case.verdict.cause == "unknown"
    (said,) = [one for one in case.collected.missing if "another time" in one]
    assert said.endswith("gpu003 2026-02-20 08:00:01")


def test_the_host_of_lines_that_grep_finds_is_theirs(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu002-dmesg.txt": f"/var/log/kern.log:{ISO}", "gpu003-dmesg.txt": ISO})
    assert any("its lines are of gpu003" in one for one in case.collected.missing)


@pytest.mark.parametrize("number", [1, 30])
def test_an_odd_line_beside_evidence_takes_none_of_it_away(number: int, tmp_path: Path) -> None:
    log = XID_79.format(time="08:00:01") + "some odd thing kernel: hi\n" * number
    log += XID_79.format(time="07:00:00").replace("Xid", "thing") * number
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))
    assert any("it is not known what stands before `kernel:`" in one for one in case.collected.missing)


OF_SEVERAL = f"/logs/gpu003/kern.log:{ISO}/logs/gpu002/kern.log:{ISO}"


def test_a_log_that_cannot_be_read_is_said_and_is_none_of_its_node(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu001-dmesg.txt": OF_SEVERAL.replace("gpu003", "gpu001")})
    assert case.collected.nodes_with_log == ("gpu003",)
    (said,) = [one for one in case.collected.missing if one.startswith("gpu001-dmesg.txt: ")]
    assert "it was found in several files" in said
    assert case.advice.nodes["gpu001"] == "not known"
