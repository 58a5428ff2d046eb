"""What slows a GPU down."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import clocks_event_reasons
from clusterproof.plugins.facts.gpu import Gpu
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import concern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.hyperpod_node_debugger("G"),
]


@evidence("nvidia-smi -q -d PERFORMANCE")
def test_no_throttle(gpu: Gpu) -> None:
    """GPUs are slowed down by heat or power.

    A hardware slowdown, thermal or by the power brake, at least halves the clocks. An idle GPU and the software power
    cap are normal.

    Remedy: Look at temperature, power and cooling. If one GPU stays slow while its neighbours do not, replace the node.
    """
    reasons = clocks_event_reasons(gpu.clocks_event_reasons)
    failing = ", ".join(reason.words for reason in reasons if reason.verdict == "fail")
    assert not failing, f"slowed down by {failing}; expected no hardware slowdown"
    worrying = ", ".join(reason.words for reason in reasons if reason.verdict == "concern")
    if worrying:
        concern(f"slowed down by {worrying}; expected none")
