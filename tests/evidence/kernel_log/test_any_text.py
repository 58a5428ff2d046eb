"""Arbitrary text in a kernel log: nothing raises, noise is no finding, and a genuine line keeps its meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import LONGEST_TEXT, SXidEvent, XidEvent
from tests.evidence.kernel_log.xid_lines import evaluate, evaluate_switches, line_of, parse

TRUE_LINES = [
    line_of(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    line_of(145, "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x4)"),
    line_of(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    "NVRM: GPU at PCI:0000:66:00: GPU-12345678-1234-5678-9abc-def012345678",
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: (PCI ID: 10de:2901) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64",
    "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
    "nvidia-nvswitch3: SXid (PCI:0000:c8:00.0): 20034, Fatal, Link 28",
    "[drm] [nvidia-drm] [GPU ID 0x0000c500] Removing device",
    "[drm] Initialized nvidia-drm 0.0.0 for 0000:c5:00.0 on minor 7",
    "INFO: task nvidia-smi:1234 blocked for more than 120 seconds.",
]  # fmt: skip
PREFIXES = [
    "[   12.5000] ",
    "<4>",
    "kern  :warn  : ",
    "4,1,2000000,-;",
    "Oct 14 14:56:49 gpu001 kernel: ",
    "kernel: ",
]
cuts = st.sampled_from(TRUE_LINES).flatmap(lambda line: st.integers(0, len(line)).map(lambda at: line[:at]))
pieces = (
    st.sampled_from([*TRUE_LINES, *PREFIXES, "NVRM:", "Xid (", "PCI:", "):", "\n", "\x00", " " * 50, "9" * 50]) | cuts
)
mutated = st.lists(pieces | st.text(max_size=6), max_size=8).map("".join)
times = st.none() | st.floats()


@given(st.lists(st.tuples(times, mutated | st.sampled_from(TRUE_LINES)), max_size=20))
def test_nothing_that_a_node_says_raises_or_grows_out_of_bounds(
    lines: list[tuple[float | None, str]],
) -> None:
    events = kernel_log.parse(lines)
    for finding in evaluate(events) + evaluate_switches(events):
        assert 1 <= finding.occurrences <= finding.count
        assert 1 <= finding.code <= 999_999
        assert len(finding.text) <= LONGEST_TEXT
        assert len(finding.process) <= 60
        assert not finding.cleared_by or finding.severity == "none"


@pytest.mark.long
@given(st.lists(mutated.filter(lambda text: "nvrm" not in text.lower() and "nvswitch" not in text.lower())))
def test_noise_without_the_drivers_name_is_never_a_finding(lines: list[str]) -> None:
    events = parse(*lines)
    assert evaluate(events) == evaluate_switches(events) == ()


@given(
    st.sampled_from([name for name in TRUE_LINES if "Xid" in name]),
    st.lists(st.sampled_from(PREFIXES[:3]), max_size=3).map("".join),
    st.sampled_from([str.upper, str.lower, str.title, str]),
    st.sampled_from(["", " ", "  ", "\t"]),
)
def test_a_true_line_stays_true_in_any_case_blanks_and_wrapping(
    line: str, prefix: str, cased: type[str], blanks: str
) -> None:
    (true,) = parse(line)
    (event,) = parse(prefix + cased(line).replace("(", f"({blanks}", 1).replace("):", f"{blanks}):{blanks}", 1))
    assert isinstance(event, XidEvent | SXidEvent)
    assert isinstance(true, XidEvent | SXidEvent)
    assert (type(event), event.code, event.pci, event.severity) == (
        type(true),
        true.code,
        true.pci,
        true.severity,
    )


@given(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,15}(\[[0-9]{1,6}\])?: ?", fullmatch=True),
    st.sampled_from(PREFIXES[:2]),
)
def test_an_xid_that_another_program_quotes_is_no_event(program: str, prefix: str) -> None:
    quoted = f"{prefix}{program}{TRUE_LINES[0]}"
    assert (parse(quoted) == ()) == (not program.lower().startswith("kernel:"))
