"""Drivers' numbers and bits, decoded into words."""

from __future__ import annotations

import re

import pynvml
import pytest

from clusterproof.plugins.catalog import (
    clocks_event_reasons,
    fabric_faults,
    fabric_state,
    fabric_summary,
    recovery_action,
    recovery_action_in_log,
    unknown_clocks_event_reasons,
)
from clusterproof.plugins.catalog.rows import document


@pytest.mark.parametrize(
    ("mask", "words", "verdicts"),
    [
        (0, [], []),
        (0x1 | 0x4, ["idle", "software power cap"], ["none", "none"]),
        (0x20, ["software thermal slowdown"], ["concern"]),
        (
            0x8 | 0x40 | 0x80,
            ["hardware slowdown", "hardware thermal slowdown", "hardware power brake"],
            ["fail", "fail", "fail"],
        ),
        (0x102, ["applications clocks setting", "display clocks setting"], ["none", "none"]),
        (1 << 40, [], []),
    ],
)
def test_clocks_event_reasons_are_read_bit_by_bit(mask: int, words: list[str], verdicts: list[str]) -> None:
    reasons = clocks_event_reasons(mask)
    assert [reason.words for reason in reasons] == words
    assert [reason.verdict for reason in reasons] == verdicts


def test_every_clocks_event_reason_that_nvml_names_is_in_the_catalogue() -> None:
    named = {name: bit for name, bit in vars(pynvml).items() if re.match(r"nvmlClocks(Event|Throttle)Reason", name)}
    assert len(named) > 20
    assert {name: bit for name, bit in named.items() if unknown_clocks_event_reasons(bit)} == {}
    assert unknown_clocks_event_reasons(0x1801) == 0x1800


def test_every_field_of_the_fabric_health_mask_that_nvml_names_is_in_the_catalogue() -> None:
    shifts = {bit for name, bit in vars(pynvml).items() if name.startswith("NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_")}
    assert shifts == {row["shift"] for row in document("fabric.toml")["fabric_health"].values()}


def test_a_fabric_summary_that_is_not_known_is_a_concern() -> None:
    verdicts = [fabric_summary(value).verdict for value in (0, 1, 2, 3, 9)]
    assert verdicts == ["none", "none", "fail", "concern", "concern"]


def test_recovery_actions_have_the_same_meaning_by_number_and_in_the_log() -> None:
    known = [recovery_action(value) for value in range(5)]
    assert [action.words for action in known if action] == [
        "none",
        "GPU reset",
        "node reboot",
        "drain P2P",
        "drain and reset",
    ]
    assert all(recovery_action_in_log(word.upper()) is action for action in known if action for word in action.log)
    assert recovery_action(8) is recovery_action_in_log("Something New") is None


@pytest.mark.parametrize(
    ("mask", "faults"),
    [
        (0, ()),
        (0b01_10_10_10_10, ()),  # every field explicitly fine
        (0b01, ("degraded bandwidth",)),
        (0b01_00, ("route recovery",)),
        (0b01_00_00, ("route unhealthy",)),
        (0b01_00_00_00, ("access timeout recovery",)),
        (0b01_01_0001_10_10_10_10, ()),
        (0b0010_00_00_00_00, ("incorrect configuration: system GUID",)),
        (0b0011 << 8, ("incorrect configuration: chassis serial number",)),
        (0b0100 << 8, ("incorrect configuration: no partition",)),
        (0b0110 << 8, ("incorrect configuration: incompatible GPU firmware",)),
        (0b0111 << 8, ("incorrect configuration: invalid location",)),
        (0b1000 << 8, ("incorrect configuration: invalid GPU state",)),
        (0b1111 << 8, ("incorrect configuration",)),
        (0b10 << 12, ("no partition is assigned",)),
        (0b10 << 14, ("the rack's fabric manager is disconnected",)),
        (
            0b0101_10_01_10_01,
            ("degraded bandwidth", "route unhealthy", "incorrect configuration: too few NVLinks"),
        ),
    ],
)
def test_the_fabric_health_mask_is_read_field_by_field(mask: int, faults: tuple[str, ...]) -> None:
    assert fabric_faults(mask) == faults


def test_a_fabric_state_is_shown_in_words() -> None:
    assert [fabric_state(value) for value in (0, 1, 2, 3, 9)] == [
        "not supported",
        "not started",
        "in progress",
        "completed",
        "unknown (9)",
    ]
