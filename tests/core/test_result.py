"""A check's findings, grouped and in lines; a result's message by verdict; causes that distinguish results."""

from __future__ import annotations

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.result import (
    INTERRUPTED,
    NOT_RECORDED,
    Finding,
    Result,
    from_json,
    grouped,
    in_lines,
    why_unreachable,
    with_findings,
)
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.expectation import UNKNOWN_TYPE
from clusterproof.plugins.evidence.kernel_log.wording import RECORDS_LOST

HOT = Finding(Verdict.CONCERN, "91 °C; expected less than 90 °C", ("GPU 3",))
LOST = Finding(Verdict.FAIL, "lost; expected an answer", ("GPU 5",), action="reset or reboot")
UNREAD = Finding(Verdict.INCOMPLETE, "power was not reported", ("GPU 3",), "not reported by the node")


def test_findings_that_say_the_same_are_one_of_all_devices_and_the_worst_stands_first() -> None:
    other = Finding(Verdict.CONCERN, HOT.message, ("GPU 6",))
    assert grouped([HOT, UNREAD, other, LOST, other]) == (
        LOST,
        UNREAD,
        Finding(Verdict.CONCERN, HOT.message, ("GPU 3", "GPU 6")),
    )


def test_a_line_of_another_verdict_than_the_worst_begins_with_its_own() -> None:
    assert in_lines(grouped([HOT, UNREAD])) == (
        "GPU 3: power was not reported\nconcern: GPU 3: 91 °C; expected less than 90 °C"
    )


def test_what_a_node_reports_cannot_forge_a_line_of_a_terminal() -> None:
    (finding,) = grouped([Finding(Verdict.FAIL, "name \x1b[2J", ("GPU \x07",))])
    assert (finding.message, finding.devices) == ("name \\x1b[2J", ("GPU \\x07",))


def test_a_result_is_read_verdict_by_verdict() -> None:
    result = with_findings(Result("gpu.all", "gpu001", Verdict.PASS), grouped([HOT, UNREAD, LOST]))
    assert (result.verdict, result.devices, result.action) == (Verdict.FAIL, ("GPU 5",), "reset or reboot")
    fail, incomplete, concern = result.by_verdict
    assert (fail.message, fail.devices) == ("GPU 5: lost; expected an answer", ("GPU 5",))
    assert (incomplete.verdict, incomplete.cause, incomplete.action) == (
        Verdict.INCOMPLETE,
        "not reported by the node",
        "",
    )
    assert (concern.verdict, concern.observed, concern.severity) == (Verdict.CONCERN, "GPU 3: 91 °C", "warning")


def test_a_record_of_the_first_schema_is_read_without_findings() -> None:
    record = with_findings(Result("gpu.all", "gpu001", Verdict.PASS), (LOST,)).to_json()
    old = {**{name: value for name, value in record.items() if name != "findings"}, "schema": 1}
    assert from_json(record).findings == (LOST,)
    assert (from_json(old).findings, from_json(old).verdict) == ((), Verdict.FAIL)
    assert from_json(old).by_verdict == (from_json(old),)


def test_causes_are_those_of_files_that_were_written_before() -> None:
    assert (NOT_RECORDED, INTERRUPTED) == ("no file records", "the run was interrupted")
    assert (UNKNOWN_TYPE, RECORDS_LOST) == ("instance type unknown", "part of the kernel log was overwritten")
    assert (why_unreachable(Unreached.NO_LOG), why_unreachable(Unreached.API)) == (
        "unreachable: no log",
        "unreachable: api",
    )


def test_a_result_knows_why_its_node_was_not_reached() -> None:
    for unreached in Unreached:
        result = Result("gpu.no_xid", "n", Verdict.INCOMPLETE, cause=why_unreachable(unreached))
        assert (result.unreached, result.is_of_unreachable) == (unreached, True)
    newer = Result("gpu.no_xid", "n", Verdict.INCOMPLETE, cause="unreachable: on fire")
    assert (newer.unreached, newer.is_of_unreachable) == (None, True)
