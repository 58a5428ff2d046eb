"""The kernel log as grep, busybox and OpenWrt show it: prefixes of a line hide nothing in it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.evidence.kernel_log.facts import OF_ALL_PROGRAMS

XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=77, name=python3, GPU has fallen off the bus."
OTHER = XID.replace(": 79", ": 48")
OF_SYSLOG = f"Oct 14 14:56:49 gpu001 kernel: [75145.414575] {XID}"


def log(text: str) -> dict[str, Any]:
    values, problems = read_text(text)
    assert problems == []
    collected: Any = values["kernel_log"]
    return dict(collected)


def messages(text: str) -> list[str]:
    return [line[1] for line in log(text)["lines"]]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (f"/var/log/kern.log:{OF_SYSLOG}", "capture"),
        (f"/var/log/kern.log.1:{OF_SYSLOG}", "capture"),
        (f"1023:{OF_SYSLOG}", "capture"),
        (f"kern.log:1023:{OF_SYSLOG}", "capture"),
        (f"1523:[75145.414575] {XID}", "capture"),
        (f"dmesg.txt:[75145.414575] {XID}", "capture"),
        (f"dmesg-T.txt:12:[Fri Oct 14 14:56:49 2022] {XID}", "capture"),
        (f"  1523\t[75145.414575] {XID}", "capture"),
        (f"(standard input):[75145.414575] {XID}", "capture"),
        (f"7:2022-10-14T14:56:49,500000+00:00 {XID}", "capture"),
        (f"7:4,1227,12500000,-;{XID}", "capture"),
        (f"7:<4>[75145.414575] {XID}", "capture"),
        (f"7:kern  :warn  : [75145.414575] {XID}", "capture"),
        (f"/var/log/syslog.1:{OF_SYSLOG}", OF_ALL_PROGRAMS),
        (f"/var/log/syslog.2.gz:{OF_SYSLOG}", OF_ALL_PROGRAMS),
        (f"/var/log/messages-20221014:{OF_SYSLOG}", OF_ALL_PROGRAMS),
        (f"/var/log/messages-20221014:2022-10-14T14:56:49.5+00:00 gpu001 kernel: {XID}", OF_ALL_PROGRAMS),
        (f"./messages:12:{OF_SYSLOG}", OF_ALL_PROGRAMS),
        (f"Fri Oct 14 14:56:49 2022 kern.err kernel: [75145.414575] {XID}", OF_ALL_PROGRAMS),
        (f"Oct 14 14:56:49 gpu001 kern.err kernel: [75145.414575] {XID}", OF_ALL_PROGRAMS),
        (f"2022-10-14T14:56:49 gpu001 kernel:[75145.414575] {XID}", "capture"),
        (f"Oct 14 14:56:49 gpu001 kernel:[75145.414575] {XID}", "capture"),
        (f"gpu001 login: [75145.414575] {XID}", "capture"),
    ],
)
def test_what_stands_before_a_line_hides_no_fault_in_it(text: str, source: str) -> None:
    for shown in (text, f"{text}\n", f"$ grep Xid\n{text}\n", f"{text}\n--\n{text.replace(': 79', ': 48')}\n"):
        assert messages(shown)[0].partition("\n")[0] == XID
        assert log(shown)["source"] == source


@pytest.mark.any_user
@pytest.mark.parametrize(
    ("command", "source"),
    [
        ("sudo grep -i nvrm /var/log/syslog", OF_ALL_PROGRAMS),
        ("zgrep Xid /var/log/messages-20221014.gz", OF_ALL_PROGRAMS),
        ("cat /var/log/messages | grep Xid", OF_ALL_PROGRAMS),
        ("journalctl -b | grep NVRM", OF_ALL_PROGRAMS),
        ("sudo journalctl --since '2 days ago' | grep -i xid", OF_ALL_PROGRAMS),
        ("journalctl -t kernel", OF_ALL_PROGRAMS),  # which logger -t writes too
        ("journalctl -b -tkernel", OF_ALL_PROGRAMS),
        ("journalctl -b | grep Xid | sort -k3", OF_ALL_PROGRAMS),
        ("journalctl -b | grep -v exporter", OF_ALL_PROGRAMS),
        ("dmesg | grep Xid; grep Xid /var/log/syslog", OF_ALL_PROGRAMS),
        ("grep Xid /var/log/kern.log", "capture"),
        ("cat journalctl-k.txt", "capture"),
        ("journalctl -k | grep Xid", "capture"),
        ("journalctl -b0 -xk", "capture"),
        ("journalctl --dmesg --no-pager", "capture"),
        ("journalctl -kb --since today", "capture"),
        ("journalctl _TRANSPORT=kernel", "capture"),
        ("dmesg -T | grep Xid", "capture"),
    ],
)
def test_the_command_above_the_lines_says_whether_programs_write_into_their_log(command: str, source: str) -> None:
    text = f"$ {command}\n{OF_SYSLOG}\n"
    assert (log(text)["source"], messages(text)) == (source, [XID])


@pytest.mark.any_user
@pytest.mark.parametrize(
    "text",
    [
        f"$ journalctl -b -o cat | grep NVRM\n{XID}\n",
        f"$ journalctl -b -o short-monotonic | grep NVRM\n[75145.414575] gpu001 kernel: {XID}\n",
        f"$ grep Xid /var/log/messages | cut -d' ' -f6-\n[75145.414575] {XID}\n",
        f"$ dmesg -T | grep Xid || grep Xid /var/log/syslog\n[Fri Oct 14 14:56:49 2022] {XID}\n",
        f"$ dmesg | grep Xid; journalctl -b | tail -1\n[75145.414575] {XID}\nOct 14 14:57:01 gpu001 sshd[7]: hello\n",
    ],
)
def test_a_line_that_a_command_shows_without_the_log_s_prefix_is_read_and_fails_nothing(text: str) -> None:
    assert (messages(text), log(text)["source"]) == ([XID], OF_ALL_PROGRAMS)


@pytest.mark.any_user
@pytest.mark.parametrize("command", ["dmesg | grep -w -e free -e Xid", "mount -a; dmesg | tail -1"])
def test_a_command_that_is_shown_above_for_another_output_s_sake_is_no_line_of_the_log(command: str) -> None:
    assert messages(f"$ {command}\n[75145.414575] {XID}\n") == [XID]


def test_what_the_kernel_says_first_after_a_console_s_prompt_is_read() -> None:
    console = f"[   12.500000] usb 1-1: new\n\nUbuntu 22.04 LTS gpu001 ttyS0\n\ngpu001 login: [75145.414575] {XID}\n"
    assert messages(f"{console}[75146.414575] {OTHER}\n") == [XID, OTHER]


def test_lines_around_what_was_found_are_read_too() -> None:
    lines = f"kern.log-11-[   12.5000] usb 1-1: new\nkern.log:12:[   13.5000] {XID}\nkern.log-13-[   14.5000] {OTHER}"
    assert messages(f"{lines}\n--\n") == [XID, OTHER]


def test_of_a_log_in_several_files_the_last_boot_is_in_the_newest() -> None:
    boot = "Linux version 6.8.0-1021-aws (x)"
    newest = f"kern.log:Oct 14 14:56:49 gpu001 kernel: {OTHER}\n"
    older = f"kern.log.1:Oct 13 14:56:49 gpu001 kernel: {XID}\nkern.log.1:Oct 13 15:56:49 gpu001 kernel: {boot}\n"
    assert messages(newest + older) == [boot, OTHER]
    dated = newest.replace("kern.log", "kern.log-20221014") + older.replace("kern.log.1", "kern.log-20221013")
    assert messages(dated) == [boot, OTHER]


def test_a_line_that_is_in_two_logs_was_logged_once() -> None:
    assert messages(f"/var/log/kern.log:{OF_SYSLOG}\n/var/log/syslog:{OF_SYSLOG}\n") == [XID]


@pytest.mark.parametrize("files", ["gpu001.log gpu002.log", "gpu001/dmesg gpu002/dmesg", "a/kern.log b/kern.log"])
def test_what_was_found_in_files_of_several_nodes_is_refused(files: str) -> None:
    _, problems = read_text("".join(f"{name}:[   12.500000] {XID}\n" for name in files.split()))
    assert [problem for problem in problems if "expected those of one node" in problem]


@pytest.mark.parametrize("before", ["rack 7 ", "level=warn ", "a: b: ", "2022-10-14 14:56 gpu001 "])
def test_what_is_not_known_before_the_kernels_name_is_refused(before: str) -> None:
    values, problems = read_text(f"{before}kernel: [   12.500000] {XID}\n")
    assert values == {}
    assert "it is not known what stands before `kernel:`" in problems[0]


@pytest.mark.any_user
def test_a_user_who_writes_of_the_kernel_does_not_have_its_log_refused() -> None:
    line = "a b kernel: x[77]: segfault"
    assert messages(f"[   12.500000] {line}\n[   13.500000] {XID}\n")[-1] == XID
    assert messages(f"[   12.500000] x\n                 {line}\n[   13.500000] {XID}\n")[-1] == XID
    assert messages(f"Oct 14 14:56:49 gpu001 kernel: {line}\n{OF_SYSLOG}\n")[-1] == XID


def test_one_line_that_is_not_known_hides_no_other_and_the_log_is_not_whole() -> None:
    values, problems = read_text(f"[    0.000000] Linux version 6.8.0\n[   12.500000] {XID}\nrack 7 kernel: {OTHER}\n")
    assert problems == []
    log = values["kernel_log"]
    assert isinstance(log, dict)
    assert ([line[1] for line in log["lines"]][-1], log["truncated"], log["whole_from"]) == (XID, True, None)
