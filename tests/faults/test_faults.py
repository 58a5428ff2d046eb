"""The catalogue of faults covers every check; `make faults` injects each into a node."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from tests.faults import ALL_FAULTS, DOES_NOT_APPLY
from tests.faults.fault import p5
from tests.faults.proof import verdicts_of_healthy
from tests.testbed.needs import needs_nodes


def test_every_check_has_a_fault_that_it_finds() -> None:
    covered = {
        name
        for fault in ALL_FAULTS
        for name, verdict in fault.expect.items()
        if verdict in (Verdict.FAIL, Verdict.CONCERN)
    }
    says_when_counts_prove_nothing = {"node.uptime_settled"}  # its finding is incomplete, never a fault
    lists_what_is_not_evaluated = {"host.unknown_errors"}
    assert node_checks().keys() - covered == says_when_counts_prove_nothing | lists_what_is_not_evaluated


@needs_nodes
def test_a_healthy_p5_passes_every_check_that_applies_to_it() -> None:
    not_passed = {name: verdict for name, verdict in verdicts_of_healthy(p5).items() if verdict is not Verdict.PASS}
    assert not_passed.keys() == DOES_NOT_APPLY
    assert set(not_passed.values()) == {Verdict.NOT_APPLICABLE}
