"""Causes, which files of results keep, and by which later versions tell results apart."""

from __future__ import annotations

from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.result import INTERRUPTED, NOT_RECORDED, Result, why_unreachable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.expectation import UNKNOWN_TYPE
from clusterproof.plugins.evidence.kernel_log.wording import RECORDS_LOST


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
