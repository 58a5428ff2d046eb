"""Parts of outputs as users paste them: a section, the middle of a table, columns, quoted messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, output_of, written

SMART = "SMART/Health Information (NVMe Log 0x02)\nCritical Warning:              {}\nPercentage Used: 1%\n"
PART = """\
{section}| PCIe                      | {result:<46} |
| Warning                   | GPU 0GPU 0's NvLink link 0 is currently down   |
|                           | Run a field diagnostic on the GPU.             |
"""
INTEGRATION = "+-----  Integration  -------+------------------------------------------------+\n"
LOST = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU"
NEURON = 'FATA[0000] Failed to discover neuron devices error="Unable to read device information from the driver."'


def verdict(folder: Path, text: str, check: str) -> Verdict:
    """The worst finding, ignoring missing evidence."""
    result = evaluated(written(folder, part=text) / "part")[check]
    verdicts = {finding.verdict for finding in result.by_verdict or (result,)}
    return next((candidate for candidate in (Verdict.FAIL, Verdict.CONCERN) if candidate in verdicts), result.verdict)


@pytest.mark.parametrize(("warning", "expected"), [("0x04", Verdict.FAIL), ("0x02", Verdict.CONCERN)])
def test_the_section_of_smartctl_alone_is_read(warning: str, expected: Verdict, tmp_path: Path) -> None:
    assert verdict(tmp_path, SMART.format(warning), "storage.disk_errors") is expected


def test_the_section_begins_no_other_output_of_smartctl() -> None:
    whole = "smartctl 7.2 2020-12-30 r5155\n\nSMART overall-health self-assessment test result: PASSED\n\n"
    assert len(output_of(whole + SMART.format("0x00"))["nvme"]["smart"]["logs"]) == 1


@pytest.mark.parametrize("section", [INTEGRATION, ""])
@pytest.mark.parametrize("result", ["Fail - All", "Fail - GPU: 0", "Fail"])
def test_a_part_of_dcgmis_table_is_read(section: str, result: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, PART.format(section=section, result=result), "gpu.dcgm_diag") is Verdict.FAIL


def test_a_part_of_dcgmis_table_that_is_well_proves_nothing(tmp_path: Path) -> None:
    text = PART.format(section=INTEGRATION, result="Pass - All").partition("| Warning")[0]
    assert verdict(tmp_path, text, "gpu.dcgm_diag") is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    "row",
    [
        "mlx5_0   port  1  ==>  ibp26s0        (Down)  # CX-7 1/8 infiniband",
        "mlx5_0 port 1 ==> ibp26s0 (Down)  # CX-7",
        "mlx5_0 port 1 ==> ibp26s0 (Down)",
        "0000:18:00.0  mlx5_0  (MT4129 - x)  CX-7  fw  28.39  port  1  (DOWN  )  ==>  ibp26s0  (Down)",
    ],
)
def test_ibdev2netdev_is_read_in_columns(row: str) -> None:
    values: Any = output_of(f"{row}\n")
    assert [device["name"] for device in values["rdma"]["devices"]] == ["mlx5_0"]
    assert values["interfaces"]["physical"] == [{"name": "ibp26s0"}]


@pytest.mark.parametrize("quoted", ["{}", "`{}`", '"{}"', '**"{}"**', "**{}**", "'{}'", "_{}_"])
def test_a_message_is_read_in_quotes(quoted: str) -> None:
    lost = output_of(f"{quoted.format(LOST)}\n")["nvml"]["gpus"]
    assert [gpu["lost"]["error"] for gpu in lost] == ["GPU_IS_LOST"]
    assert output_of(f"We get this:\n\n{quoted.format(NEURON)}\n")["neuron_ls"]["exit"] == 1


@pytest.mark.any_user
def test_what_a_program_logged_is_no_message_however_it_quotes_it() -> None:
    logged = f'Nov 28 11:22:34 gpu001 alice[7]: **"{LOST}"**\n                    `{LOST}`\n'
    assert "nvml" not in read_text(logged)[0]


REASONS = """\
$ nvidia-smi -q | grep -A{lines} 'Clocks {kind}'
    Clocks {kind} Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : {slowdown}
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : {slowdown}
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
"""


@pytest.mark.parametrize(
    ("slowdown", "lines", "expected"),
    [
        ("Active", 8, Verdict.CONCERN),
        ("Not Active", 8, Verdict.PASS),
        ("Active", 4, Verdict.CONCERN),
        ("Not Active", 7, Verdict.INCOMPLETE),
        ("Not Active", 4, Verdict.INCOMPLETE),
        ("Active", 3, Verdict.INCOMPLETE),
        ("Not Active", 3, Verdict.INCOMPLETE),
    ],
)
@pytest.mark.parametrize("kind", ["Event", "Throttle"])
def test_reasons_of_clocks_are_read_and_prove_nothing_where_they_are_cut(
    slowdown: str, lines: int, expected: Verdict, kind: str, tmp_path: Path
) -> None:
    text = REASONS.format(lines=lines, kind=kind, slowdown=slowdown)
    cut = "".join(text.splitlines(keepends=True)[: lines + 2])
    assert verdict(tmp_path, cut, "gpu.no_throttle") is expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("sw_power_cap",), Verdict.INCOMPLETE),
        (("hw_slowdown",), Verdict.INCOMPLETE),
        (("hw_slowdown", "sync_boost"), Verdict.INCOMPLETE),
        (("hw_slowdown", "sw_thermal_slowdown"), Verdict.INCOMPLETE),
        (("hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost", "sw_thermal_slowdown"), Verdict.INCOMPLETE),
        (("hw_slowdown", "sync_boost", "sw_thermal_slowdown"), Verdict.PASS),
    ],
)
def test_full_clocks_are_proven_only_by_each_reason_that_leads_to_a_verdict(
    columns: tuple[str, ...], expected: Verdict, tmp_path: Path
) -> None:
    named = ", ".join(f"clocks_event_reasons.{column}" for column in columns)
    text = f"index, {named}\n0{', Not Active' * len(columns)}\n"
    assert verdict(tmp_path, text, "gpu.no_throttle") is expected
