"""Xids and SXids, evaluated by the catalogue."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from tests.builders.samples import sample
from tests.evidence.kernel_log.xid_lines import GPU, OTHER_GPU, evaluate, evaluate_switches, line_of, log, only, parse

HOUR = 3600.0


def test_an_application_that_crashes_nine_times_in_636_lines_is_a_concern() -> None:
    findings = evaluate(parse(*sample("kernel-log/gpud-dmesg-decode-iso-0.txt").lines))
    assert [(finding.code, finding.severity, finding.count, finding.occurrences) for finding in findings] == [
        (13, "concern", 629, 9),
        (43, "none", 7, 7),
    ]


def test_the_captured_double_bit_error_is_what_fails_not_the_application_that_it_ended() -> None:
    findings = evaluate(parse(*sample("kernel-log/gpud-dmesg-tail-0.txt").lines))
    assert [(finding.code, finding.severity, finding.pci) for finding in findings] == [
        (48, "fail", "0000:19:00.0"),
        (63, "concern", "0000:19:00.0"),
        (94, "none", "0000:19:00.0"),
    ]
    assert (findings[2].process, findings[2].pid) == ("python3.10", 1248209)


@pytest.mark.parametrize(
    ("mark", "gpus"),
    [
        ("[    0.000000] Linux version 6.8.0-1021-aws (buildd@lcy02) #23 SMP", {GPU, OTHER_GPU}),
        ("-- Boot 3f2c0a4be7c14a4c8b3f5a0d6f0a1b2c --", {GPU, OTHER_GPU}),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09", {GPU, OTHER_GPU}),
        ("nvidia-nvswitch: Probing device 0000:08:00.0, Vendor Id = 0x10de", {GPU, OTHER_GPU}),
        (line_of(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"), {GPU}),
    ],
)
def test_a_later_reset_or_reboot_clears_what_was_before_it(mark: str, gpus: set[str]) -> None:
    before = [(1.0, line_of(48, gpu=gpu)) for gpu in (GPU, OTHER_GPU)]
    severities = {finding.pci: finding.severity for finding in log(*before, (2.0, mark)) if finding.code == 48}
    cleared = {finding.pci for finding in log(*before, (2.0, mark)) if finding.code == 48 and finding.cleared_by}
    assert cleared == {pci_address(gpu) for gpu in gpus}
    assert severities == {pci_address(gpu): "none" if gpu in gpus else "fail" for gpu in (GPU, OTHER_GPU)}
    assert {finding.severity for finding in log((0.0, mark), *before) if finding.code == 48} == {"fail"}


def test_a_gpu_that_was_taken_off_the_bus_and_is_back_was_reset() -> None:
    back = "[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:c5:00.0 on minor 7"
    removed = "[drm] [nvidia-drm] [GPU ID 0x0000c500] Removing device"
    assert only(log((1.0, line_of(95)), (2.0, removed), (3.0, back))).cleared_by == "a GPU reset"
    assert only(log((1.0, line_of(95)), (3.0, back))).severity == "fail"
    assert only(log((1.0, line_of(95)), (2.0, removed))).severity == "fail"
    assert only(log((1.0, line_of(95, gpu=OTHER_GPU)), (2.0, removed), (3.0, back))).severity == "fail"


@pytest.mark.parametrize(
    ("texts", "severity"),
    [
        (["Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"], "fail"),
        (["Uncontained: FBHUB. RST: No, D-RST: No"], "concern"),
        (["pid=7, name=python3, Uncontained: FBHUB. RST: No, D-RST: No"], "concern"),
        (["Uncontained: FBHUB. RST: No, D-RST: No", "Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No"], "fail"),
        (["Uncontained: LTC TAG (0x2,0x1). RST: No, D-RST: Yes"], "fail"),
        (["Uncontained ECC error"], "fail"),
        (["pid=7, name=RST: No, D-RST: No, Uncontained ECC error"], "fail"),
        (["pid=7, name=RST: No, D-RST: No"], "fail"),
    ],
)
def test_an_uncontained_error_fails_unless_the_driver_says_that_no_reset_is_due(
    texts: list[str], severity: str
) -> None:
    assert only(log(*((float(at), line_of(95, text)) for at, text in enumerate(texts)))).severity == severity


def test_what_returns_after_a_reset_is_found_and_only_that_is_counted() -> None:
    reset = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03"
    finding = only(log((1.0, line_of(109)), (HOUR, reset), (2 * HOUR, line_of(109))))
    assert (finding.severity, finding.count, finding.first, finding.cleared_by) == (
        "concern",
        1,
        2 * HOUR,
        "",
    )


@pytest.mark.parametrize("now", ["0x1 (GPU Reset Required)", "0x9 (Something New)", ""])
def test_a_recovery_action_that_is_due_clears_nothing(now: str) -> None:
    due = line_of(154, f"GPU recovery action changed from 0x0 (None) to {now}")
    assert {finding.severity for finding in log((1.0, line_of(79)), (2.0, due)) if finding.code == 79} == {"fail"}


@pytest.mark.parametrize(
    ("texts", "data"),
    [
        (["pid=77, name=python3, Ch 1", "pid=78, name=nccl, Ch 1"], ("nccl", 78)),
        (["pid=77, name=python3, Ch 1", "Ch 2"], ("python3", 77)),
        (["pid=77, Ch 1", "Ch 2"], ("", 77)),
        (["pid='<unknown>', name=python3, Ch 1", "Ch 2"], ("python3", None)),
        (["Ch 1", "Ch 2"], ("", None)),
    ],
)
def test_a_finding_names_the_last_process_that_a_line_names(texts: list[str], data: tuple[str, int | None]) -> None:
    finding = only(evaluate(parse(*(line_of(13, text) for text in texts))))
    assert (finding.process, finding.pid) == data


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (["RLW_REMAP Nonfatal XC1 i0 Link 10 (0x4)"], "RLW_REMAP, link 10"),
        (
            ["NETIR_LINK_EVT  Fatal   XC0 i0 Link 15 (0x02)", "NETIR Fatal XC0 i0 Link -1"],
            "NETIR_LINK_EVT, NETIR, link 15",
        ),
        (["NETIR_LINK_EVT Fatal XC0 i0 Link 08", "NETIR_LINK_EVT Fatal XC0 i0 Link 01"], "NETIR_LINK_EVT, link 1 8"),
        (
            [f"RLW_{name} Nonfatal XC0 i0 Link 08" for name in ("CTRL", "REMAP", "RSPCOL", "RXPIPE", "TREX", "VC")],
            "RLW_CTRL, RLW_REMAP, RLW_RSPCOL, RLW_RXPIPE, 2 more parts, link 8",
        ),
        (["driver-specific detail"], ""),
    ],
)
def test_a_finding_names_the_part_of_the_nvlink_hardware_and_the_links(texts: list[str], part: str) -> None:
    assert only(evaluate(parse(*(line_of(149, text) for text in texts)))).part == part


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (["Fatal, Link 28 LTSSM Fault Up", "Fatal, Link 04 LTSSM Fault Up"], "link 4 28"),
        (["Fatal, Link 28 LTSSM Fault Up", "Non-fatal, Link 00 LTSSM Fault Up"], "link 0 28"),
        (["Fatal, Link 28 LTSSM Fault Up"] * 2, ""),  # its name has it
        (["Fatal, TSENSE OVERT Threshold reached"] * 2, ""),
    ],
)
def test_a_finding_of_an_nvswitch_with_several_links_names_all_of_them(texts: list[str], part: str) -> None:
    lines = (f"nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, {text}" for text in texts)
    assert only(evaluate_switches(parse(*lines))).part == part


@pytest.mark.parametrize(
    ("text", "severity", "action"),
    [
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x0)", "fail", "device at the other end of the link"),
        ("NETIR_LINK_DOWN Fatal XC0 i0 Link 01 (0x025a2591 0x0)", "fail", "device at the other end of the link"),
        ("NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x02a000c6]", "fail", "look at the signal of the link, and at its c"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)", "fail", "look at the signal of the link: bit error"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x000505c6 0x0)", "fail", "look first for the other error"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x026505c6 0x0)", "concern", "what software or a user did to the link"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x028505c6 0x0)", "concern", "look at this host (the tray)"),
        ("NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x03f505c6 0x0)", "fail", "reset the GPU"),  # no known cause
        ("NETIR Fatal XC0 i0 Link -1 (0x025525c6", "fail", "reset the GPU"),
    ],
)
def test_the_cause_of_a_link_s_loss_says_where_to_look(text: str, severity: str, action: str) -> None:
    finding = only(evaluate(parse(line_of(149, text))))
    assert (finding.severity, finding.action.startswith("reset the GPU")) == (severity, severity == "fail")
    assert action in finding.action
    assert finding.action == action or action != "reset the GPU"


def test_every_captured_line_of_144_to_149_names_its_part() -> None:
    events = parse(*sample("kernel-log/gpud-xid-nvlink5-145-149-real.txt").lines)
    named = {event.unit for event in events if isinstance(event, XidEvent)}
    assert named == {
        "NETIR", "NETIR_BER_EVENT", "NETIR_LINK_EVT", "RLW_CTRL", "RLW_REMAP", "RLW_RXPIPE", "RLW_SRC_TRACK",
        "SAW_EGR", "SAW_MVB",
    }  # fmt: skip


def test_lines_that_the_probe_left_out_are_counted() -> None:
    lines: list[kernel_log.Line] = [(1.0, line_of(79)), (2.0, line_of(79)), (9.0, line_of(79), 100)]
    assert only(evaluate(kernel_log.parse(lines))).count == 103


def test_162_clears_163_that_was_before_it_on_its_gpu() -> None:
    disengaged, engaged = line_of(163), line_of(162)
    assert {finding.severity for finding in evaluate(parse(disengaged, engaged))} == {"none"}
    assert {finding.severity for finding in evaluate(parse(engaged, disengaged))} == {"none", "concern"}
    assert {finding.severity for finding in evaluate(parse(disengaged, line_of(162, gpu=OTHER_GPU)))} == {
        "none",
        "concern",
    }


def test_45_after_another_xid_adds_nothing() -> None:
    findings = evaluate(parse(line_of(74), line_of(45), line_of(45)))
    assert [(finding.code, finding.severity) for finding in findings] == [(74, "fail"), (45, "none")]


@pytest.mark.parametrize(("cause", "severity"), [(79, "fail"), (149, "concern"), (43, "none"), (999, "concern")])
def test_an_xid_of_which_only_the_45_after_it_is_left_in_the_log_is_evaluated(cause: int, severity: str) -> None:
    left = line_of(45, f"pid=77, name=python3, Ch 0000000c caused by previous Xid {cause}")
    findings = evaluate(parse(left, left))
    assert {finding.code: finding.severity for finding in findings} == {cause: severity, 45: "none"}


def test_an_xid_that_the_log_has_is_not_evaluated_again_by_the_45_after_it() -> None:
    left = line_of(45, "pid=77, name=python3, Ch 0000000c caused by previous Xid 145")
    nonfatal = line_of(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)")
    assert {finding.severity for finding in evaluate(parse(nonfatal, left))} == {"none"}
    assert {finding.severity for finding in evaluate(parse(nonfatal, line_of(45, left[-40:], gpu=OTHER_GPU)))} == {
        "none",
        "concern",
    }


def test_a_process_cannot_name_a_cause() -> None:
    named = line_of(45, "pid=77, name=x caused by previous Xid 79, Ch 0000000c")
    assert [(finding.code, finding.severity) for finding in evaluate(parse(named))] == [(45, "none")]


@pytest.mark.parametrize(
    ("code", "text", "severity"),
    [
        (12028, "Non-fatal, Link 32 egress non-posted PRIV error (First)", "concern"),
        (12028, "Fatal, Link 32", "fail"),
        (20034, "Link 30 LTSSM Fault Up", "fail"),
        (10004, "Thermal Slowdown Engaged | Temp higher than WARN Threshold", "concern"),
        (10005, "Thermal slowdown Disengaged", "none"),
        (10006, "TSENSE OVERT Threshold reached. Shutting Down", "fail"),
        (20034, "Non-fatal, Link 30", "concern"),
        (11111, "something new", "concern"),
    ],
)
def test_an_sxid_is_evaluated_by_its_word_and_else_by_the_list(code: int, text: str, severity: str) -> None:
    line = f"[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): {code}, {text}"
    finding = only(evaluate_switches(parse(line)))
    assert (finding.family, finding.severity, finding.pci) == ("SXid", severity, "0000:a9:00.0")
    assert only(evaluate_switches(parse(line, "NVRM: loading NVIDIA UNIX x86_64"))).severity == "none"


def test_a_switch_that_has_cooled_down_is_no_finding_and_one_that_is_hot_again_is() -> None:
    hot = "nvidia-nvswitch2: SXid (PCI:0000:a9:00.0): 10004, Thermal Slowdown Engaged | Temp higher than WARN Threshold"
    cool = "nvidia-nvswitch2: SXid (PCI:0000:a9:00.0): 10005, Thermal slowdown Disengaged"
    cool_elsewhere = cool.replace("a9", "ab")
    assert {finding.severity for finding in evaluate_switches(parse(hot, cool))} == {"none"}
    assert {finding.severity for finding in evaluate_switches(parse(hot, cool, hot))} == {"none", "concern"}
    assert {finding.severity for finding in evaluate_switches(parse(hot, cool_elsewhere))} == {"none", "concern"}
    hidden = [line.replace("0000:a9", "xxxx:xx") for line in (hot, cool)]
    assert {finding.severity for finding in evaluate_switches(parse(*hidden))} == {"none", "concern"}


HIDDEN = "xxxx:xx:00"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ([(1.0, line_of(48, gpu=HIDDEN))], {48: "fail"}),
        ([(1.0, line_of(109, gpu=HIDDEN)), (2 * HOUR, line_of(109, gpu=HIDDEN))], {109: "concern"}),  # of two, perhaps
        ([(1.0, line_of(163, gpu=HIDDEN)), (2.0, line_of(162, gpu=HIDDEN))], {163: "concern", 162: "none"}),
        ([(1.0, line_of(48, gpu=HIDDEN)), (2.0, "NVRM: loading NVIDIA UNIX x86_64")], {48: "none"}),
    ],
)
def test_lines_that_name_no_gpu_are_evaluated_and_prove_nothing_of_one_another(
    lines: list[tuple[float, str]], severities: dict[int, str]
) -> None:
    findings = log(*lines)
    assert {finding.pci for finding in findings} == {""}
    assert {finding.code: finding.severity for finding in findings} == severities


def test_findings_come_worst_first() -> None:
    findings = evaluate(parse(line_of(43), line_of(999), line_of(79), line_of(79, gpu=OTHER_GPU)))
    assert [(finding.severity, finding.code) for finding in findings] == [
        ("fail", 79),
        ("fail", 79),
        ("concern", 999),
        ("none", 43),
    ]
    assert [finding.pci for finding in findings[:2]] == ["0000:0b:00.0", "0000:c5:00.0"]


codes = st.sampled_from([13, 31, 43, 48, 63, 79, 92, 94, 109, 121, 154, 162, 163, 999])
entries = st.lists(st.tuples(st.floats(0, 3 * 86400), codes, st.integers(0, 3)), max_size=30)


@given(entries, st.permutations(range(4)))
def test_verdicts_do_not_depend_on_which_gpu_has_which_address(
    data: list[tuple[float, int, int]], places: list[int]
) -> None:
    def verdicts(place: list[int]) -> Counter[tuple[int, int, str]]:
        text = "GPU recovery action changed from 0x0 (None) to 0x0 (None)"
        findings = log(*((time, line_of(code, text, f"0000:{place[gpu]:02x}:00")) for time, code, gpu in data))
        return Counter((place.index(int(f.pci[5:7], 16)), f.code, f.severity) for f in findings)

    assert verdicts(list(places)) == verdicts([0, 1, 2, 3])
