"""Every check of training runs finds its faults, is silent on a healthy run, and passes none without evidence."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import owners
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from tests.training_run.builders import CHECKS, result_of, verdicts
from tests.training_run.faults import FAULTS, HEALTHY
from tests.training_run.faults.fault import RunFault


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_the_verdicts_that_it_is_to_change_and_no_other(fault: RunFault) -> None:
    run = fault.run()
    results = {name: result_of(name, run) for name in CHECKS}
    of_others = {Verdict.PASS, Verdict.NOT_APPLICABLE}  # and incomplete, if nothing of their kind was given
    for name, result in results.items():
        if name in fault.expect:
            assert result.verdict is fault.expect[name], result.message
        else:
            assert result.verdict in of_others or "no file records" in result.message, result.message
    assert fault.words in results[next(iter(fault.expect))].message


def test_every_check_has_a_fault_that_it_finds() -> None:
    findings = (Verdict.FAIL, Verdict.CONCERN)
    assert {name for fault in FAULTS for name, verdict in fault.expect.items() if verdict in findings} == set(CHECKS)


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS)
def test_every_check_passes_a_healthy_run(check: str) -> None:
    result = result_of(check, HEALTHY[check]())
    assert result.verdict is Verdict.PASS, result.message


@pytest.mark.parametrize("check", CHECKS)
def test_a_run_of_which_nothing_is_known_is_incomplete_with_what_to_collect(check: str) -> None:
    result = result_of(check, TrainingRun("silent", RunData()))
    assert result.verdict is Verdict.INCOMPLETE
    assert "; " in result.message


def test_a_run_without_a_finding_says_what_its_files_lack() -> None:
    assert Verdict.INCOMPLETE.value in verdicts(TrainingRun("silent", RunData())).values()


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_says_what_it_finds_what_to_do_how_to_see_it_and_who_owns_it(check: str) -> None:
    about = CHECKS[check].route
    assert about.check == f"run.{CHECKS[check].function.__name__.removeprefix('test_')}"
    assert about.title
    assert about.remedy
    assert about.evidence
    assert about.owner in {owner.name for owner in owners().values()}
    assert CHECKS[check].collectors == CHECKS[check].control_collectors == frozenset()
