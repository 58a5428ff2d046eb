"""What a watch reported of nodes is read next to a job's traces, with its time; and that one of them booted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.case.report import OF_RUN, paragraph, rows
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch.changes_file import CHANGES_FILE, append_changes
from clusterproof.plugins.watch.recording import NodeRecording
from clusterproof.plugins.watch.updates import Hello, Tick
from tests.case.files import BROKEN_GPU, case_of

AT_8 = 1_772_352_000.0
REBOOTED = {name: text for name, text in BROKEN_GPU.items() if "dmesg" not in name}
LOST = "the driver says GPU_IS_LOST; expected an answer"


def reported(
    folder: Path,
    at_s: float,
    rule: str = "gpu.gpu_answers",
    kind: ChangeKind = ChangeKind.OPENED,
    verdict: Verdict = Verdict.FAIL,
    node: str = "gpu003",
) -> None:
    """A watch reported this of GPU 1 at seconds before or after 08:00."""
    folder.mkdir(exist_ok=True)
    append_changes(folder / CHANGES_FILE, [Change(kind, Key(node, "GPU 1", rule), verdict, LOST, 0.0)], AT_8 + at_s)


def test_a_hardware_failure_that_a_watch_reported_is_of_that_time_and_its_node_is_to_be_tested(tmp_path: Path) -> None:
    reported(tmp_path, 1.0)
    case = case_of(tmp_path, REBOOTED)
    assert (case.verdict.nodes, case.verdict.standing) == (("gpu003",), "supported")
    (row,) = (row for row in rows(case) if row.source == f"{CHANGES_FILE}:1")
    assert (row.when.begins, row.words) == (AT_8 + 1.0, f"GPU 1: {LOST}")
    assert case.advice.nodes["gpu003"] == "test"
    assert "1 file of a watch's changes" in case.collected.read
    assert not any(CHANGES_FILE in gap for gap in case.collected.missing)


def test_what_a_watch_reported_is_no_unknown_time(tmp_path: Path) -> None:
    reported(tmp_path, 1.0)
    case = case_of(tmp_path, {})
    assert f"gpu003 says GPU 1: {LOST}, at 2026-03-01 08:00:01" in paragraph(case)


def test_one_failure_is_one_line_until_it_is_over(tmp_path: Path) -> None:
    for at_s, kind in enumerate((ChangeKind.OPENED, ChangeKind.WORSE, ChangeKind.CLOSED, ChangeKind.OPENED)):
        reported(tmp_path, float(at_s), kind=kind)
    facts = case_of(tmp_path, REBOOTED).collected.facts
    assert [fact.when.begins for fact in facts] == [AT_8, AT_8 + 3.0]


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("gpu.gpu_answers", Verdict.CONCERN),
        ("watch.silent", Verdict.INCOMPLETE),
        ("gpu.persistence_mode", Verdict.FAIL),  # a setting
        ("gpu.of_another_version", Verdict.FAIL),
    ],
)
def test_what_is_no_failed_hardware_blames_no_node_and_keeps_none(tmp_path: Path, rule: str, verdict: Verdict) -> None:
    reported(tmp_path, 1.0, rule, verdict=verdict)
    case = case_of(tmp_path, REBOOTED)
    assert case.collected.facts == ()
    assert case.advice.nodes["gpu001"] == "not known"


def test_what_a_watch_reported_weeks_before_the_job_says_nothing_of_its_node(tmp_path: Path) -> None:
    reported(tmp_path, -30 * 86_400.0)
    case = case_of(tmp_path, {**REBOOTED, "rank_0.log": "2026-03-01 08:00:00,000 KeyError: 'image'\n"})
    assert case.advice.nodes["gpu003"] != "test"
    assert not [row for row in rows(case) if row.mark == OF_RUN]


@pytest.mark.parametrize(
    ("boots", "said"),
    [(("b1", "b1"), []), (("b1", ""), []), (("b1", "b2"), [AT_8 - 10.0])],
    ids=["a connection that broke", "a boot that is not known", "a boot"],
)
def test_a_node_that_booted_while_it_was_watched_is_said_to_have_from_when_it_was_heard_last(
    tmp_path: Path, boots: Sequence[str], said: Sequence[float]
) -> None:
    """Its samples are the only trace of it: the lines of its kernel log went with the boot."""
    recording = NodeRecording(tmp_path, "gpu003", 10.0)
    for boot_id, at_s in zip(boots, (-20.0, 200.0), strict=True):
        recording.learn(Hello(boot_id, AT_8 + at_s, 60.0), "the connection broke")
        for more_s in (0.0, 10.0):
            recording.write(Tick(AT_8 + at_s + more_s, 60.0 + more_s, (), (None,) * 15), AT_8 + at_s + more_s)
    recording.close()
    case = case_of(tmp_path, {name: text for name, text in REBOOTED.items() if name != "rank_3.log"})
    assert [fact.when.begins for fact in case.collected.facts] == said
    assert case.advice.nodes["gpu003"] == ("test" if said else "not known")


@pytest.mark.parametrize(
    ("until_s", "again_s"), [(-10.0, 86_400.0), (-7_200.0, 0.0)], ids=["over its end", "over its begin"]
)
def test_a_boot_while_nobody_watched_is_of_no_known_time(tmp_path: Path, until_s: float, again_s: float) -> None:
    """The node may have been booted for the job to begin, or after its end."""
    for boot_id, at_s in (("b1", until_s), ("b2", again_s)):
        recording = NodeRecording(tmp_path, "gpu003", 10.0)
        recording.learn(Hello(boot_id, AT_8 + at_s, 60.0))
        recording.write(Tick(AT_8 + at_s, 60.0, (), (None,) * 15), AT_8 + at_s)
        recording.close()
        (path,) = tmp_path.glob("*.zst")
        os.utime(path, (AT_8 + at_s, AT_8 + at_s))
    case = case_of(tmp_path, {name: text for name, text in REBOOTED.items() if name != "rank_3.log"})
    assert case.collected.facts == ()
    assert case.advice.nodes["gpu003"] == "not known"


@pytest.mark.parametrize("line", ["[]", "{", '{"kind": "opened"}', "[" * 100_000])
def test_a_line_that_holds_no_change_is_skipped(tmp_path: Path, line: str) -> None:
    reported(tmp_path, 1.0)
    path = tmp_path / CHANGES_FILE
    path.write_text(f"{path.read_text()}{line}\n")
    assert len(case_of(tmp_path, REBOOTED).collected.facts) == 1


def test_changes_that_others_may_write_are_no_evidence(tmp_path: Path) -> None:
    reported(tmp_path, 1.0)
    (tmp_path / CHANGES_FILE).chmod(0o666)
    case = case_of(tmp_path, REBOOTED)
    assert case.collected.facts == ()
    assert f"{CHANGES_FILE}: no evidence against a node, as it may be written by others" in case.collected.missing
