"""Kernel logs as printed by talosctl, dmesg -H, grep and others: what each line says, and when it was logged."""

from __future__ import annotations

from pathlib import Path

import pytest
from zstandard import ZstdDecompressor

from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.log_dates import dated
from clusterproof.plugins.watch.recording import NodeRecording
from clusterproof.plugins.watch.updates import Hello, LogLine, LogUpdate
from tests.case.files import BROKEN_GPU, STEPS, XID_79, case_of

XID = XID_79.partition(" ")[2].strip()
OF_TALOS = "10.0.0.3: kern: warning: [2026-03-01T08:00:01.458998481Z]: "
USER = "10.0.0.3: user: warning: [2026-03-01T08:00:00.100000000Z]: "
LINES_OF_TALOS = f"{USER}[talos] service is healthy\n" * 5 + f"{OF_TALOS}NVRM: GPU at PCI:0000:c5:00: GPU-5f\n"
MINUTES = "[Mar 1 07:59] ACPI: thing\n[  +0.000012] ACPI: another\n[Mar 1 08:00] mce: a\n"


@pytest.mark.parametrize("host", ["10.0.0.3: ", "fd00::3: ", ""])
def test_what_talosctl_saved_of_the_kernel_is_evidence(host: str, tmp_path: Path) -> None:
    log = f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n".replace("10.0.0.3: ", host)
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    assert (case.verdict.nodes, case.verdict.standing) == (("gpu003",), "established")


def test_its_year_is_that_of_lines_without_one(tmp_path: Path) -> None:
    log = f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n"
    files = {"gpu003-dmesg.txt": log, "rank_0.log": "E0301 08:00:00.500000 9 x.cc:1] KeyError: 'image'\n"}
    (event,) = case_of(tmp_path, files).collected.events
    assert event.when.begins == 1_772_352_000.5


def test_what_a_program_wrote_beside_it_is_none(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": f"{LINES_OF_TALOS}{USER}{XID}\n"})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())


def test_a_line_of_dmesg_h_is_of_its_minute_from_where_its_steps_are_counted(tmp_path: Path) -> None:
    log = f"{MINUTES}[  +1.500000] {XID}\n[ +10.250000] {XID}\n"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    first, second = (fact.when for fact in case.collected.facts)
    eight = 1_772_352_000.0
    assert (first.begins, first.ends) == (eight + 1.5, eight + 60)
    assert (second.begins, second.ends) == (eight + 11.75, eight + 60)
    assert case.verdict.nodes == ("gpu003",)


def test_an_exception_within_that_minute_may_have_been_first(tmp_path: Path) -> None:
    log = f"{MINUTES}[  +1.500000] {XID}\n"
    raised = {"rank_3.log": "", "rank_0.log": "2026-03-01 08:00:20,000 KeyError: 'image'\n"}
    files = {name: text for name, text in {**BROKEN_GPU, **raised, "gpu003-dmesg.txt": log}.items() if text}
    assert case_of(tmp_path, files).verdict.cause == "unknown"


def test_a_line_behind_nothing_that_tells_a_minute_has_no_time(tmp_path: Path) -> None:
    log = f"[  +0.000012] ACPI: another\n[  +1.500000] {XID}\n"
    (fact,) = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log}).collected.facts
    assert fact.when.begins is None


def test_what_a_node_says_twice_is_said_once(tmp_path: Path) -> None:
    fallen = (
        "2026-03-01T08:00:01,000000+00:00 NVRM: The NVIDIA GPU 0000:c5:00.0\n               NVRM: (PCI ID: 10de:26b5) "
        "installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n"
        "2026-03-01T08:00:01,200000+00:00 NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": fallen})
    assert case.verdict.why.endswith("Xid 79, GPU has fallen off the bus")


@pytest.mark.parametrize(
    "log",
    [
        MINUTES.replace("Mar 1 08", "Feb 31 08").replace("Mar 1 07", "Xyz 9 07"),
        f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n".replace("2026-03-01T08", "2026-99-99T99"),
        MINUTES.replace("Mar 1", "Dec 31"),
    ],
    ids=["no day", "no day of Talos", "the end of a year"],
)
def test_a_time_that_is_none_makes_no_error(log: str, tmp_path: Path) -> None:
    case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})


def test_steps_that_leave_the_calendar_are_of_no_time() -> None:
    lines = dated(MINUTES + "[+999999.999999] a\n" * 200, Clock(9890)).splitlines()
    assert (lines[3][:10], lines[-1]) == ("9890-03-12", "[+999999.999999] a")


FOUND_XID = XID_79.partition(" ")[2].strip()
ISO = f"2026-03-01T08:00:01.000000+00:00 gpu003 kernel: {FOUND_XID}\n"
SYSLOG = f"Mar  1 08:00:01 gpu003 kernel: {FOUND_XID}\n"
STAMPED = "kernel: [500000.123456] "  # as Ubuntu's rsyslog writes it into kern.log
SSHD = "2026-03-01T08:00:03.000000+00:00 gpu003 sshd[12]: hi\n"
LOGREAD = f"Sun Mar  1 08:00:01 2026 kern.err kernel: {FOUND_XID}\n"
BUSYBOX = f"Mar  1 08:00:01 gpu003 kern.err kernel: {FOUND_XID}\n"
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
    assert any("any user can write lines like the kernel's there" in gap for gap in case.collected.missing)


