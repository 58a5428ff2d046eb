"""Kernel log lines about the host: every form is recognised, and similar-looking text is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN, Kept
from clusterproof.plugins.evidence.kernel_log.events_gpu import LONGEST_TEXT, Cleared, GpuNamed
from clusterproof.plugins.evidence.kernel_log.events_host import (
    BOUND,
    LONGEST_WORDS,
    Event,
    HardwareError,
    Logged,
    NotKnown,
    OomKill,
    PcieError,
    Segfault,
)
from clusterproof.plugins.evidence.kernel_log.facts import Events
from tests.builders.samples import Sample, of_topic, sample
from tests.evidence.kernel_log.event_lines import CLOSER_READ
from tests.evidence.kernel_log.known_lines import EVERY_TEXT
from tests.testbed.kernel_log import report

MEMCG = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/slurm/job_7,task=python3,pid=39,uid=0"


def parse(*lines: str) -> Events:
    return kernel_log.parse((1.0, line) for line in lines)


def events_of(*lines: str) -> Events:
    """The events that a check may report, without those that only end others."""
    events = parse(*lines)
    return tuple(event for event in events if not isinstance(event, Logged) or log_forms()[event.form].check)


@pytest.mark.parametrize(("line", "event"), CLOSER_READ)
def test_the_forms_of_a_line_are_read(line: str, event: Event) -> None:
    assert parse(line) == (event,)
    assert parse(f"[ 4242.000001] gpu001.example.org kernel: {line}") == (event,)


@pytest.mark.parametrize("line", [line for line, _ in CLOSER_READ])
def test_a_line_that_is_read_is_kept_by_the_probe(line: str) -> None:
    assert Kept().of([(0.5, line.encode(), UNKNOWN)])["lines"] == [[0.5, line]]


@pytest.mark.parametrize(
    "line",
    [
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom_reaper: reaped process 39 (python3), now anon-rss:0kB, file-rss:0kB",
        "Memory: 2097152K/2097152K available",
        "python3[39]: Out of memory: Killed process 39 (python3)",
        "platform eisa.0: Cannot allocate resource for EISA slot 1",
        "ima: Can not allocate sha384 (reason: -2)",
        "EDAC MC: Ver: 3.0.0",
        "EDAC MC0: Giving out device to module i10nm_edac controller Intel_10nm Socket#0: DEV 0000:7e:0c.0",
        "EDAC sbridge MC3: PROCESSOR 0:306e7 TIME 1422553404 SOCKET 0 APIC 0",
        "mce: CPU supports 9 MCE banks",
        "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
        "{1}[Hardware Error]: event severity: info",
        "{1}[Hardware Error]:  Error 0, type: fatal",
        "Memory failure: 0x3f5d2a: already hardware poisoned",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability]",
        "pcieport 0000:00:1c.0: AER: enabled with IRQ 24",
        "nvidia 0000:53:00.0:   device [10de:2330] error status/mask=00000001/0000e000",
        "efa 0000:00:1f.0: Setup irq:27 name:efa-mgmnt@pci:0000:00:1f.0",
        "efa 0000:00:1f.0 efa_0: Unregister ib device",
        "efa: module verification failed: signature and/or required key missing - tainting kernel",
        "infiniband mlx5_0: Failed to modify QP",
        "ena 0000:00:05.0 eth0: Failed to submit command",
        "slurmd[9]: python3[77]: segfault at 0 ip 0 sp 0 error 4",
        "python3[77]: segfault in the application",
        "WARNING: CPU: 3 PID: 77 at fs/inode.c:611 iput+0x1/0x2",
        "CPU3: Core temperature is above threshold, cpu clock is throttled (total events = 5)",
        "CPU3: Package temperature/speed normal (total events = 5)",
        "EXT4-fs error (device loop3): ext4_lookup:1815: inode #2: comm x: deleted inode referenced: 12",
        "EXT4-fs (loop3): Remounting filesystem read-only",
        "XFS (loop3): Corruption detected. Unmount and run xfs_repair",
        "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "I/O error, dev loop0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "nvme nvme0: 32/0/0 default/read/poll queues",
        "nvme nvme0: allocated 64 MiB host memory buffer.",
        "ena 0000:00:05.0: ENA device version: 0.10",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:5c:00.0 ens1f0np0: Link up",
        "br0: port 1(veth0) entered blocking state",
        "rcu: Hierarchical RCU implementation.",
        "systemd[1]: Installed transient /etc/machine-id file.",
        "Lustre: Lustre: Build Version: 2.15.6",
        "Lustre: Mounted fsx-client",
        "nfs: server 10.0.96.201",
        "NFS: Registering the id_resolver key type",
    ],
)
def test_what_only_looks_like_it_is_no_event(line: str) -> None:
    assert events_of(line) == ()


def test_a_kill_at_a_limit_names_its_control_group_if_that_was_logged_of_the_same_process() -> None:
    killed = "Memory cgroup out of memory: Killed process {} (python3) total-vm:1kB"
    assert parse(MEMCG, killed.format(39)) == (OomKill("python3", 39, "/slurm/job_7", 1.0),)
    assert parse(MEMCG, killed.format(40)) == (OomKill("python3", 40, "?", 1.0),)


@pytest.mark.parametrize("constraint", ["CPUSET", "MEMORY_POLICY"])
@pytest.mark.parametrize(
    "end", ["task=python3,pid=39,uid=1000", "task=a,pid=7,uid=0,b,pid=39,uid=1000", "task_memcg=/cut"]
)
def test_a_kill_on_numa_nodes_that_a_process_is_bound_to_is_not_the_whole_nodes(constraint: str, end: str) -> None:
    line = f"oom-kill:constraint=CONSTRAINT_{constraint},nodemask=0,cpuset=/,mems_allowed=0-1,global_oom,{end}"
    killed = "Out of memory: Killed process 39 (python3) total-vm:1kB"
    assert parse(line, killed) == (OomKill("python3", 39, BOUND, 1.0),)
    assert parse(line, killed, killed)[1] == OomKill("python3", 39, "", 1.0)


def test_kills_of_two_sorts_at_once_each_have_their_own_limit() -> None:
    bound = "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=0,global_oom,task=python3,pid=41,uid=0"
    events = parse(
        MEMCG,
        bound,
        "Memory cgroup out of memory: Killed process 39 (python3) total-vm:1kB",
        "Out of memory: Killed process 41 (python3) total-vm:1kB",
    )
    assert [event.group for event in events if isinstance(event, OomKill)] == ["/slurm/job_7", BOUND]


def test_a_kill_for_want_of_the_whole_nodes_memory_stays_one() -> None:
    line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,task=python3,pid=39,uid=0"
    killed = "Out of memory: Killed process 39 (python3) total-vm:1kB"
    assert parse(line, killed) == (OomKill("python3", 39, "", 1.0),)


ON_BUS = ("section_type: PCIe error", "port_type: 0, PCIe end point", "device_id: 0000:53:00.0")


@pytest.mark.parametrize(
    ("severity", "sections", "found"),
    [
        ("corrected", ON_BUS, [PcieError("0000:53:00.0", "corrected", "", 1.0)]),
        ("recoverable", ON_BUS, [PcieError("0000:53:00.0", "nonfatal", "", 1.0)]),
        ("fatal", ON_BUS, [PcieError("0000:53:00.0", "fatal", "", 1.0)]),
        ("recoverable", ON_BUS[:1], [PcieError("", "nonfatal", "", 1.0)]),
        ("recoverable", (*ON_BUS, *ON_BUS[:1], "device_id: 0000:64:00.0"),
         [PcieError("0000:53:00.0", "nonfatal", "", 1.0), PcieError("0000:64:00.0", "nonfatal", "", 1.0)]),
    ],
)  # fmt: skip
def test_an_error_on_the_bus_that_the_firmware_reports_is_of_the_device(
    severity: str, sections: tuple[str, ...], found: list[Event]
) -> None:
    assert list(parse(*report(1, severity, *sections))) == found


@pytest.mark.parametrize(
    ("severity", "sections", "lost", "recovered"),
    [
        ("recoverable", (), 1, 0),  # nothing more is known of it
        ("recoverable", ("section_type: memory error", "section_type: memory error"), 1, 0),
        ("recoverable", ("section_type: general processor error",), 0, 1),
        ("fatal", ("section_type: general processor error",), 1, 0),
        ("recoverable", ("section_type: memory error", *ON_BUS), 1, 0),
        ("recoverable", (*ON_BUS, "section_type: memory error"), 1, 0),
    ],
)
def test_what_the_firmware_calls_recoverable_is_lost_only_where_it_was_memory(
    severity: str, sections: tuple[str, ...], lost: int, recovered: int
) -> None:
    others = report(2, "recoverable", "section_type: general processor error")[:1]
    events = parse(*report(1, severity, *sections), *others)[:-1]
    errors = [event for event in events if isinstance(event, HardwareError)]
    assert sum(not (event.is_corrected or event.is_recovered) for event in errors) == lost
    assert sum(event.is_recovered for event in errors) == recovered


def test_the_captured_crashes_in_nccl_are_read() -> None:
    events = kernel_log.parse((None, line) for line in sample("kernel-log/gpud-dmesg-nccl-segfault-iso.txt").lines)
    crashes = [(event.process, event.library) for event in events if isinstance(event, Segfault)]
    assert crashes == [("pt_main_thread", "libnccl.so.2")] * 2


@pytest.mark.parametrize("capture", of_topic("kernel-log", lambda capture: capture.is_healthy))
def test_a_healthy_capture_has_no_event_of_the_host(capture: Sample) -> None:
    assert {type(event) for event in events_of(*capture.lines)} <= {Cleared}


NEW = "mlx5_core 0000:5c:00.0: something new is wrong at 0x{:x}"


@pytest.mark.parametrize(
    ("text", "level", "is_listed"),
    [
        (NEW, 3, True),
        (NEW, 0, True),
        (NEW, 4, False),
        ("mlx5_core[7]: something new at 0x{:x}", 3, False),  # a process's name
        ("usb 1-1: something new at 0x{:x}", 3, False),
        ("nvidia-peermem nv_get_p2p_free_callback:125 ERROR detected invalid context", 3, False),  # a form knows it
    ],
)
def test_an_error_of_a_device_of_ours_that_no_form_knows_is_listed_with_those_alike(
    text: str, level: int, is_listed: bool
) -> None:
    events = kernel_log.parse([(float(at), text.format(at), 0, level) for at in range(3)])
    kinds = {event.kind for event in events if isinstance(event, NotKnown)}
    assert kinds == ({"mlx5_core 0000:5c:00.0: something new is wrong at #"} if is_listed else set())


def test_words_of_a_line_without_end_are_cut() -> None:
    (event,) = parse("{1}[Hardware Error]: event severity: fatal".ljust(300, "x").replace("fatalx", "fatal x"))
    assert isinstance(event, HardwareError)
    assert len(event.words) == LONGEST_WORDS


@pytest.mark.parametrize(("data", "event"), CLOSER_READ)
def test_an_event_stands_for_the_lines_that_were_left_out_before_it(data: str, event: Event) -> None:
    (only,) = kernel_log.parse([(1.0, data, 200)])
    assert not isinstance(only, Cleared | GpuNamed)
    assert only.lines == 201


pieces = st.one_of(
    st.sampled_from(EVERY_TEXT).flatmap(lambda line: st.integers(0, len(line)).map(lambda at: line[:at])),
    st.sampled_from([*EVERY_TEXT, "[", "]", ": ", " " * 60, "9" * 60, "a" * 300, "\x00", "\n"]),
    st.text(max_size=20),
)


@given(st.lists(pieces, max_size=6).map("".join))
def test_whatever_a_line_says_reading_it_ends_and_gives_bounded_words(line: str) -> None:
    for event in parse(line):
        for word in re.findall(r"'([^']*)'", repr(event)):
            assert len(word) <= max(LONGEST_WORDS, LONGEST_TEXT) + 255
