"""Jobs that die on a real Kubernetes: the cause is named, and no node is blamed."""

from __future__ import annotations

import pytest

from tests.kubernetes.dying_jobs import DYING, DyingPod, died
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes


@pytest.mark.parametrize("dying", [pytest.param(pod, id=pod.name) for pod in DYING])
def test_the_cause_of_a_job_that_died_is_named(dying: DyingPod, kubernetes: Bed) -> None:
    case = died(kubernetes, dying)
    assert (case["cause"], case["nodes"]) == (dying.cause, []), case["ticket"]
    assert dying.rank in (None, case["rank"])
