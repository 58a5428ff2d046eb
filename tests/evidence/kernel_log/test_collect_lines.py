"""The probe keeps every kernel log line that has a meaning, and only a few of similar lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.kernel_log.collect_lines import (
    EACH,
    ERROR,
    MAX_CHARACTERS,
    MAX_TOTAL_CHARACTERS,
    UNKNOWN,
    Kept,
)
from clusterproof.plugins.evidence.kernel_log.events_gpu import Cleared
from clusterproof.plugins.evidence.kernel_log.facts import parse
from clusterproof.plugins.evidence.kernel_log.line import unwrap
from tests.builders.samples import Sample, of_topic

XID = "NVRM: Xid (PCI:0000:{:02x}:00): {}, pid={}, name=train"


def kept(texts: list[str]) -> list[str]:
    lines = Kept().of((float(at), text.encode(), UNKNOWN) for at, text in enumerate(texts))["lines"]
    assert isinstance(lines, list)
    return [line[1] for line in lines]


def is_of_this_boot(line: str) -> bool:
    """Whether the line has a meaning other than the machine's start, which another boot's lines precede."""
    return any(not isinstance(event, Cleared) or event.by != "a reboot" for event in parse([(None, line)]))


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_every_line_that_means_something_is_kept(sample: Sample) -> None:
    for line in filter(is_of_this_boot, sample.lines):
        message = unwrap(line)[1]
        assert kept([message]) == [message[:MAX_CHARACTERS]]


@pytest.mark.parametrize(
    "line",
    [
        "LustreError: 11-0: fsx-OST0001-osc-ffff: operation ost_connect to node 10.0.0.1@tcp failed: rc = -19",
        "nfs: server 10.0.0.9 not responding, still trying",
        "mce: [Hardware Error]: Machine check events logged",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
        "{1}[Hardware Error]: event severity: fatal",
        "Memory cgroup out of memory: Killed process 3921 (python3) total-vm:10kB",
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "INFO: task nvidia-smi:4711 blocked for more than 120 seconds.",
        "INFO: task python3:12 blocked in I/O wait for more than 241 seconds.",
        "pt_main_thread[2536443]: segfault at 7f79 ip 00007f7c sp 00007f7c error 4 in libnccl.so.2[7f7c+d3]",
        "pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0",
        "efa 0000:4f:00.0: Keep alive watchdog timeout.",
        "infiniband rdmap79s0: Failed to process command CREATE_QP",
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28002, Non-fatal, Link 46 AFT Address Out of Range",
        "kworker/0:1: page allocation failure: order:0, mode:0x20",
        "cgroup: fork rejected by pids controller in /user.slice",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "Linux version 6.8.0-1021-aws (buildd@lcy02)",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09",
        "nvidia-nvswitch0: Probing device 0000:08:00.0, Vendor Id = 0x10de",
        "[drm] [nvidia-drm] [GPU ID 0x0000c500] Removing device",
        "[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:c5:00.0 on minor 7",
    ],
)
def test_what_the_checks_and_people_look_for_is_kept(line: str) -> None:
    assert kept([line]) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: New USB device found, idVendor=1d6b",
        "systemd[1]: Set hostname to <gpu001>.",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "cfg80211: failed to load regulatory.db by default",
        "Memory: 2097152K/2097152K available",
        "systemd[1]: Installed transient /etc/machine-id file.",
        "",
    ],
)
def test_other_lines_are_not(line: str) -> None:
    assert kept([line]) == []


@pytest.mark.parametrize(
    ("line", "level", "is_kept"),
    [
        ("mlx5_core 0000:5c:00.0: something new is wrong", ERROR, True),
        ("mlx5_core 0000:5c:00.0: something new is wrong", 0, True),
        ("mlx5_core 0000:5c:00.0: something new is wrong", ERROR + 1, False),
        ("usb 1-1: something new is wrong", ERROR, False),
    ],
)
def test_an_error_of_a_device_of_ours_is_kept_with_its_level(line: str, level: int, is_kept: bool) -> None:
    assert Kept().of([(0.5, line.encode(), level)])["lines"] == ([[0.5, line, 0, level]] if is_kept else [])


def test_of_a_storm_the_first_and_the_last_are_kept_for_each_gpu_and_code() -> None:
    storm = [XID.format(gpu, code, at) for at in range(500) for gpu in (1, 2) for code in (31, 13)]
    lines = kept(storm)
    for gpu in (1, 2):
        for code in (31, 13):
            of_one = [line for line in storm if line.startswith(XID.format(gpu, code, 0)[:36])]
            assert [line for line in lines if line in of_one] == of_one[:EACH] + of_one[-EACH:]


@pytest.mark.parametrize(
    ("other", "worst"),
    [
        ("94, pid=7, name=train, Ch 00000008", "94, Contained: FBHUB (0x1). RST: Yes, D-RST: No"),
        ("94, Contained: SM (0x1). RST: No, D-RST: No", "94, Contained: SM (0x1). RST: No, D-RST: Yes"),
        ("145, RLW_SRC_TRACK    Nonfatal XC0 i0 Link 08 (0x4)", "145, RLW_REMAP        Fatal   XC0 i0 Link 09 (0x4)"),
    ],
)
def test_of_a_storm_the_line_that_makes_its_xid_a_fault_is_kept(other: str, worst: str) -> None:
    others = [f"NVRM: Xid (PCI:0000:c5:00): {other}"] * 40
    assert f"NVRM: Xid (PCI:0000:c5:00): {worst}" in kept([*others, f"NVRM: Xid (PCI:0000:c5:00): {worst}", *others])


def test_the_first_line_after_those_left_out_says_how_many_they_are() -> None:
    log = Kept().of((float(at), b"NVRM: Xid (PCI:0000:c5:00): 31, pid=7", UNKNOWN) for at in range(100))
    assert isinstance(log["lines"], list)
    assert [(line[0], line[2]) for line in log["lines"] if len(line) == 3] == [(84.0, 100 - 2 * EACH)]
    assert log["dropped"] == 100 - 2 * EACH


@pytest.mark.parametrize(
    "line",
    [
        "nvidia 0000:{:02x}:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "pcieport 0000:80:01.1: AER: Corrected error received: 0000:{:02x}:00.0",
        "nfs: server 10.99.88.{} not responding, still trying",
        "Lustre: fsx-OST{:04x}-osc-ffff8a01b2c3d400: Connection to fsx-OST{:04x} (at 10.0.0.1@tcp) was lost",
        "efa 0000:4f:00.0 rdmap{}s0: Failed to process command CREATE_QP (opcode 1) comp_status 3 err -22",
        "nvidia-nvswitch3: SXid (PCI:0000:{:02x}:00.0): 28002, Non-fatal, Link 46",
        "NVRM: Xid (PCI:0000:{:02x}:00): 79, GPU has fallen off the bus.",
    ],
)
def test_of_each_device_and_server_lines_are_kept(line: str) -> None:
    lines = kept([line.format(number, number) for _ in range(40) for number in range(1, 41)])
    assert {lines.count(line.format(number, number)) for number in range(1, 41)} == {2 * EACH}


def test_a_log_of_ever_different_lines_hides_no_fault() -> None:
    other = [f"NVRM: {chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676)} is new" for n in range(5000)]
    faults = [XID.format(0x53, 79, 7), "EDAC MC0: 1 UE memory read error", "watchdog: BUG: soft lockup - CPU#3"]
    lines = kept([*other[:2500], *[XID.format(5, 31, n) for n in range(99)], *faults, *other[2500:]])
    assert [line for line in faults if line not in lines] == []


@pytest.mark.long
def test_a_log_of_ever_different_lines_is_bounded() -> None:
    letters = ("".join(chr(97 + (n >> shift) % 16) for shift in (0, 4, 8, 12)) for n in range(20_000))
    log = Kept().of((float(at), f"NVRM: {word} {'x' * 900}".encode(), UNKNOWN) for at, word in enumerate(letters))
    lines = log["lines"]
    assert isinstance(lines, list)
    assert sum(len(line[1]) for line in lines) <= 2 * MAX_TOTAL_CHARACTERS
    assert log["dropped"] == 20_000 - len(lines) > 0


records = st.tuples(st.floats(0, 1e6), st.binary(max_size=60) | st.just(b"NVRM: x"), st.integers(0, 7))


@given(lines=st.lists(records, max_size=80))
def test_any_log_is_kept_in_order_and_counted(lines: list[tuple[float, bytes, int]]) -> None:
    log = Kept().of(lines)
    assert log["read"] == len(lines)
    assert isinstance(log["lines"], list)
    seen = [[at, text.decode("utf-8", "replace")] for at, text, _ in lines]
    positions = iter(seen)
    assert all(line[:2] in positions for line in log["lines"])
