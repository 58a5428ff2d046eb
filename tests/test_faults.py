"""Each check fails on its fault, and on nothing else: real faults in fake nodes, read by the real probe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusterproof.plugins.suite import all_checks
from clusterproof.plugins.verdict import Verdict
from tests.fault_table import FAULTS, Fault, p5
from tests.judged import results, told_by
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes

Healthy = Callable[[Callable[[], NodeImage]], dict[str, Verdict]]


def verdicts(image: NodeImage) -> dict[str, Verdict]:
    """Every check's verdict on a node."""
    return {name: result.verdict for name, result in results(told_by(image)).items()}


@pytest.fixture(scope="module")
def healthy() -> Healthy:
    """The verdicts on the healthy node that a fault is put into."""
    known: dict[str, dict[str, Verdict]] = {}

    def of(base: Callable[[], NodeImage]) -> dict[str, Verdict]:
        if base.__name__ not in known:
            known[base.__name__] = verdicts(base())
        return known[base.__name__]

    return of


def cases() -> list[object]:
    """The table as pytest's parameters."""
    return [pytest.param(fault, id=fault.name, marks=fault.marks) for fault in FAULTS]


@needs_nodes
@pytest.mark.parametrize("fault", cases())
def test_a_fault_changes_just_the_verdicts_that_it_should(fault: Fault, healthy: Healthy) -> None:
    before = healthy(fault.base)
    told = results(told_by(fault.put(fault.base()), leaf_s=fault.leaf_s, beside=fault.beside), fault.occasion)
    changed = {name: result.verdict for name, result in told.items() if result.verdict is not before[name]}
    assert changed == dict(fault.expect), {name: told[name].message for name in changed}
    assert fault.words in told[next(iter(fault.expect))].message


def test_every_check_has_a_fault_that_it_finds() -> None:
    found = {
        name for fault in FAULTS for name, verdict in fault.expect.items() if verdict in (Verdict.FAIL, Verdict.CONCERN)
    }
    says_when_counts_prove_nothing = {"node.uptime_settled"}  # its finding is incomplete, never a fault
    assert all_checks().keys() - found == says_when_counts_prove_nothing


@needs_nodes
def test_a_healthy_p5_passes_every_check_that_applies_to_it() -> None:
    not_passed = {name: verdict for name, verdict in verdicts(p5()).items() if verdict is not Verdict.PASS}
    assert not_passed == {"network.ib_ports": Verdict.NOT_APPLICABLE}
