"""`--since`: only kernel log lines within the window count, by the node's own clocks."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evidence.kernel_log.events_gpu import Cleared, XidEvent
from clusterproof.plugins.evidence.kernel_log.window import BOOT, Window, window
from clusterproof.plugins.evidence.node import Node
from tests.builders.runs import LIGHT, Runs, saying
from tests.evidence.kernel_log.logged import HOUR, NOW, UPTIME_S, node, result, verdict

XID = "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus."
OOM = "Out of memory: Killed process 39 (python3) total-vm:1kB"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boot", BOOT),
        ("45s", Window(last_s=45, words="45s")),
        ("90m", Window(last_s=5400, words="90m")),
        ("24h", Window(last_s=86400, words="24h")),
        ("1.5h", Window(last_s=5400, words="1.5h")),
        ("2d", Window(last_s=172800, words="2d")),
        ("2025-11-20T20:20:00Z", Window(moment=NOW, words="2025-11-20T20:20:00Z")),
        ("2025-11-20T21:20+01:00", Window(moment=NOW, words="2025-11-20T21:20+01:00")),
        ("2025-11-20T20:20", Window(moment=NOW, words="2025-11-20T20:20")),
        ("2025-11-20", Window(moment=NOW - 73200, words="2025-11-20")),
    ],
)
def test_the_forms_of_a_window(text: str, expected: Window) -> None:
    assert window(text) == expected


@pytest.mark.parametrize(
    "data", ["", "24", "24 h", "0h", "-2h", "yesterday", "2025-13-01", "٣h", "1e9d", "9" * 400 + "h"]
)
def test_what_is_no_window_is_one_clear_line(data: str) -> None:
    with pytest.raises(
        ValueError, match=r"^--since is .*; expected boot, a time span such as 90m, 24h or 2d, or a time"
    ):
        window(data)


@pytest.mark.parametrize(
    ("since", "at_s", "is_found"),
    [
        ("boot", 0.0, True),
        ("24h", UPTIME_S - 25 * HOUR, False),
        ("24h", UPTIME_S - 23 * HOUR, True),
        ("24h", UPTIME_S + HOUR, True),  # logged after the uptime was read
        ("24h", None, True),  # nothing proves that it is old
        ("200h", 0.0, True),
        ("2025-11-20T10:20:00Z", UPTIME_S - 11 * HOUR, False),
        ("2025-11-20T10:20:00Z", UPTIME_S - 9 * HOUR, True),
        ("24h", NOW - 25 * HOUR, False),  # a log with dates
        ("24h", NOW - 23 * HOUR, True),
    ],
)
def test_only_lines_within_the_window_count(since: str, at_s: float | None, is_found: bool) -> None:
    logged = node((at_s, OOM), since=since)
    assert verdict("host.no_oom_kill", logged) is (Verdict.FAIL if is_found else Verdict.PASS)


@pytest.mark.parametrize("now", [0.0, NOW - 1e8, NOW + 1e8])
def test_a_clock_that_is_wrong_or_jumps_moves_no_window_of_a_length(now: float) -> None:
    old, young = (UPTIME_S - 25 * HOUR, OOM), (UPTIME_S - HOUR, OOM)
    assert verdict("host.no_oom_kill", node(old, since="24h", now=now)) is Verdict.PASS
    assert verdict("host.no_oom_kill", node(old, young, since="24h", now=now)) is Verdict.FAIL


@pytest.mark.parametrize(
    ("now", "since"),
    [
        (NOW, "2025-11-20T20:20:01Z"),  # the year is wrong, or the time is meant in another zone
        (1_000_000_000.0, "2025-11-20T10:20:00Z"),  # the node's clock is wrong
    ],
)
def test_a_window_that_begins_after_the_nodes_clock_proves_nothing(now: float, since: str) -> None:
    logged = result("host.no_oom_kill", node((UPTIME_S - 10, OOM), since=since, now=now))
    assert (logged.verdict, f"since {since}: the node's clock is at" in logged.message) == (Verdict.INCOMPLETE, True)
    assert verdict("host.no_oom_kill", node((None, OOM), since=since, now=now)) is Verdict.FAIL


def test_hardware_errors_of_neuron_devices_before_the_window_do_not_count() -> None:
    error = "NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR nd-id=3 action=TERMINATE_INSTANCE"
    assert len(node((10.0, error)).neuron_hardware_errors) == 1
    assert node((10.0, error), since="24h").neuron_hardware_errors == ()


def test_a_reset_before_the_window_still_holds() -> None:
    reload = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64"
    events = node((None, XID), (10.0, reload), (20.0, XID), since="1h").kernel_events
    assert [type(event) for event in events] == [XidEvent, Cleared]


@pytest.mark.parametrize(
    "over", ["162", "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"]
)
def test_an_xid_that_ends_others_still_holds_from_before_the_window(over: str) -> None:
    events = node((10.0, f"NVRM: Xid (PCI:0000:53:00): {over}"), (20.0, XID), since="1h").kernel_events
    assert [event.code for event in events if isinstance(event, XidEvent)] == [int(over[:3])]


def test_what_another_boot_logged_before_this_one_does_not_count() -> None:
    boots = [(1.0, OOM), (UPTIME_S - 10, OOM), (0.0, "Linux version 6.8.0-1021-aws"), (5.0, "usb 1-1: new device")]
    assert verdict("host.no_oom_kill", node(*boots)) is Verdict.PASS
    assert verdict("host.no_oom_kill", node(*boots, since="24h")) is Verdict.PASS
    assert verdict("host.no_oom_kill", node(*boots, (6.0, OOM))) is Verdict.FAIL


@pytest.mark.parametrize(
    ("since", "whole_from", "expected"),
    [
        ("boot", UPTIME_S - 30 * HOUR, Verdict.INCOMPLETE),
        ("24h", UPTIME_S - 30 * HOUR, Verdict.PASS),
        ("24h", UPTIME_S - 20 * HOUR, Verdict.INCOMPLETE),
        ("24h", None, Verdict.INCOMPLETE),  # recorded by an older probe
    ],
)
def test_a_log_that_lost_only_what_is_before_the_window_is_whole_enough(
    since: str, whole_from: float | None, expected: Verdict
) -> None:
    cut = node(since=since, truncated=True, whole_from=whole_from)
    assert verdict("host.no_oom_kill", cut) is expected


@pytest.mark.parametrize("since", ["boot", "24h"])
def test_a_log_that_was_not_read_to_its_end_still_fails_and_proves_nothing(since: str) -> None:
    unfinished: dict[str, Any] = {"truncated": True, "whole_from": None, "unfinished": True}
    outcome = result("host.no_oom_kill", node(since=since, **unfinished))
    assert (outcome.verdict, "not read to its end" in outcome.message) == (Verdict.INCOMPLETE, True)
    assert verdict("host.no_oom_kill", node((UPTIME_S - 10, OOM), since=since, **unfinished)) is Verdict.FAIL


def test_a_window_on_a_node_of_unknown_uptime_is_incomplete() -> None:
    of = node((10.0, OOM), since="24h")
    silent = Node(of.target, NodeEvidence("gpu001", {"kernel_log": of.collector("kernel_log")}), since=of.since)
    with pytest.raises(Incomplete, match="boot"):
        silent.kernel_events  # noqa: B018


@pytest.mark.parametrize(("since", "phrase"), [("24h", "in the last 24h"), ("2025-11-20", "since 2025-11-20")])
def test_the_header_says_a_window(runs: Runs, since: str, phrase: str) -> None:
    runs.checks(test_word=LIGHT)
    ended = runs.over([saying("gpu001", "pass")], "--since", since)
    ended.stdout.fnmatch_lines([f"kernel log: only what it logged {phrase} counts"])
    assert runs.verdicts == {"gpu001": Verdict.PASS}


def test_the_header_does_not_say_that_the_whole_boot_counts(runs: Runs) -> None:
    runs.checks(test_word=LIGHT)
    runs.over([saying("gpu001", "pass")]).stdout.no_fnmatch_line("*kernel log*")


def test_a_window_that_is_none_ends_the_run_with_one_line(runs: Runs) -> None:
    runs.checks(test_word=LIGHT)
    ended = runs.over([saying("gpu001", "pass")], "--since", "yesterday")
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["*--since is 'yesterday'; expected boot, a time span such as 90m*"])


def test_the_window_reaches_the_facts_of_a_run(runs: Runs) -> None:
    runs.checks(
        test_oom="""
            def test_oom(node):
                assert not node.kernel_events, f"{len(node.kernel_events)} events; expected none"
        """
    )
    log = node((10.0, OOM)).evidence
    assert runs.over([log]).ret == 1
    assert runs.over([log], "--since", "24h").ret == 0
