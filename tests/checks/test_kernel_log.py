"""The kernel log checks on events that no fault in a whole node produces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log.wording import when
from clusterproof.plugins.evidence.node import Node
from tests.evidence.kernel_log.logged import NOW, UPTIME_S, node, result, verdict

OVER_THE_LOG = (
    "gpu.no_xid",
    "gpu.no_sxid",
    "host.lockups",
    "host.mce_edac",
    "host.no_oom_kill",
    "host.pcie_aer",
    "host.segfaults",
    "host.unknown_errors",
    "network.efa_driver_errors",
    "network.ena_driver_errors",
    "network.kernel_tables",
    "network.link_flaps",
    "network.nic_driver_errors",
    "storage.disk_errors",
    "storage.file_system_errors",
)
DEAD_EFA = "efa 0000:4f:00.0 rdmap79s0: Admin queue is closed"
STARTED_EFA = "efa 0000:4f:00.0 efa_0: IB device registered"
LOST = "Lustre: fsx-OST0001-osc-ffff8a01b2c3d400: Connection to fsx-OST0001 (at 10.0.0.1@tcp) was lost; in progress"
EVICTED = "LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress"
RESTORED = "Lustre: fsx-OST0001-osc-ffff8a01b2c3d400: Connection restored to fsx-OST0001 (at 10.0.0.1@tcp)"
REPLACED = "Lustre: Evicted from {} (at 10.0.0.1@tcp) after server handle changed from 0x7f3a to 0x7f3b"
RESTORED_MGS = "Lustre: MGC10.0.0.1@tcp: Connection restored to 10.0.0.1@tcp (at 10.0.0.1@tcp)"
NOT_MOUNTED = "beegfs: mount(1234): Configuration error: Initialization of config failed"
SILENT, ANSWERS = "nfs: server 10.0.0.9 not responding, still trying", "nfs: server 10.0.0.9 OK"
UNCORRECTED = "EDAC MC0: 1 UE memory read error on DIMM#0"
CORRECTED = "EDAC MC0: 1 CE memory read error on DIMM#0"


def logging(*lines: str) -> Node:
    return node(*((float(at), line) for at, line in enumerate(lines)))


def without(of: Node, collector: str, status: Status = Status.DENIED) -> Node:
    collectors = {**of.evidence.collectors, collector: Collected(status)}
    return replace(of, evidence=replace(of.evidence, collectors=collectors))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.READ])
@pytest.mark.parametrize("check", OVER_THE_LOG)
def test_without_the_kernel_log_no_check_over_it_passes(check: str, status: Status) -> None:
    assert verdict(check, without(logging(), "kernel_log", status)) is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((LOST,), Verdict.CONCERN),
        ((LOST, RESTORED), Verdict.PASS),
        ((RESTORED, LOST), Verdict.CONCERN),
        ((LOST, RESTORED.replace("OST0001", "OST0002")), Verdict.CONCERN),
        ((LOST, RESTORED.replace("ffff8a01b2c3d400", "ffff000000000000")), Verdict.PASS),  # mounted again
        ((LOST, "Lustre: Unmounted fsx-client"), Verdict.PASS),
        ((LOST, "Lustre: Unmounted other-client"), Verdict.CONCERN),
        ((REPLACED.format("fsx-OST0001_UUID"), RESTORED), Verdict.PASS),
        ((REPLACED.format("fsx-OST0002_UUID"), RESTORED), Verdict.CONCERN),
        ((REPLACED.format("MGS"), RESTORED_MGS), Verdict.PASS),
        ((REPLACED.format("MGS"), RESTORED), Verdict.CONCERN),
        ((REPLACED.format("MGS"), RESTORED_MGS.replace("0.1@", "0.2@")), Verdict.CONCERN),
        ((EVICTED, RESTORED), Verdict.PASS),
        ((SILENT,), Verdict.CONCERN),
        ((SILENT, ANSWERS), Verdict.PASS),
        ((SILENT, ANSWERS.replace("0.9", "0.10")), Verdict.CONCERN),
        ((NOT_MOUNTED, "beegfs: mount(1240): BeeGFS mount ready."), Verdict.CONCERN),  # no line says which one it is
    ],
)
def test_a_file_server_that_is_back_is_passed_over(lines: tuple[str, ...], expected: Verdict) -> None:
    assert verdict("storage.file_system_errors", logging(*lines)) is expected


@pytest.mark.parametrize(
    ("lines", "cut", "expected"),
    [
        ([(60.0, LOST)], {}, "is lost (at 2025-11-16 16:21:00 UTC); expected every file server to be back"),
        ([(None, LOST)], {}, "fsx-OST0001: is lost (once); expected every file server to be back"),
        ([(60.0, LOST)], {"file_servers": [7, 60.0]}, "expected every file server to be back"),
        ([(60.0, LOST), (61.0, RESTORED)], {"file_servers": [7, 60.0]}, "7 lines of the kernel log were cut"),
    ],
)
def test_a_file_server_that_is_lost_is_named_although_lines_were_cut(lines: Any, cut: Any, expected: str) -> None:
    assert expected in result("storage.file_system_errors", node(*lines, cut=cut)).message


@pytest.mark.parametrize(
    ("check", "line", "message"),
    [
        ("host.lockups", "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [x:7]", "soft lockup"),
        ("storage.disk_errors", "nvme nvme0: I/O 978 QID 3 timeout, aborting", "nvme0: a command timed out"),
        ("storage.file_system_errors", EVICTED, "fsx-OST0001: evicted this client"),
        ("gpu.no_xid", "NVRM: Xid (PCI:0000:53:00): 63, Row Remapper: New row marked", "Xid 63"),
        ("host.pcie_aer", "nvidia 0000:53:00.0: AER: can't recover (no error_detected callback)", "cannot recover it"),
        ("host.no_oom_kill", "cgroup: fork rejected by pids controller in /x", "fork rejected"),
        ("host.segfaults", "python3[7]: segfault at 0 ip 0 sp 0 error 4", "python3"),
        ("host.mce_edac", "BERT: Error records from previous boot:\n[Hardware Error]: event severity: fatal", ""),
        (
            "host.cpu_throttled",
            "CPU3: Package temperature above threshold, cpu clock throttled (total events = 5)",
            "package",
        ),
        (
            "network.ena_driver_errors",
            "ena 0000:00:05.0 ens5: Keep alive watchdog timeout.",
            "ens5: the device sent no keep-alive",
        ),
        ("network.kernel_tables", "neighbour: arp_cache: neighbor table overflow!", "no room in arp_cache"),
        ("network.link_flaps", "bond0: (slave ens1f0): link status definitely down, disabling slave", "ens1f0: a leg"),
        (
            "network.efa_driver_errors",
            "efa 0000:4f:00.0 rdmap79s0: Unknown event type received 7",
            "rdmap79s0: an event",
        ),
    ],
)
def test_what_is_in_a_log_that_has_lost_its_beginning_is_said_with_that(check: str, line: str, message: str) -> None:
    outcome = result(check, node((90.0, line), truncated=True, whole_from=80.0))
    assert outcome.verdict is Verdict.INCOMPLETE
    assert message in outcome.message
    assert "part of the kernel log was overwritten" in outcome.message


STOPPED = "EXT4-fs (nvme1n1p1): Remounting filesystem read-only"
EXT4_ERROR = "EXT4-fs error (device nvme1n1p1): ext4_lookup:1815: inode #2: comm x: deleted inode referenced: 12"
FRESH = "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((STOPPED,), Verdict.CONCERN),  # it may not be mounted
        ((STOPPED, FRESH), Verdict.PASS),
        ((FRESH, STOPPED), Verdict.CONCERN),
        ((STOPPED, FRESH.replace("nvme1n1p1", "nvme2n1p1")), Verdict.CONCERN),
        ((EXT4_ERROR,), Verdict.CONCERN),
        ((EXT4_ERROR, FRESH), Verdict.CONCERN),  # what was read was wrong nevertheless
        ((FRESH,), Verdict.PASS),
    ],
)
def test_a_file_system_that_was_mounted_anew_has_not_stopped(lines: tuple[str, ...], expected: Verdict) -> None:
    assert verdict("storage.disk_errors", logging(*lines)) is expected


@pytest.mark.parametrize(
    ("source", "used_by", "device", "expected"),
    [
        ("/dev/nvme0n1p1", ["nvme0n1p1"], "nvme0n1p1", Verdict.FAIL),
        ("/dev/root", ["nvme0n1p1", "nvme0n1p15"], "nvme0n1p1", Verdict.FAIL),  # as Linux calls it without an initrd
        ("/dev/mapper/rocky-root", ["nvme0n1p2", "dm-0"], "dm-0", Verdict.FAIL),
        ("/dev/mapper/rocky-root", ["nvme0n1p2", "dm-0"], "dm-1", Verdict.CONCERN),
        ("/dev/nvme0n1p1", ["nvme0n1p1", "nvme0n1p2"], "nvme0n1p2", Verdict.CONCERN),
    ],
)
def test_a_file_system_that_stopped_is_mounted_also_where_its_device_has_another_name(
    source: str, used_by: list[str], device: str, expected: Verdict
) -> None:
    disk = {"name": "nvme0n1", "kib": 1, "used_by": used_by, "mounted": ["/"]}
    of_disk = {"mounts": {"mounts": [{"path": "/", "source": source}]}, "nvme": {"controllers": [{"disks": [disk]}]}}
    of = logging(f"XFS ({device}): Filesystem has been shut down due to log error (0x2).")
    collectors = {**of.evidence.collectors, **{name: Collected(Status.READ, value) for name, value in of_disk.items()}}
    assert verdict("storage.disk_errors", replace(of, evidence=replace(of.evidence, collectors=collectors))) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python3[7]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[7f+1]", Verdict.CONCERN),
        ("ray::Worker[7]: segfault at 0 ip 0 sp 0 error 4", Verdict.CONCERN),
        ("worker[7]: segfault at 0 ip 0 sp 0 error 4 in libnccl.so.2[7f+1]", Verdict.CONCERN),
        ("sshd[7]: segfault at 0 ip 0 sp 0 error 4 in libcrypto.so.3[7f+1]", Verdict.PASS),
    ],
)
def test_only_crashes_of_training_are_a_concern(line: str, expected: Verdict) -> None:
    assert verdict("host.segfaults", logging(line)) is expected


def test_a_few_corrected_pcie_errors_and_what_is_reported_twice_are_no_more_than_they_are() -> None:
    line = "nvidia 0000:53:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
    announced = "pcieport 0000:50:01.0: AER: Corrected error received: 0000:53:00.0"
    assert verdict("host.pcie_aer", logging(*[announced, line] * 300)) is Verdict.PASS
    assert verdict("host.pcie_aer", logging(*[announced, line] * 481)) is Verdict.CONCERN
    of_few_details = result("host.pcie_aer", logging(*[announced] * 481, line))  # the device has cleared its status
    assert of_few_details.verdict is Verdict.CONCERN
    assert "corrected error of 0000:53:00.0 (481 times" in of_few_details.message


@pytest.mark.parametrize(("lines", "expected"), [(9, Verdict.PASS), (37, Verdict.PASS), (38, Verdict.CONCERN)])
def test_corrected_memory_errors_are_counted_by_the_day(lines: int, expected: Verdict) -> None:
    assert verdict("host.mce_edac", logging(*[CORRECTED] * lines)) is expected  # in 100 hours


def test_corrected_errors_of_the_boot_before_are_not_counted() -> None:
    earlier = "[Hardware Error]: event severity: corrected"
    assert verdict("host.mce_edac", logging(*[earlier] * 38)) is Verdict.PASS
    assert verdict("host.mce_edac", logging(*[f"{{1}}{earlier}"] * 38)) is Verdict.CONCERN


def test_one_corrected_error_that_three_sources_report_is_one() -> None:
    three = (
        CORRECTED,
        "mce: [Hardware Error]: Machine check events logged",
        "{1}[Hardware Error]: event severity: corrected",
    )
    assert verdict("host.mce_edac", logging(*three * 20)) is Verdict.PASS


@pytest.mark.parametrize("collector", ["edac", "boot"])
def test_an_uncorrected_error_outranks_that_something_else_is_not_known(collector: str) -> None:
    assert verdict("host.mce_edac", without(logging(UNCORRECTED), collector)) is Verdict.FAIL
    assert verdict("host.mce_edac", without(logging(CORRECTED), collector)) is Verdict.INCOMPLETE


def test_a_counted_error_outranks_a_log_that_may_not_be_read() -> None:
    counted = {"name": "mc0", "corrected": 0, "uncorrected": 2, "counted_s": 9, "modules": []}
    of = without(logging(), "kernel_log")
    collectors = {**of.evidence.collectors, "edac": Collected(Status.READ, {"controllers": [counted]})}
    assert verdict("host.mce_edac", replace(of, evidence=replace(of.evidence, collectors=collectors))) is Verdict.FAIL


def test_kills_are_reported_by_process_with_how_often_and_when() -> None:
    kill = "Memory cgroup out of memory: Killed process 39 (python3) total-vm:1kB"
    message = result("host.no_oom_kill", node((60.0, kill), (120.0, kill))).message
    assert "at the limit of its control group: python3 (pid 39) (2 times, last at 2025-11-16 16:22:00 UTC)" in message


def test_a_message_of_many_things_is_short() -> None:
    lines = [f"Out of memory: Killed process {number} (python3) total-vm:1kB" for number in range(100)]
    message = result("host.no_oom_kill", logging(*lines)).message
    assert "; and 94 more; expected" in message


@pytest.mark.parametrize("at_s", [60.0, NOW - UPTIME_S + 60])
def test_a_moment_is_given_by_the_nodes_clock_whatever_the_logs_own(at_s: float) -> None:
    lockup = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s!"
    assert "2025-11-16 16:21:00" in result("host.lockups", node((at_s, lockup))).message


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((DEAD_EFA,), Verdict.FAIL),
        ((DEAD_EFA, STARTED_EFA), Verdict.PASS),
        ((STARTED_EFA, DEAD_EFA), Verdict.FAIL),
        ((DEAD_EFA, STARTED_EFA.replace("4f", "50")), Verdict.FAIL),
        ((DEAD_EFA, STARTED_EFA.replace(" efa_0", "")), Verdict.PASS),
        (("infiniband rdmap79s0: Admin queue is closed", STARTED_EFA), Verdict.FAIL),  # no line says which one it is
    ],
)
def test_what_efas_driver_said_of_a_device_is_over_when_it_has_started_it_again(
    lines: tuple[str, ...], expected: Verdict
) -> None:
    assert verdict("network.efa_driver_errors", logging(*lines)) is expected


def test_a_node_without_efa_has_no_efa_errors() -> None:
    of = without(logging(), "kernel_log")
    collectors = {
        **of.evidence.collectors,
        "rdma": Collected(Status.READ, {"devices": []}),
        "platform": Collected(Status.READ, {"vendor": "Supermicro", "product": "X"}),
    }
    alone = replace(of, evidence=replace(of.evidence, collectors=collectors))
    assert verdict("network.efa_driver_errors", alone) is Verdict.NOT_APPLICABLE


STAMP_S = 1731672123.0  # of a log with dates, as `dmesg --time-format iso` writes them
XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=1, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize("boot", [Status.READ, Status.UNCOLLECTED])
def test_a_dated_line_is_reported_with_its_date_whether_or_not_the_boot_is_known(boot: Status) -> None:
    evidence = node((STAMP_S, XID))
    message = result("gpu.no_xid", evidence if boot is Status.READ else without(evidence, "boot", boot)).message
    assert "at 2024-11-15 12:02:03 UTC" in message
    assert "after boot" not in message


@pytest.mark.parametrize(
    ("seconds", "message"), [(120.0, "120 s after boot"), (1e18, "at an invalid time"), (STAMP_S, "at 2024-11-15")]
)
def test_a_moment_is_given_by_the_clock_that_is_known(seconds: float, message: str) -> None:
    assert when(seconds, without(logging(), "boot")).startswith(message)