@pytest.mark.parametrize("before", ["/var/log/kern.log:", "17:", "/var/log/kern.log:17:", "     17\t"])
@pytest.mark.parametrize(
    "line",
    [ISO, SYSLOG, ISO.replace("kernel: ", STAMPED), SYSLOG.replace("kernel: ", STAMPED)],
    ids=["rsyslog's", "syslog's", "rsyslog's with a stamp", "syslog's with a stamp"],
)
def test_what_grep_finds_in_the_kernels_own_file_is_evidence_at_its_time(
    before: str, line: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": f"{before}{line}"})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))


@pytest.mark.parametrize("before", ["/var/log/kern.log:", "17:", ""])
@pytest.mark.parametrize("kernel", ["kernel: ", STAMPED])
def test_what_grep_finds_of_another_week_is_of_that_week(before: str, kernel: str, tmp_path: Path) -> None:
    old = f"{before}{SYSLOG.replace('Mar  1', 'Feb 20').replace('kernel: ', kernel)}"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": old})
    assert case.verdict.cause == "unknown"
    (gap,) = [gap for gap in case.collected.missing if "another time" in gap]
    assert gap.endswith("gpu003 2026-02-20 08:00:01")


def test_the_host_of_lines_that_grep_finds_is_theirs(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu002-dmesg.txt": f"/var/log/kern.log:{ISO}", "gpu003-dmesg.txt": ISO})
    assert any("its lines are of gpu003" in gap for gap in case.collected.missing)


@pytest.mark.parametrize("number", [1, 30])
def test_an_odd_line_beside_evidence_takes_none_of_it_away(number: int, tmp_path: Path) -> None:
    log = XID_79.format(time="08:00:01") + "some odd thing kernel: hi\n" * number
    log += XID_79.format(time="07:00:00").replace("Xid", "thing") * number
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))
    assert any("it is not known what stands before `kernel:`" in gap for gap in case.collected.missing)


OF_SEVERAL = f"/logs/gpu003/kern.log:{ISO}/logs/gpu002/kern.log:{ISO}"


def test_a_log_that_cannot_be_read_is_said_and_is_none_of_its_node(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu001-dmesg.txt": OF_SEVERAL.replace("gpu003", "gpu001")})
    assert case.collected.nodes_with_log == ("gpu003",)
    (gap,) = [gap for gap in case.collected.missing if gap.startswith("gpu001-dmesg.txt: ")]
    assert "it was found in several files" in gap
    assert case.advice.nodes["gpu001"] == "not known"


def test_a_restart_leaves_no_node_out_for_an_error_of_a_program_hours_before(tmp_path: Path) -> None:
    of_program = "NVRM: Xid (PCI:0000:c5:00): 43, pid=101, name=python, Ch 00000010"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": f"2026-03-01T07:10:00,000000+00:00 {of_program}\n"})
    assert (case.verdict.cause, case.verdict.suspects, case.advice.exclude) == ("unknown", ("gpu003",), ())


@pytest.mark.parametrize(
    ("line", "due"),
    [
        ("nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "test"),
        ("Kernel panic - not syncing: Fatal exception in interrupt", "test"),
        ("Out of memory: Killed process 12 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB", "keep"),
    ],
)
def test_a_node_that_its_own_log_fails_is_not_kept_whatever_ended_the_job(line: str, due: str, tmp_path: Path) -> None:
    log = f"2026-03-01T07:20:00,000000+00:00 nvme nvme0: ready\n2026-03-01T07:30:00,000000+00:00 {line}\n"
    raised = STEPS + "2026-03-01 08:00:00,000 KeyError: 'a'\n"
    case = case_of(tmp_path, {"sacct.txt": BROKEN_GPU["sacct.txt"], "rank_0.log": raised, "gpu002-dmesg.txt": log})
    assert (case.verdict.cause, case.advice.nodes["gpu002"], case.advice.exclude) == ("code", due, ())


def recorded(folder: Path, *messages: tuple[float, str], node: str = "gpu003", boot: str = "b1") -> None:
    """A watch's recording of these messages, at seconds before or after 08:00."""
    folder.mkdir(exist_ok=True)
    recording = NodeRecording(folder, node, 10.0)
    recording.learn(Hello(boot, 1_772_352_000.0, 5000.0))
    recording.write(LogUpdate(5600.0, tuple(LogLine(9, 5000.0 + at, text) for at, text in messages)), 1_772_352_600.0)
    recording.close()


REBOOTED = {name: text for name, text in BROKEN_GPU.items() if "dmesg" not in name}


def test_what_a_watch_recorded_of_a_node_is_evidence_after_its_reboot(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, XID))
    case = case_of(tmp_path, REBOOTED)
    assert (case.verdict.nodes, case.verdict.standing) == (("gpu003",), "established")
    (fact,) = case.collected.facts
    assert fact.when.begins == 1_772_352_001.0
    assert "1 recording of a watch" in case.collected.read
    assert "no kernel log of gpu001, gpu002, gpu004" in case.collected.missing


def test_a_file_named_after_a_node_that_was_watched_is_of_that_node(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, XID))
    own = f"{STEPS}2026-03-01 08:00:02,100 RuntimeError: CUDA error: unspecified launch failure\n"
    assert case_of(tmp_path, {"gpu003.out": own}).verdict.standing == "established"


