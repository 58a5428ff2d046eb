"""A watched node's kernel log lines are reported at once and once, with the verdict that a check gives them."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.watch.overlay import LOG, NVML
from tests.watch.days import Day

ADAPTERS, DISKS = "network.nic_driver_errors", "storage.disk_errors"
NIC = "mlx5_core 0000:5c:00.0: "
PLUGGED, UNPLUGGED = (f"{NIC}Port module event: module 0, Cable {word}" for word in ("plugged", "unplugged"))


@pytest.fixture(scope="module")
def day() -> Day:
    return Day()


def test_every_form_of_a_line_is_evaluated_while_a_node_is_watched(day: Day) -> None:
    checks = {form.check for form in log_forms().values() if form.check}
    assert checks <= day.watch.evaluator.rules(LOG)


def test_what_changes_with_each_job_and_is_collected_at_visits_alone_is_judged_at_visits_alone(day: Day) -> None:
    assert "host.shm_leftovers" not in day.watch.evaluator.rules(LOG, NVML)
    assert "gpu.no_leftover_processes" in day.watch.evaluator.rules(NVML)


@pytest.mark.parametrize(
    ("lines", "check", "verdict", "device"),
    [
        ([f"{NIC}poll_health:825:(pid 0): Fatal error 1 detected"], ADAPTERS, "fail", "0000:5c:00.0, mlx5 fatal"),
        ([f"{NIC}temp_warn:165:(pid 0): High temperature on sensors"], ADAPTERS, "concern", "0000:5c:00.0, mlx5 hot"),
        (["INFO: task python3:4242 blocked for more than 122 seconds."], "host.lockups", "concern", "hung task"),
        ([PLUGGED, UNPLUGGED], "network.link_flaps", "concern", "0000:5c:00.0, mlx5 cable unplugged"),
        (["nvme nvme1: Removing after probe failure status: -19"], DISKS, "fail", "nvme1, nvme removed"),
        (["md/raid1:md0: Disk failure on nvme3n1, disabling device."], DISKS, "concern", "md0, raid degraded"),
        (["NVRM: GPU3 _kgspIsHeartbeatTimedOut: GSP RM heartbeat timed out"], "gpu.no_xid", "concern", "GPU3, gsp"),
        (["DMAR: [DMA Write] Request device [53:00.0] fault addr 7f3a000"], "host.pcie_aer", "concern", ""),
    ],
)
def test_a_line_is_said_as_soon_as_it_is_logged(
    day: Day, lines: list[str], check: str, verdict: str, device: str
) -> None:
    before = len(day.said)
    for line in lines:
        day.log(line)
    (change,) = day.said[before:]
    assert (change.key.rule, change.verdict.value) == (check, verdict)
    assert change.key.device.startswith(device)


def test_each_device_and_form_is_an_event_of_its_own_and_over_when_a_later_line_says_so(day: Day) -> None:
    lost, back = "nfs: server 10.0.0.{} not responding, still trying", "nfs: server 10.0.0.{} OK"
    before = len(day.said)
    for line in (lost.format(8), lost.format(9), lost.format(8), back.format(8), back.format(9)):
        day.log(line)
    seen = [(change.kind.value, change.key.device) for change in day.said[before:]]
    assert seen == [
        ("opened", "10.0.0.8, nfs silent"),
        ("opened", "10.0.0.9, nfs silent"),
        ("closed", "10.0.0.8, nfs silent"),
        ("closed", "10.0.0.9, nfs silent"),
    ]


def test_different_faults_of_the_kernel_whose_lines_speak_for_themselves_are_each_said(day: Day) -> None:
    first = "BUG: unable to handle page fault for address: ffffa0e7c1c2b000"
    second = "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP NOPTI"
    before = len(day.said)
    for line in (first, second):
        day.log(line)
    opened, worse = day.said[before:]
    assert (opened.kind.value, worse.kind.value) == ("opened", "worse")
    assert "general protection fault" in worse.message


@pytest.mark.long
def test_in_a_log_that_has_lost_its_beginning_a_line_is_said_and_over_as_in_any_other() -> None:
    day = Day()
    day.visit(kernel_log={"truncated": True})
    for word in ("not responding, still trying", "OK"):
        day.log(f"nfs: server 10.0.0.9 {word}")
    assert day.of("storage.file_system_errors") == ["opened", "closed"]
