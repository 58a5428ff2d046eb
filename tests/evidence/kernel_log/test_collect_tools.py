"""The kernel log if /dev/kmsg is missing or has lost lines: what dmesg and the journal add, and what counts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.evidence.kernel_log.collect import BOOT_ID, KMSG
from clusterproof.plugins.evidence.kernel_log.collect_follow import Follower
from tests.builders.probed import PATIENT, collect, probe, value
from tests.evidence.kernel_log.logged import without_kmsg
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes, needs_root
from tests.testbed.node import (
    healthy_cpu,
    with_file,
    with_tool,
)

NOBODY = 65534
FOR_EVER = "while :; do sleep 1; done"
DENIED = "#!/bin/sh\necho dmesg: read kernel buffer failed: Operation not permitted >&2\nexit 1\n"
LOST = "6,9000,7200000000,-;NVRM: first that is left\n"


@pytest.mark.parametrize(
    ("journal", "added", "whole_from"),
    [
        (
            {0: "Linux version 6.8.0", 7100: "NVRM: early", 7200: "NVRM: first that is left"},
            ["Linux version 6.8.0", "NVRM: early"],
            0.0,
        ),
        ({7100: "NVRM: early", 7200: "NVRM: first that is left"}, ["NVRM: early"], 7100.0),
        ({0: "Linux version 6.8.0", 5000: "NVRM: early"}, ["Linux version 6.8.0", "NVRM: early"], 7200.0),
        ({}, [], 7200.0),
    ],
    ids=["whole", "begins-late", "ends-early", "empty"],
)
@needs_nodes
def test_what_kmsg_has_lost_comes_from_the_journal(
    journal: dict[int, str], added: list[str], whole_from: float
) -> None:
    script = "".join(f"echo '[{at:5}.000000] gpu001 kernel: {text}'\n" for at, text in journal.items())
    image = with_tool(with_file(healthy_cpu(), "/dev/kmsg", LOST), "journalctl", f"#!/bin/sh\n{script}")
    log = value(image, "kernel_log")
    assert log["source"] == "/dev/kmsg"
    assert [text for _, text in log["lines"]] == [*added, "NVRM: first that is left"]
    assert (log["truncated"], log["whole_from"]) == (whole_from > 0, whole_from)


@needs_nodes
def test_a_journal_that_does_not_end_costs_only_what_it_would_have_added() -> None:
    journal = f"#!/bin/sh\necho '[    0.0] gpu001 kernel: NVRM: early'\n{FOR_EVER}\n"
    image = with_tool(with_file(healthy_cpu(), "/dev/kmsg", LOST), "journalctl", journal)
    log = value(image, "kernel_log", ProbeOptions(collector_s=4.0))
    assert [text for _, text in log["lines"]] == ["NVRM: early", "NVRM: first that is left"]
    assert log["truncated"] is True


@pytest.mark.parametrize("tool", ["journalctl", "dmesg"])
@needs_nodes
def test_of_a_record_of_the_driver_that_a_tool_prints_over_several_lines_none_is_lost(tool: str) -> None:
    head = "[ 7100.000000] " + "gpu001 kernel: " * (tool == "journalctl")
    words = ["NVRM: The NVIDIA GPU 0000:c5:00.0 (PCI ID: 10de:2330)", "NVRM: installed in this system has"]
    words += ["NVRM: fallen off the bus and is not responding to commands."]
    lines = f"{head}{words[0]}\n{' ' * len(head)}{words[1]}\n{' ' * len(head)}{words[2]}\n{head}usb 1-1: x\n"
    image = with_tool(with_tool(without_kmsg(), "journalctl", DENIED), "dmesg", DENIED)
    log = value(with_tool(image, tool, f"#!/bin/sh\ncat <<'E'\n{lines}E\n"), "kernel_log")
    assert log["lines"] == [[7100.0, "\n".join(words)]]


@needs_nodes
def test_a_journal_that_begins_late_has_all_the_time_of_its_collector() -> None:
    journal = (
        "#!/bin/sh\nsleep 1\necho '[    0.0] gpu001 kernel: NVRM: early'\necho '[ 7200.0] gpu001 kernel: NVRM: x'\n"
    )
    image = with_tool(with_file(healthy_cpu(), "/dev/kmsg", LOST), "journalctl", journal)
    log = value(image, "kernel_log")
    assert [text for _, text in log["lines"]] == ["NVRM: early", "NVRM: first that is left"]
    assert log["truncated"] is False


@pytest.mark.parametrize("tool", ["journalctl", "dmesg"])
@needs_nodes
def test_what_a_tool_printed_before_it_hung_is_said_and_proves_nothing_of_the_rest(tool: str) -> None:
    host = " gpu001 kernel:" if tool == "journalctl" else ""
    image = with_tool(with_tool(without_kmsg(), "journalctl", DENIED), "dmesg", DENIED)
    hangs = f"#!/bin/sh\necho '[    0.0]{host} NVRM: Xid (PCI:0000:c5:00): 79, x'\n{FOR_EVER}\n"
    log = value(with_tool(image, tool, hangs), "kernel_log", ProbeOptions(collector_s=4.0))
    assert [text for _, text in log["lines"]] == ["NVRM: Xid (PCI:0000:c5:00): 79, x"]
    assert (log["unfinished"], log["truncated"], log["whole_from"]) == (True, True, None)


@needs_nodes
def test_where_the_journal_hangs_the_ring_buffer_is_read_by_dmesg() -> None:
    image = with_tool(without_kmsg(), "journalctl", f"#!/bin/sh\n{FOR_EVER}\n")
    image = with_tool(image, "dmesg", "#!/bin/sh\necho '[    0.0] NVRM: x'\n")
    log = value(image, "kernel_log", ProbeOptions(collector_s=4.0))
    assert (log["source"], log["lines"]) == ("dmesg", [[0.0, "NVRM: x"]])


@pytest.mark.long
@pytest.mark.parametrize("indent", ["[   12.500000] ", " " * 15], ids=["from syslog(2)", "from /dev/kmsg"])
def test_only_the_head_of_a_record_that_dmesg_prints_is_the_kernels_word(indent: str) -> None:
    lines = (
        "[    0.000000] Linux version 6.8.0\n[    0.000000] NVRM: loading\n"
        f"[   12.500000] tmpfs: Unknown parameter 'x\n{indent}NVRM: Xid (PCI:0000:c5:00): 79'\n{indent}nvidia: y\n"
        "[   12.600000] NVRM: one\n[   12.600000] NVRM: two\n"
    )
    log = value(printing(lines), "kernel_log")
    assert log["source"] == "dmesg"
    assert [line[1] for line in log["lines"]] == ["Linux version 6.8.0", "NVRM: loading", "NVRM: one", "NVRM: two"]


@needs_root
@needs_nodes
def test_a_users_newline_in_this_machines_log_is_no_record_where_dmesg_has_it_from_syslog() -> None:
    mark = f"NVRM: Xid (PCI:0000:c5:00): {os.getpid() % 90 + 10}"
    mount = ["unshare", "-Urm", "mount", "-t", "tmpfs", "-o", f"x\n{mark}", "none", "/mnt"]
    subprocess.run(mount, capture_output=True, check=False)
    hidden = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /dev && dmesg"]
    shown = subprocess.run(hidden, capture_output=True, text=True, check=False).stdout
    if f"] {mark}'" not in shown:
        pytest.skip("this machine lets nobody mount in a namespace of his own, or shows no kernel log")
    log = value(printing("".join(f"{line}\n" for line in shown.split("\n")[-20:])), "kernel_log")
    assert [line for line in log["lines"] if mark in line[1]] == []


def printing(lines: str) -> NodeImage:
    """A node whose dmesg prints these lines, with no other kernel log."""
    image = with_tool(without_kmsg(), "journalctl", DENIED)
    return with_tool(image, "dmesg", f"#!/bin/sh\ncat <<'E'\n{lines}E\n")


@pytest.mark.parametrize("tool", ["journalctl", "dmesg"])
@needs_nodes
def test_without_kmsg_a_tool_prints_the_same_lines(tool: str) -> None:
    host = " gpu001 kernel:" if tool == "journalctl" else ""
    script = f"""#!/bin/sh