def test_a_watch_that_recorded_nothing_keeps_no_node(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module"), node="gpu001")
    case = case_of(tmp_path, REBOOTED)
    assert case.advice.nodes["gpu001"] == "not known"
    assert "kernel logs of gpu001, but for what a watch recorded" in case.collected.missing


def test_a_log_that_was_read_whole_keeps_its_node_beside_a_recording(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, XID), node="gpu099")
    recorded(tmp_path, (1.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module"), node="gpu001")
    log = "2026-03-01T06:00:00,000000+00:00 Linux version 6.1.0 (x)\n2026-03-01T08:30:00,000000+00:00 usb 1-1: new\n"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu001-dmesg.txt": log})
    assert case.advice.nodes["gpu001"] == "keep"
    assert "gpu099" not in case.advice.nodes


def test_a_recording_that_another_user_may_write_is_none(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, XID))
    (tmp_path / "gpu003.samples.jsonl.zst").chmod(0o666)
    case = case_of(tmp_path, REBOOTED)
    assert case.verdict.nodes == ()
    assert any("gpu003.samples.jsonl.zst: no evidence against a node" in words for words in case.collected.missing)


def test_a_message_with_a_line_break_is_one_line(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, f"python[12]: segfault\n2026-03-01T08:00:01,000000+00:00 {XID}"))
    assert case_of(tmp_path, REBOOTED).verdict.nodes == ()


def test_what_is_cut_off_a_recording_is_named_and_the_rest_counts(tmp_path: Path) -> None:
    recorded(tmp_path, (1.0, XID))
    packed = tmp_path / "gpu003.samples.jsonl.zst"
    with packed.open("rb") as file:
        text = ZstdDecompressor().stream_reader(file, read_across_frames=True).read().decode()
    packed.unlink()
    case = case_of(tmp_path, {**REBOOTED, "gpu003.samples.jsonl": f'{text}{{"event": {{"ti'})
    assert case.verdict.nodes == ("gpu003",)
    assert any("gpu003.samples.jsonl: lines of it" in words for words in case.collected.missing)
    case = case_of(tmp_path, {"gpu003.samples.jsonl": text + "[1, 2]\n" * (2 << 20)})
    assert not any(words.startswith("gpu003.samples.jsonl: ") for words in case.collected.missing)


BOOTS = "2026-03-01T{time},000000+00:00 Linux version 5.15.0-1 (gcc)\n"


@pytest.mark.parametrize(
    ("log", "suspects", "due"),
    [
        (f"-- Reboot --\n{BOOTS.format(time='08:05:00')}", ("gpu003",), "test"),
        (BOOTS.format(time="08:05:00"), ("gpu003",), "test"),
        (f"-- Reboot --\n{BOOTS.format(time='06:30:00')}", (), "keep"),
        (f"-- Reboot --\n{BOOTS.format(time='07:05:00')}", (), "keep"),  # for the job to begin
        (f"-- Reboot --\n{BOOTS.format(time='08:12:00')}", (), "keep"),
    ],
)
def test_a_node_that_was_booted_while_the_job_ran_is_a_suspect(
    log: str, suspects: tuple[str, ...], due: str, tmp_path: Path
) -> None:
    begins = "" if log.startswith("2026") else "2026-03-01T06:00:00,000000+00:00 nvme nvme1: ready\n"
    files = {"rank_1.log": BROKEN_GPU["rank_1.log"], "sacct.txt": BROKEN_GPU["sacct.txt"]}
    case = case_of(tmp_path / "one", {**files, "gpu003-dmesg.txt": begins + log})
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", suspects)
    assert case.advice.nodes["gpu003"] == due
    both = {"gpu003-dmesg.txt": begins + log, "gpu004-dmesg.txt": begins + log}
    assert case_of(tmp_path / "two", {**files, **both}).verdict.suspects == (("gpu003", "gpu004") if suspects else ())


def test_a_gpu_that_failed_behind_the_boot_of_its_node_says_more_than_the_boot(tmp_path: Path) -> None:
    files = {"rank_1.log": BROKEN_GPU["rank_1.log"], "sacct.txt": BROKEN_GPU["sacct.txt"]}
    log = BOOTS.format(time="08:05:00") + XID_79.format(time="08:05:20")
    verdict = case_of(tmp_path, {**files, "gpu003-dmesg.txt": log}).verdict
    assert (verdict.cause, verdict.nodes) == ("hardware", ("gpu003",))
