"""GPU clocks: throttling by heat, power or a hardware signal."""

from __future__ import annotations

from clusterproof.plugins.catalog import clocks_event_reasons, unknown_clocks_event_reasons
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.robust import median
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, reading_of, readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.hyperpod_node_debugger("G"),
]

MIN_TO_COMPARE = 3  # GPUs of which one can be the odd one


@mark.prolog
@evidence("nvidia-smi -q -d CLOCK,PERFORMANCE,UTILIZATION; sleep 1; nvidia-smi -q -d PERFORMANCE | grep -A5 Counters")
def test_no_throttle(gpu: Gpu, node: Node) -> None:
    """GPU clock throttling.

    A hardware slowdown, thermal or by the power brake, cuts the clocks to half or less. A single observation is a
    concern; the GPU fails if the driver's counters show that the slowdown persists. An idle GPU and the software power
    cap are normal. A busy GPU whose clock is far below that of the others is a concern, if the driver gives no reason.

    Remedy (investigate): Check temperature, power and cooling (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER). Where
    somebody locked its clock, for which the driver gives no reason, unlock it (nvidia-smi -rgc). If one GPU stays slow
    while its neighbours do not, replace the node.
    """
    mask = known(lambda: gpu.clocks_event_reasons, None)
    if mask:
        evaluate_reasons(mask, gpu, node)
    else:
        evaluate_among_busy(gpu, node, "no reason for it" if mask == 0 else "its reason was not read")


def evaluate_reasons(mask: int, gpu: Gpu, node: Node) -> None:
    """The verdict on what slows a GPU down, according to the driver."""
    reasons = [reason for reason in clocks_event_reasons(mask) if reason.verdict != "none"]
    lasting = [reason.words for reason in reasons if reason.verdict == "fail" and goes_on(gpu, reason.counters, node)]
    others = [reason.words for reason in reasons if reason.words not in lasting]
    fail_if(lasting, f"slowed down continuously by {', '.join(lasting)}; expected no hardware slowdown")
    concern_if(others, f"slowed down by {', '.join(others)}; expected none")
    unknown = unknown_clocks_event_reasons(mask)
    seen = f"{unknown:#x}, which the catalogue does not know; expected reasons that it knows"
    concern_if(unknown, f"clocks event reasons {seen}")


def goes_on(gpu: Gpu, counters: tuple[int, ...], node: Node) -> bool:
    """Whether one of the driver's time counters advanced between two samples."""
    share = gpu.slowed_share(counters)
    return share is not None and share >= node.threshold("slowdown.share")


def evaluate_among_busy(gpu: Gpu, node: Node, reason: str) -> None:
    """A concern if a busy GPU has a clock far below that of other busy GPUs of its model."""
    least = node.threshold("gpu.busy_percent")
    model, busy = reading_of(gpu, "name"), reading_of(gpu, "utilization_percent", 0)
    of_each = (readings(other, "name", "utilization_percent", "clock_mhz")[0] for other in node.gpus)
    clocks_mhz = [
        reading["clock_mhz"]
        for reading in of_each
        if "clock_mhz" in reading
        and reading.get("utilization_percent", 0) >= least
        and (model is None or reading.get("name", model) == model)
    ]
    if busy < least or len(clocks_mhz) < MIN_TO_COMPARE:
        return
    median_mhz, clock_mhz = median(clocks_mhz), gpu.clock_mhz
    expected = f"expected about {median_mhz:.0f} MHz, like the other busy GPUs"
    is_slow = clock_mhz < median_mhz * node.threshold("gpu.slow_clock_share")
    concern_if(is_slow, f"a clock of {clock_mhz} MHz while {busy} % busy, and {reason}; {expected}")


@evidence("nvidia-smi --query-gpu=index,temperature.gpu,temperature.gpu.tlimit --format=csv")
def test_temperature(gpu: Gpu, node: Node) -> None:
    """GPU temperature.

    Evaluates the margin to the temperature at which the GPU slows itself down, which differs by model. The absolute
    temperature is used only if the driver reports no margin. An idle GPU that is far hotter than the other idle GPUs is
    poorly cooled.

    Remedy (investigate): Check fans, airflow and neighbouring nodes. If one GPU is hot and the others are cool, replace
    the node.
    """
    with part:
        evaluate_margin(gpu, node)
    evaluate_among_idle(gpu, node)


def evaluate_margin(gpu: Gpu, node: Node) -> None:
    """The verdict on how far a GPU is from slowing itself down."""
    limit_c = node.threshold("temperature.without_margin_fail_c")
    try:
        margin_c = gpu.temperature_margin_c
    except NotApplicable:
        assert gpu.temperature_c < limit_c, f"{gpu.temperature_c:.0f} °C; expected less than {limit_c:.0f} °C"
        return
    except Incomplete:  # as of nvidia-smi's table, which has no margin
        seen_c = reading_of(gpu, "temperature_c", 0)
        with part:
            unless = "unless this model is allowed to run hotter"
            concern_if(seen_c >= limit_c, f"{seen_c:.0f} °C; expected less than {limit_c:.0f} °C, {unless}")
        raise
    assert margin_c > 0, f"{-margin_c:.0f} °C above its slowdown temperature; expected below"
    least_c = node.threshold("temperature.margin_concern_c")
    margin, least = format_pair(margin_c, least_c)
    concern_if(margin_c < least_c, f"{margin} °C below its slowdown temperature; expected at least {least} °C")


def evaluate_among_idle(gpu: Gpu, node: Node) -> None:
    """A concern if the GPU is unused, and far hotter than other unused GPUs of its model."""
    reported = {other.index: readings(other, "temperature_c", "name")[0] for other in node.idle_gpus}
    model = reading_of(gpu, "name")
    celsius = {
        index: reading["temperature_c"]
        for index, reading in reported.items()
        if "temperature_c" in reading and (model is None or reading.get("name", model) == model)
    }
    if gpu.index not in celsius or len(celsius) < MIN_TO_COMPARE:
        return
    median_c = median(celsius.values())
    is_hot = celsius[gpu.index] > median_c + node.threshold("temperature.idle_spread_c")
    expected = f"expected about {median_c:.0f} °C, like the other idle GPUs"
    concern_if(is_hot, f"{celsius[gpu.index]:.0f} °C and idle; {expected}")