[ "$LC_ALL" = C ] || exit 1
echo "-- Logs begin at Thu 2025-11-20 --"
echo "[    0.000000]{host} Linux version 6.8.0"
echo "[ 9000.250000]{host} NVRM: Xid (PCI:0000:c5:00): 48, pid=12"
echo "[ 9000.300000]{host and " gpu001 health[9]:"} {"NVRM: no word of the kernel" if host else "usb 1-1: x"}"
"""
    image = with_tool(with_tool(without_kmsg(), "journalctl", DENIED), "dmesg", DENIED)
    log = value(with_tool(image, tool, script), "kernel_log")
    assert log["source"].startswith(tool)
    assert log["lines"] == [[0.0, "Linux version 6.8.0"], [9000.25, "NVRM: Xid (PCI:0000:c5:00): 48, pid=12"]]


@needs_nodes
def test_a_log_that_may_not_be_read_is_denied_and_not_empty() -> None:
    image = with_tool(with_tool(healthy_cpu(), "journalctl", "#!/bin/sh\necho '-- No entries --'\n"), "dmesg", DENIED)
    collector = collect(image, "kernel_log", user=NOBODY)
    assert collector.status is Status.DENIED
    assert "/dev/kmsg: Permission denied" in collector.detail
    assert "read kernel buffer failed" in collector.detail


@needs_nodes
def test_an_empty_log_is_no_evidence() -> None:
    image = with_file(healthy_cpu(), "/dev/kmsg", "")
    assert collect(with_tool(image, "dmesg", DENIED), "kernel_log").status is Status.DENIED
    assert (
        collect(with_tool(image, "dmesg", "#!/bin/sh\necho '[    0.0] NVRM: x'\n"), "kernel_log").status is Status.READ
    )


@needs_root
def test_this_machines_own_log_is_read_to_its_end() -> None:
    log = probe(["kernel_log"], PATIENT).collectors["kernel_log"].value
    assert log["source"] == "/dev/kmsg"
    assert log["read"] > 10
    assert Path("/dev/kmsg").is_char_device()


BOOT = "3f1c9a52"
Reads = list[bytes | type[OSError]]


def record(number: int) -> bytes:
    return f"4,{number},{number}000000,-;NVRM: Xid (PCI:0000:53:00): {number}, pid='<unknown>', it broke\n".encode()


def follower(root: Path, monkeypatch: pytest.MonkeyPatch, cursor: tuple[str, int, float], reads: Reads) -> Follower:
    """A reader of a device that returns these, one at a time."""
    for path in (BOOT_ID, KMSG):
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(BOOT if path == BOOT_ID else "")
    made, left = Follower(Node(str(root)), cursor), list(reads)

    def read(_file: int, _size: int) -> bytes:
        item = left.pop(0) if left else BlockingIOError
        if isinstance(item, bytes):
            return item
        raise item()

    monkeypatch.setattr(os, "read", read)
    return made


@pytest.mark.parametrize(
    ("cursor", "reads", "lost"),
    [
        (7, [record(8), record(9)], 0),
        (7, [record(6), record(7), record(8)], 0),
        (7, [record(8), BrokenPipeError, record(20)], 11),
        (7, [record(8), BrokenPipeError, record(20), BrokenPipeError, record(31)], 21),
        (7, [record(20)], 12),  # overwritten before reading began
        (-1, [record(20), record(21)], 0),
        (-1, [record(20), BrokenPipeError, record(22)], 1),
        (-1, [BrokenPipeError, record(20)], 1),  # perhaps more
    ],
)
def test_records_that_were_overwritten_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor: int, reads: Reads, lost: int
) -> None:
    known = (BOOT, cursor, 5.0) if cursor >= 0 else ("", -1, -1.0)
    made = follower(tmp_path, monkeypatch, known, reads)
    made.lines()
    assert made.lost == lost
