"""What slows a GPU down."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import clocks_event_reasons, threshold, unknown_clocks_event_reasons
from clusterproof.plugins.facts.gpu import Gpu
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import NotApplicable, concern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.hyperpod_node_debugger("G"),
]


@pytest.mark.prolog
@evidence("nvidia-smi -q -d PERFORMANCE")
def test_no_throttle(gpu: Gpu) -> None:
    """GPUs are slowed down by heat or power.

    A hardware slowdown, thermal or by the power brake, at least halves the clocks. An idle GPU and the software power
    cap are normal.

    Remedy: Look at temperature, power and cooling. If one GPU stays slow while its neighbours do not, replace the node.
    """
    mask = gpu.clocks_event_reasons
    reasons = clocks_event_reasons(mask)
    failing = ", ".join(reason.words for reason in reasons if reason.verdict == "fail")
    assert not failing, f"slowed down by {failing}; expected no hardware slowdown"
    worrying = ", ".join(reason.words for reason in reasons if reason.verdict == "concern")
    if worrying:
        concern(f"slowed down by {worrying}; expected none")
    unknown = unknown_clocks_event_reasons(mask)
    if unknown:
        concern(f"clocks event reasons {unknown:#x}, which the catalogue does not know; expected known ones")


@evidence("nvidia-smi --query-gpu=index,temperature.gpu,temperature.gpu.tlimit --format=csv")
def test_temperature(gpu: Gpu) -> None:
    """GPUs are too hot.

    Judged is the margin to the temperature at which the GPU slows itself down, which differs by model; the absolute
    temperature only where the driver tells no margin.

    Remedy: Look at fans, airflow and the neighbours. One hot GPU among cool ones: replace the node.
    """
    try:
        margin_c = gpu.temperature_margin_c
    except NotApplicable:
        limit_c = threshold("temperature.without_margin_fail_c")
        assert gpu.temperature_c < limit_c, f"{gpu.temperature_c:.0f} °C; expected less than {limit_c:.0f} °C"
        return
    assert margin_c > 0, f"{-margin_c:.0f} °C above its slowdown temperature; expected below"
    least_c = threshold("temperature.margin_concern_c")
    if margin_c < least_c:
        concern(f"{margin_c:.0f} °C below its slowdown temperature; expected at least {least_c:.0f} °C")
