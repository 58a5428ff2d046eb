"""Which kernel log lines still hold: a later line about the same device ends them, and some count only if frequent."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.conditions import conditions
from clusterproof.plugins.evidence.kernel_log.events_host import Logged
from tests.evidence.kernel_log.known_lines import KNOWN_LINES, KnownLine

FORMS = log_forms()
OFTEN = 5
CLEARED = [  # without lines whose device address is unknown
    line for line in KNOWN_LINES if FORMS[line.form].cleared_by and not line.text.startswith("infiniband ")
]
COUNTED = [line for line in KNOWN_LINES if FORMS[line.form].rate and not FORMS[line.form].cleared_by]


def texts_of(*forms: str) -> list[str]:
    return [line.text for line in KNOWN_LINES if line.form in forms]


def held(check: str, *lines: str) -> dict[tuple[str, str], int]:
    """How many lines hold, by form and device."""
    events = kernel_log.parse((float(at), text) for at, text in enumerate(lines))
    standing = conditions(events, check, lambda _, count: count >= OFTEN)
    return {
        (condition.form.name, condition.device): sum(event.lines for event in condition.events)
        for condition in standing
    }


def before(line: KnownLine) -> list[str]:
    """Lines to log about the device before the line counts."""
    return [text for text in texts_of(*FORMS[line.form].after) if line.device in text or line.device.startswith("0000")]


@pytest.mark.parametrize("line", CLEARED, ids=lambda line: line.text[:60])
def test_a_later_line_of_the_same_device_ends_it_and_an_earlier_one_does_not(line: KnownLine) -> None:
    form = FORMS[line.form]
    key = (line.form, line.device)
    assert key in held(form.check, *before(line), line.text)
    ends = texts_of(*form.cleared_by)
    assert key not in held(form.check, *before(line), line.text, *ends, *ends)  # the second load succeeds
    assert key in held(form.check, *before(line), *ends, line.text)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("efa 0000:4f:00.0 rdmap79s0: Admin queue is closed", "efa 0000:50:00.0 efa_1: IB device registered"),
        ("infiniband rdmap79s0: Admin queue is closed", "efa 0000:4f:00.0 efa_0: IB device registered"),
        ("nfs: server 10.0.0.9 not responding, still trying", "nfs: server 10.0.0.10 OK"),
        ("EXT4-fs (nvme1n1p1): Remounting filesystem read-only", "EXT4-fs (nvme2n1p1): mounted filesystem"),
        ("XFS (dm-0): Filesystem has been shut down due to log error", "XFS (dm-7): Mounting V5 Filesystem"),
        (
            "mlx5_core 0000:5c:00.0: poll_health:825:(pid 0): Fatal error 1 detected",
            "mlx5_core 0000:5d:00.0: device recovered",
        ),
        ("ena 0000:00:05.0 ens5: Keep alive watchdog timeout.", "ena 0000:00:06.0 ens6: Device reset completed"),
        ("bond0: (slave ens1f0): link status definitely down", "bond0: (slave ens1f1): link status definitely up"),
        ("Lustre: fsx-OST0001-osc-ffff8a01: Connection to x (at y) was lost", "Lustre: Unmounted other-client"),
        ("nvidia-nvswitch0: Failed to initialize device : -5", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module"),
    ],
)
def test_a_line_of_another_device_ends_nothing(line: str, other: str) -> None:
    (event,) = kernel_log.parse([(1.0, line)])
    assert isinstance(event, Logged)
    check = FORMS[event.form].check
    assert held(check, line, other).keys() == held(check, line).keys() != set()


def test_the_driver_that_was_loaded_ends_what_it_said_of_gpus_unless_a_probe_failed() -> None:
    line = "NVRM: GPU3 kgspHealthCheck_TU102: GSP RM heartbeat timed out"
    failed, loaded = texts_of("probe_failed")[0], texts_of("driver_loaded")[0]
    assert held("gpu.no_xid", line, loaded) == {}
    assert held("gpu.no_xid", line, failed, loaded).keys() == {("gsp_heartbeat", "GPU3"), ("probe_failed", "")}
    assert held("gpu.no_xid", line, failed, loaded, loaded) == {}


DUE, DONE = (
    "NVRM: Xid (PCI:0000:%s:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "NVRM: Xid (PCI:0000:%s:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
)
OF_C5 = "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:c5:00 (printing 1 of every 30).  The GPU likely"
UNNAMED = "NVRM: _kgspLogXid119: ********************************* GSP Timeout **********************************"
NUMBERED = "NVRM: GPU6 nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)"


def test_a_gpu_for_which_no_recovery_action_is_due_any_more_is_well() -> None:
    lines = OF_C5, UNNAMED, NUMBERED
    assert len(held("gpu.no_xid", *lines, DUE % "c5")) == len(lines)
    assert held("gpu.no_xid", *lines, DUE % "c5", DONE % "c5") == {}
    assert len(held("gpu.no_xid", DUE % "c5", DONE % "c5", *lines)) == len(lines)


def test_another_gpu_that_is_well_again_ends_only_what_can_be_about_no_other() -> None:
    lines = OF_C5, UNNAMED, NUMBERED
    assert held("gpu.no_xid", *lines, DUE % "a1", DONE % "a1").keys() == {("gsp_rate_limited", "0000:c5:00.0")}
    assert len(held("gpu.no_xid", *lines, DUE % "a1", DUE % "c5", DONE % "a1")) == len(lines)
    hidden = "xxxx:xx"
    assert len(held("gpu.no_xid", *lines, DUE.replace("0000:%s", hidden), DONE.replace("0000:%s", hidden))) == len(
        lines
    )
    assert held("gpu.no_xid", texts_of("none_initialized")[0], DUE % "a1", DONE % "a1") == {("none_initialized", ""): 1}


@pytest.mark.parametrize("line", COUNTED, ids=lambda line: line.text[:60])
def test_what_a_driver_gets_over_holds_only_when_it_is_often(line: KnownLine) -> None:
    check = FORMS[line.form].check
    assert held(check, *[line.text] * (OFTEN - 1)) == {}
    assert held(check, *[line.text] * OFTEN) == {(line.form, line.device): OFTEN}


UNPLUGGED, PLUGGED = texts_of("mlx5_cable_unplugged")[0], texts_of("mlx5_cable_plugged")[0]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([UNPLUGGED], 0),  # at boot, for a port that nobody uses
        ([UNPLUGGED] * OFTEN, 0),
        ([PLUGGED, UNPLUGGED], 1),
        ([PLUGGED, UNPLUGGED, PLUGGED], 0),
        ([PLUGGED, UNPLUGGED] * OFTEN + [PLUGGED], OFTEN),  # each ended, but there are many
        ([PLUGGED.replace("5c", "5d"), UNPLUGGED], 0),
    ],
)
def test_a_cable_is_unplugged_where_it_was_plugged_before(lines: list[str], count: int) -> None:
    assert sum(held("network.link_flaps", *lines).values()) == count


def test_lines_that_the_probe_left_out_are_counted() -> None:
    text = texts_of("mlx5_refused")[0]
    events = kernel_log.parse([(1.0, text, OFTEN - 1)])
    assert len(conditions(events, FORMS["mlx5_refused"].check, lambda _, count: count >= OFTEN)) == 1
