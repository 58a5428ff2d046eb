"""What the kernel log says of the host: every form is read, and what only looks like one is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.facts import kernel_log
from clusterproof.plugins.facts.kernel_hardware import LONGEST_WORDS
from clusterproof.plugins.facts.kernel_host import AllocationFailure, FileServer, OomKill, Segfault
from clusterproof.plugins.facts.kernel_log import Cleared, Event, Events
from clusterproof.plugins.probe.kernel_lines import Kept
from tests.host_lines import FORMS
from tests.samples import Sample, of_topic, sample

MEMCG = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/slurm/job_7,task=python3,pid=39,uid=0"


def parse(*lines: str) -> Events:
    return kernel_log.parse((1.0, line) for line in lines)


@pytest.mark.parametrize(("line", "event"), FORMS)
def test_the_forms_of_a_line_are_read(line: str, event: Event) -> None:
    assert parse(line) == (event,)
    assert parse(f"[ 4242.000001] gpu001.example.org kernel: {line}") == (event,)


@pytest.mark.parametrize("line", [line for line, _ in FORMS])
def test_a_line_that_is_read_is_kept_by_the_probe(line: str) -> None:
    assert Kept().of([(0.5, line.encode())])["lines"] == [[0.5, line]]


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
        "efa 0000:00:1f.0 efa_0: IB device registered",
        "efa: module verification failed: signature and/or required key missing - tainting kernel",
        "infiniband mlx5_0: Failed to modify QP",
        "ena 0000:00:05.0 eth0: Failed to submit command",
        "slurmd[9]: python3[77]: segfault at 0 ip 0 sp 0 error 4",
        "python3[77]: segfault in the application",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP PTI",
        "clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable",
        "rcu: Hierarchical RCU implementation.",
        "systemd[1]: Installed transient /etc/machine-id file.",
        "Lustre: Lustre: Build Version: 2.15.6",
        "LustreError: 11-0: fsx-OST0001-osc-ffff: operation ost_connect to node 10.0.0.1@tcp failed: rc = -19",
        "Lustre: Mounted fsx-client",
        "nfs: server 10.0.96.201",
        "NFS: Registering the id_resolver key type",
    ],
)
def test_what_only_looks_like_it_is_no_event(line: str) -> None:
    assert parse(line) == ()


def test_a_kill_at_a_limit_names_its_control_group_if_that_was_told_of_the_same_process() -> None:
    killed = "Memory cgroup out of memory: Killed process {} (python3) total-vm:1kB"
    assert parse(MEMCG, killed.format(39)) == (OomKill("python3", 39, "/slurm/job_7", 1.0),)
    assert parse(MEMCG, killed.format(40)) == (OomKill("python3", 40, "?", 1.0),)


def test_the_captured_crashes_in_nccl_are_read() -> None:
    events = kernel_log.parse((None, line) for line in sample("kernel-log/gpud-dmesg-nccl-segfault-iso.txt").lines)
    crashes = [(event.process, event.library) for event in events if isinstance(event, Segfault)]
    assert crashes == [("pt_main_thread", "libnccl.so.2")] * 2


@pytest.mark.parametrize("one", of_topic("kernel-log", lambda one: one.is_healthy))
def test_a_healthy_capture_tells_nothing_of_the_host(one: Sample) -> None:
    events = kernel_log.parse((None, line) for line in one.lines)
    assert {type(event) for event in events} <= {Cleared}


@pytest.mark.parametrize(("server", "is_back"), [("fsx-OST0001", True), ("other-OST0001", False)])
def test_an_unmounted_file_system_is_not_missed(server: str, is_back: bool) -> None:
    (event,) = parse("Lustre: Unmounted fsx-client")
    assert isinstance(event, FileServer)
    assert event.brings_back(server) is is_back


def test_words_of_a_line_without_end_are_cut() -> None:
    (event,) = parse("Cannot allocate memory".rjust(300, "x"))
    assert isinstance(event, AllocationFailure)
    assert len(event.what) == LONGEST_WORDS


@pytest.mark.parametrize(("told", "event"), [(line, event) for line, event in FORMS])
def test_an_event_stands_for_the_lines_that_were_left_out_before_it(told: str, event: Event) -> None:
    (only,) = kernel_log.parse([(1.0, told, 200)])
    assert not isinstance(only, Cleared | kernel_log.GpuNamed)
    assert only.lines == 201


pieces = st.one_of(
    st.sampled_from([line for line, _ in FORMS]).flatmap(
        lambda line: st.integers(0, len(line)).map(lambda at: line[:at])
    ),
    st.sampled_from([line for line, _ in FORMS] + ["[", "]", ": ", " " * 60, "9" * 60, "a" * 300, "\x00", "\n"]),
    st.text(max_size=20),
)


@given(st.lists(pieces, max_size=6).map("".join))
def test_whatever_a_line_says_reading_it_ends_and_gives_bounded_words(line: str) -> None:
    for event in parse(line):
        for word in re.findall(r"'([^']*)'", repr(event)):
            assert len(word) <= max(LONGEST_WORDS, kernel_log.LONGEST_TEXT) + 255
