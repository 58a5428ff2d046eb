"""The rules that make an Xid nothing, a concern or a fault."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import PACKAGED, xids
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.xid_rules import occurrences
from tests.evidence.kernel_log.xid_lines import GPU, OTHER_GPU, evaluate, line_of, log, only, parse

HOUR = 3600.0


@pytest.mark.parametrize("code", sorted(code for code, row in xids().items() if row.verdict == "fail"))
def test_a_hardware_code_fails_on_its_first_occurrence(code: int) -> None:
    assert only(log((10.0, line_of(code)))).severity == "fail"


@pytest.mark.parametrize("code", sorted(c for c, row in xids().items() if row.kind in ("application", "engine")))
def test_an_application_or_engine_code_means_nothing_once_but_73_on_which_hyperpod_reboots(code: int) -> None:
    is_of_older_table = xids()[code].source == "nvidia-555"  # nobody says what these do
    expected = "concern" if code == 73 or is_of_older_table else "none"
    assert only(log((10.0, line_of(code)))).severity == expected


@pytest.mark.parametrize(
    ("code", "once", "twice"),
    [(13, "none", "concern"), (31, "none", "concern"), (43, "none", "none"), (45, "none", "none"),
     (94, "none", "none"), (92, "concern", "fail"), (109, "concern", "fail"), (121, "concern", "fail"),
     (63, "concern", "concern"), (999, "concern", "concern")],
)  # fmt: skip
def test_repetition_counts_for_some_codes(code: int, once: str, twice: str) -> None:
    assert only(log((10.0, line_of(code)))).severity == once
    repeated = only(log((10.0, line_of(code)), (10.0 + 5 * HOUR, line_of(code))))
    assert (repeated.severity, repeated.count, repeated.occurrences) == (twice, 2, 2)
    assert (repeated.first, repeated.last) == (10.0, 10.0 + 5 * HOUR)


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ([(0.0, GPU), (25 * HOUR, GPU)], "none"),  # more than 24 hours apart
        ([(0.0, GPU), (HOUR, OTHER_GPU)], "none"),  # one each on two GPUs
        ([(0.0, GPU), (179.0, GPU)], "none"),  # one burst
        ([(0.0, GPU), (181.0, GPU)], "concern"),
        ([(0.0, GPU), (25 * HOUR, GPU), (26 * HOUR, GPU)], "concern"),
        ([(None, GPU), (None, GPU)], "none"),  # nothing proves that these are two
        ([(60.0 * minute, GPU) for minute in range(30)], "none"),  # one burst of half an hour
        ([(60.0 * minute, GPU) for minute in range(90)], "concern"),  # it never pauses
    ],
)
def test_repeated_is_twice_on_one_gpu_within_24_hours(lines: list[tuple[float | None, str]], severity: str) -> None:
    findings = log(*((time, line_of(13, gpu=gpu)) for time, gpu in lines))
    assert {finding.severity for finding in findings} == {severity}


def test_lines_of_one_burst_are_one_occurrence_that_began_with_the_first() -> None:
    assert occurrences([5.0, 6.0, None, 100.0, 500.0, None], PACKAGED) == (5.0, 500.0)
    assert occurrences([None, None], PACKAGED) == (None,)
    assert occurrences([None, 5.0], PACKAGED) == (5.0,)
    assert occurrences([], PACKAGED) == ()


@pytest.mark.parametrize("due", [GPU, "00000000:C5:00.0"])
def test_a_row_remapping_fails_while_it_is_pending_or_has_failed(due: str) -> None:
    events = parse(line_of(63), line_of(63, gpu=OTHER_GPU))
    assert {finding.pci: finding.severity for finding in evaluate(events, remap_due=[due])} == {
        "0000:c5:00.0": "fail",
        "0000:0b:00.0": "concern",
    }


@pytest.mark.parametrize("code", range(144, 151))
@pytest.mark.parametrize(
    ("word", "severity"),
    [("Fatal ", "fail"), ("Nonfatal ", "none"), ("Non-fatal ", "none"), ("", "concern")],
)
def test_nvlink_codes_are_evaluated_by_the_lines_own_word(code: int, word: str, severity: str) -> None:
    assert only(log((1.0, line_of(code, f"RLW_REMAP {word}XC1 i0 Link 10 (0x4)")))).severity == severity


@pytest.mark.parametrize(("left_out", "severity"), [(0, "concern"), (100, "none")])
def test_a_storm_of_which_the_middle_is_left_out_is_one_burst(left_out: int, severity: str) -> None:
    lines: list[kernel_log.Line] = [(1.0, line_of(13)), (2.0, line_of(13)), (602.0, line_of(13), left_out)]
    assert only(evaluate(kernel_log.parse(lines))).severity == severity


def test_one_fatal_line_among_nonfatal_ones_fails() -> None:
    lines = [line_of(145, f"RLW_REMAP {word} XC1 i0 Link 10") for word in ("Nonfatal", "Fatal", "Nonfatal")]
    assert only(evaluate(parse(*lines))).severity == "fail"


@pytest.mark.parametrize(
    ("now", "severity", "action"),
    [
        ("0x0 (None)", "none", "nothing to do"),
        ("0x1 (GPU Reset Required)", "fail", "reset the GPU"),
        ("0x1 (PF FLR)", "fail", "reset the GPU"),
        ("0x2 (Node Reboot Required)", "fail", "reboot the node"),
        ("0x2 (OS Reboot)", "fail", "reboot the node"),
        ("0x3 (Drain P2P)", "fail", "end the jobs that use peer-to-peer, then reset the GPU"),
        ("0x1 (Drain and Reset)", "fail", "drain the node, then reset the GPU"),
        ("0x5 (Recover IMEX Domain)", "fail", "restart the IMEX service on every node of the domain"),
        ("0x9 (Something New)", "concern", "do what its text says"),
        ("", "concern", "do what its text says"),
    ],
)
def test_xid_154_is_evaluated_by_its_text(now: str, severity: str, action: str) -> None:
    finding = only(evaluate(parse(line_of(154, f"GPU recovery action changed from 0x4 (Drain and Reset) to {now}"))))
    assert (finding.severity, finding.action) == (severity, action)


def test_the_last_recovery_action_is_the_one_that_is_due() -> None:
    lines = [
        line_of(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"),
        line_of(154, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)"),
    ]
    assert only(evaluate(parse(*lines))).action == "reset the GPU"


@pytest.mark.parametrize(
    ("text", "severity", "action"),
    [
        ("pid=7062, Contained: CE User Channel (0x9). RST: No, D-RST: No", "none", "restart the application"),
        ("Contained ECC error", "none", "restart the application"),
        ("Contained: GSP Poison. RST: Yes, D-RST: No", "fail", "reset the GPU"),
        (
            "Contained: FB DED (0x0, 0x1). physAddr: 0x1f RST: No, D-RST: Yes",
            "fail",
            "drain the node, then reset the GPU",
        ),
        ("GSP-RISCV instance 0 unknown fatal error", "fail", "reset the GPU"),
        ("GSP-RISCV instance 0 GLOBAL_MEM fatal error (mask: 0x10)", "fail", "reset the GPU"),
        ("pid=7, name=RST: Yes, D-RST, Contained: SM (0x1). RST: No, D-RST: No", "none", "restart the application"),
        ("pid=7, name=fatal error, Contained: SM (0x1). RST: No, D-RST: No", "none", "restart the application"),
    ],
)
def test_a_contained_error_fails_where_the_driver_says_that_a_reset_is_due(
    text: str, severity: str, action: str
) -> None:
    finding = only(evaluate(parse(line_of(94, text))))
    assert (finding.severity, finding.action) == (severity, action)


def test_a_reset_that_was_due_at_the_first_of_several_contained_errors_is_still_due() -> None:
    first, then = "Contained: PMU Poison. RST: Yes, D-RST: No", "Contained: SM (0x1). RST: No, D-RST: No"
    assert only(evaluate(parse(line_of(94, first), line_of(94, then)))).severity == "fail"
