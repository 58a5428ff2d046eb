"""Captured kernel logs, read into events."""

from __future__ import annotations

from collections import Counter

import pytest

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.evidence.kernel_log.facts import Cleared, FallenOffBus, Logged, SXidEvent, XidEvent
from tests.builders.samples import Sample, of_topic, sample
from tests.evidence.kernel_log.xid_lines import evaluate, evaluate_switches, parse

# Xids by code in every capture that has any.
CAPTURED = {
    "datadog-xid-formats.txt": {
        31: 3, 43: 2, 48: 1, 63: 2, 64: 3, 79: 1, 92: 2, 94: 1, 95: 1, 120: 1, 140: 2, 145: 2, 146: 1, 147: 1,
        148: 1, 149: 2, 154: 1, 156: 2, 157: 2, 160: 3, 161: 2, 171: 1, 172: 1, 177: 1, 999: 1,
    },
    "dcgm-kmsg-tests.txt": {43: 1, 79: 1, 119: 2},
    "gcm-dmesg-T.txt": {31: 2, 48: 1},
    "gpud-dmesg-decode-iso-0.txt": {13: 629, 43: 7},
    "gpud-dmesg-tail-0.txt": {48: 1, 63: 1, 94: 9},
    "gpud-xid-component.txt": {31: 5, 63: 4, 64: 3, 79: 2, 94: 1, 102: 1},
    "gpud-xid-health.txt": {144: 2, 145: 9, 149: 5, 150: 1},
    "gpud-xid-misc.txt": {14: 2, 79: 4, 149: 5, 154: 4, 99999: 1},
    "gpud-xid-nvlink5-145-149-real.txt": {144: 2, 145: 9, 149: 8},
    "nvidia-driver-source-xid-forms.txt": {94: 2, 95: 1},
    "nvsentinel-020-nvsentinel-gpu-reset.txt": {48: 1},
    "nvsentinel-024-workflow-nvlink-err.txt": {74: 1},
    "nvsentinel-xid-csv.txt": {8: 1, 13: 2, 32: 1, 46: 1, 69: 1, 74: 1, 145: 1, 149: 1, 154: 1, 999: 1},
    "nvsentinel-xid-handler.txt": {79: 1, 145: 2},
}  # fmt: skip


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_every_xid_of_a_capture_is_read_and_nothing_else(sample: Sample) -> None:
    events = parse(*sample.lines)
    data = Counter(event.code for event in events if isinstance(event, XidEvent))
    assert data == CAPTURED.get(sample.name, {})
    assert not [event for event in events if isinstance(event, SXidEvent)]


@pytest.mark.parametrize("sample", of_topic("kernel-log", lambda one: one.name not in CAPTURED))
def test_a_capture_without_an_xid_gives_no_finding(sample: Sample) -> None:
    events = parse(*sample.lines)
    assert evaluate(events) == evaluate_switches(events) == ()


@pytest.mark.parametrize("sample", of_topic("kernel-log", lambda one: one.is_healthy))
def test_a_healthy_capture_has_no_event_but_its_boot(sample: Sample) -> None:
    events = parse(*sample.lines)
    assert {type(event) for event in events} <= {Cleared, Logged}
    assert not [event for event in events if isinstance(event, Logged) and log_forms()[event.form].check]


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_a_capture_gives_the_same_in_every_wrapping(sample: Sample) -> None:
    codes = [event.code for event in parse(*sample.lines) if isinstance(event, XidEvent)]
    wrapped = parse(*(f"[ 4242.000001] gpu001 kernel: {line}" for line in sample.lines))
    assert [event.code for event in wrapped if isinstance(event, XidEvent)] == codes


def test_gpus_that_fell_off_the_bus_without_an_xid_are_in_the_captures() -> None:
    events = parse(*sample("kernel-log/gpud-xid-misc.txt").lines)
    lost = [event.pci for event in events if isinstance(event, FallenOffBus)]
    assert lost == ["0000:18:00.0", "0000:29:00.0", "0000:18:00.0", ""]
