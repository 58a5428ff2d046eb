"""Each check fails on its fault, and on nothing else: real faults in fake nodes, read by the real probe."""

from __future__ import annotations

import pytest

from clusterproof.plugins.suite import node_checks
from clusterproof.plugins.verdict import Verdict
from tests.faults import FAULTS, captured
from tests.faults.fault import DOES_NOT_APPLY, Fault, p5
from tests.faults.proof import changes, verdicts_of_healthy
from tests.testbed.needs import needs_nodes


def cases() -> list[object]:
    """The faults as pytest's parameters."""
    return [pytest.param(fault, id=fault.name, marks=fault.marks) for fault in FAULTS]


@needs_nodes
@pytest.mark.parametrize("fault", cases())
def test_a_fault_changes_just_the_verdicts_that_it_should(fault: Fault) -> None:
    changed = changes(fault)
    verdicts = {name: result.verdict for name, result in changed.items()}
    assert verdicts == dict(fault.expect), {name: result.message for name, result in changed.items()}
    assert fault.words in changed[next(iter(fault.expect))].message


def test_every_check_has_a_fault_that_it_finds() -> None:
    found = {
        name
        for fault in (*FAULTS, *captured.FAULTS)
        for name, verdict in fault.expect.items()
        if verdict in (Verdict.FAIL, Verdict.CONCERN)
    }
    says_when_counts_prove_nothing = {"node.uptime_settled"}  # its finding is incomplete, never a fault
    assert node_checks().keys() - found == says_when_counts_prove_nothing


@needs_nodes
def test_a_healthy_p5_passes_every_check_that_applies_to_it() -> None:
    not_passed = {name: verdict for name, verdict in verdicts_of_healthy(p5).items() if verdict is not Verdict.PASS}
    assert not_passed.keys() == DOES_NOT_APPLY
    assert set(not_passed.values()) == {Verdict.NOT_APPLICABLE}
