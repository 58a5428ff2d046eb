"""The table of kernel log lines: each form is parsed, kept by the probe, and cannot be written by a user."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusterproof.plugins.catalog import threshold_row
from clusterproof.plugins.catalog.log_forms import log_forms, patterns, referenced_forms
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log import parse as capture
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN, Kept, topic_of
from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError, Logged
from clusterproof.plugins.evidence.kernel_log.line import IGNORING_CASE, OF_PROCESS, begins_with_a_name, form_of
from tests.evidence.kernel_log.known_lines import EVERY_TEXT, KNOWN_LINES, KnownLine
from tests.evidence.kernel_log.user_text import ANY_LENGTH, COMM_CHARACTERS, OF_A_PROCESS

FORMS = log_forms()
OF_JOURNALCTL = "rebooted"  # journalctl prints it between two boots; it is not in the kernel log
OF_PROCESSES = {name for name, text in patterns().items() if text.startswith(OF_PROCESS)}
lines = pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: line.text[:60])


def names_of(text: str) -> str:
    """The form that a line matches; empty if there is none."""
    fitted = form_of(text)
    return fitted[0].name if fitted else ""


def test_the_table_knows_the_faults_of_a_cluster_and_each_form_has_a_line() -> None:
    assert len(FORMS) >= 250
    assert {line.form for line in KNOWN_LINES} == set(FORMS)


def test_what_says_a_form_is_a_check_of_nodes_and_what_counts_it_is_a_threshold() -> None:
    checks = {form.check for form in FORMS.values() if form.check}
    assert checks <= set(node_checks())
    assert all(threshold_row(form.rate) for form in FORMS.values() if form.rate)
    assert [name for name, form in FORMS.items() if (form.verdict == "none") != (not form.check)] == []


@lines
def test_a_line_is_of_its_form_with_its_verdict_and_device(line: KnownLine) -> None:
    assert names_of(line.text) == line.form
    assert FORMS[line.form].verdict == line.verdict
    for event in kernel_log.parse([(1.0, line.text)]):
        if isinstance(event, Logged):
            assert (event.form, event.device) == (line.form, line.device)
            assert "?" not in event.words
        elif not isinstance(event, HardwareError):
            assert getattr(event, "device", getattr(event, "pci", "")) == line.device


@lines
def test_the_form_of_a_line_does_not_depend_on_its_wrapping_or_its_letters(line: KnownLine) -> None:
    wrapped = kernel_log.parse([(1.0, f"[ 4242.000001] gpu001.example.org kernel: {line.text}")])
    assert wrapped == kernel_log.parse([(1.0, line.text)])


@lines
def test_a_line_of_a_captured_log_is_the_same_as_one_that_is_read_live(line: KnownLine) -> None:
    captured: Any = capture.read(f"[    0.000000] Linux version 6.8.0\n[   12.500000] {line.text}\n")
    live = Kept().of([(12.5, line.text.encode(), UNKNOWN)])["lines"]
    assert captured["kernel_log"]["lines"][1:] == live or line.form in ("booted", OF_JOURNALCTL)


@lines
def test_a_line_that_means_something_is_kept_by_the_probe(line: KnownLine) -> None:
    form = FORMS[line.form]
    if form.name != OF_JOURNALCTL and (form.check or form.event or form.name in referenced_forms()):
        assert Kept().of([(0.5, line.text.encode(), UNKNOWN)])["lines"] == [[0.5, line.text]]


@pytest.mark.parametrize("before", ["x ", "audit: type=1400 comm=", "python3[77]: ", "overlayfs: "])
def test_a_form_begins_where_the_kernels_words_do(before: str) -> None:
    names = {line.text: names_of(before + line.text) for line in KNOWN_LINES if line.form not in OF_PROCESSES}
    assert {text: name for text, name in names.items() if name and not FORMS[name].is_of_user} == {}


@pytest.mark.parametrize("deed", [*ANY_LENGTH, *OF_A_PROCESS])
def test_whatever_a_user_writes_fails_no_node(deed: str) -> None:
    record = (ANY_LENGTH | OF_A_PROCESS)[deed]
    length = None if deed in ANY_LENGTH else COMM_CHARACTERS
    own = names_of(record.format("x"))
    names = {names_of(record.format(text[:length])) for text in EVERY_TEXT} - {own, ""}
    assert {name for name in names if not FORMS[name].is_of_user} == set()


def test_a_form_that_any_user_can_have_written_never_fails_a_node() -> None:
    assert [form.name for form in FORMS.values() if form.is_of_user and form.verdict == "fail"] == []


def test_only_records_that_begin_with_a_process_name_fit_the_forms_of_these() -> None:
    begin_so = {line.form for line in KNOWN_LINES if begins_with_a_name(line.text)}
    assert begin_so == OF_PROCESSES


@pytest.mark.parametrize("text", EVERY_TEXT, ids=lambda text: text[:60])
def test_the_quick_words_of_a_form_pass_over_no_line_that_fits_it(text: str) -> None:
    slow = [name for name, pattern in patterns().items() if re.compile(pattern, IGNORING_CASE).match(text)]
    assert names_of(text) == slow[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nvme nvme0: I/O 978 QID 3 timeout, aborting", "nvme nvme1: I/O 978 QID 3 timeout, aborting"),
        ("XFS (dm-0): Filesystem has been shut down", "XFS (dm-7): Filesystem has been shut down"),
        (
            "NVRM: GPU0 kgspHealthCheck_TU102: GSP RM heartbeat timed out",
            "NVRM: GPU6 kgspHealthCheck_TU102: GSP RM heartbeat timed out",
        ),
        ("EDAC MC0: 1 UE memory read error on DIMM#0", "EDAC MC3: 1 UE memory read error on DIMM#0"),
        ("nvidia-nvswitch0: Failed to initialize device : -5", "nvidia-nvswitch3: Failed to initialize device : -5"),
        ("neuron:f: nd3: reset request 12 failed", "neuron:f: nd12: reset request 12 failed"),
        ("infiniband mlx5_0: dump_cqe:277", "infiniband mlx5_7: dump_cqe:277"),
        (
            "NETDEV WATCHDOG: ens1f0 (x): transmit queue 3 timed out",
            "NETDEV WATCHDOG: ens1f1 (x): transmit queue 3 timed out",
        ),
        ("nfs: server fs-0123 not responding", "nfs: server fs-0999 not responding"),
        ("md/raid1:md0: Disk failure on nvme3n1", "md/raid1:md1: Disk failure on nvme3n1"),
        ("EXT4-fs error (device sda1): x", "EXT4-fs error (device sdb1): x"),
        ("device-mapper: thin: 253:2: switching pool to fail", "device-mapper: thin: 253:3: switching pool to fail"),
    ],
)
def test_of_many_lines_alike_none_is_hidden_that_is_about_another_device(one: str, other: str) -> None:
    storm = [*([one] * 40), other, *([one] * 40)]
    kept_lines = Kept().of((float(at), text.encode(), UNKNOWN) for at, text in enumerate(storm))["lines"]
    assert isinstance(kept_lines, list)
    assert [line[1] for line in kept_lines].count(other) == 1


def test_lines_of_other_things_are_no_topic() -> None:
    assert topic_of(b"usb 1-1: New USB device found, idVendor=1d6b", UNKNOWN) is None
