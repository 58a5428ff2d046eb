"""The watch's metrics for Prometheus: base units, monotonic counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.sample_columns import SampledGpu
from clusterproof.plugins.watch import Key, RuleResult
from clusterproof.plugins.watch.node_metrics import COLUMNS, SUMMED, NodeMetrics
from clusterproof.plugins.watch.own_health import IN_WORDS

Labels = TypeVar("Labels", bound=tuple[str, ...])  # label values, in the order of the label names

PREFIX = "clusterproof_watch"
BAD = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN)
NONE = "none"


@record
class Snapshot:
    """The state of a watch at one moment."""

    cluster: str
    version: str
    began_s: float  # since 1970
    now: float  # by time.monotonic()
    every_s: float
    fresh_s: float  # older data of a node is not current
    nodes: Mapping[str, NodeMetrics]
    open: Mapping[Key, RuleResult]
    evaluated: frozenset[str] = frozenset()  # nodes that have reported enough
    incomplete: Mapping[str, int] = field(default_factory=dict)  # number of checks that could not be evaluated, by node
    said: Mapping[tuple[str, Verdict], int] = field(default_factory=dict)  # changes by kind and verdict
    notified: Mapping[str, int] = field(default_factory=dict)  # notifications by outcome
    failing: Mapping[str, bool] = field(default_factory=dict)  # parts of the watch, and whether each is failing


@record
class _Series:
    """The Prometheus metric of a column of GPU samples."""

    name: str
    help_text: str
    column: str
    scale: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict)


_GAUGES = (
    _Series("utilization_ratio", "Share of the time in which some kernel ran.", "util", 0.01),
    _Series("sm_active_ratio", "Share of the SMs that had work.", "sm", 0.01),
    _Series("tensor_active_ratio", "Share of the tensor cores' cycles.", "tensor", 0.01),
    _Series("memory_used_bytes", "Memory in use.", "mem", 1024.0**2),
    _Series("sm_clock_hertz", "Clock of the SMs.", "clock", 1e6),
    _Series("power_watts", "Power, as a mean since the sample before.", "power"),
    _Series("temperature_celsius", "Temperature of the GPU.", "temp"),
)
_HELD = "throttled_seconds"
_HELD_WORDS = "Time in which the clocks were held down by the power cap, or by the hardware."
_ECC, _ECC_WORDS = "ecc_errors", "ECC errors since the driver was loaded."
_COUNTERS = (
    _Series("nvlink_bytes", "Bytes over NVLink, both ways.", "nvlink"),
    _Series("pcie_bytes", "Bytes over PCIe, both ways.", "pcie"),
    _Series(_HELD, _HELD_WORDS, "capped", labels={"reason": "power_cap"}),
    _Series(_HELD, _HELD_WORDS, "slowed", labels={"reason": "hardware"}),
    _Series(_ECC, _ECC_WORDS, "ecc", labels={"error": "uncorrected"}),
    _Series(_ECC, _ECC_WORDS, "ecc_corrected", labels={"error": "corrected"}),
    _Series("nvlink_errors", "Errors of all its NVLinks since their counters began.", "link_errors"),
)
_SUMS = {column: index for index, column in enumerate(SUMMED)}


class Metrics(Collector):
    """The collector that prometheus_client calls at each scrape."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """All metric families with current values."""
        return families(self._look())


class WatchEnded(Collector):
    """Written at the end, so that readers of the file know that the watch has ended."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def collect(self) -> Iterable[Metric]:
        """The only metric family."""
        yield _up(self._cluster, is_running=False)


def families(snapshot: Snapshot) -> Iterable[Metric]:
    """All metric families that have values."""
    return (family for family in _every(snapshot) if family.samples)


def _every(snapshot: Snapshot) -> Iterator[Metric]:
    yield _up(snapshot.cluster, is_running=True)
    yield _info(snapshot)
    yield _gauge("start_time_seconds", "When the watch began, since 1970.", {(): snapshot.began_s}, snapshot)
    yield _gauge("interval_seconds", "Time between two samples of a node.", {(): snapshot.every_s}, snapshot)
    yield from _of_findings(snapshot)
    yield from _of_nodes(snapshot)
    yield from _of_gpus(snapshot)


def _of_findings(snapshot: Snapshot) -> Iterator[Metric]:
    open_now = Counter((key.node, key.rule, result.verdict.value) for key, result in snapshot.open.items())
    help_text = "Findings that are open now: devices of a node, by check and verdict."
    yield _gauge("findings", help_text, open_now, snapshot, ("node", "check", "verdict"))
    found = [(key.node, state.verdict) for key, state in snapshot.open.items()]
    found += [(node, Verdict.INCOMPLETE) for node in snapshot.nodes if node not in snapshot.evaluated]
    worst = {node: verdict.value for node, verdict in sorted(found, key=lambda entry: -entry[1].rank)}
    nodes = Counter({**dict.fromkeys(snapshot.nodes, NONE), **worst}.values())
    count = {(finding,): nodes[finding] for finding in (*(verdict.value for verdict in BAD), NONE)}
    help_text = "Nodes by the worst finding that is open; a node that was never evaluated is incomplete."
    yield _gauge("nodes", help_text, count, snapshot, ("finding",))
    counts = {(kind, verdict.value): number for (kind, verdict), number in snapshot.said.items()}
    yield _counter("changes", "Changes that were said.", counts, snapshot, ("kind", "verdict"))
    notified = {(outcome,): number for outcome, number in snapshot.notified.items()}
    yield _counter("notifications", "Notifications by what became of them.", notified, snapshot, ("outcome",))
    failing = {(part,): float(is_failing) for part, is_failing in snapshot.failing.items()}
    yield _gauge(
        "trouble", "1 while a part of the watch itself fails, and the watch goes on.", failing, snapshot, ("part",)
    )


def _of_nodes(snapshot: Snapshot) -> Iterator[Metric]:
    node = ("node",)
    last = {(name,): metrics.seen_s for name, metrics in snapshot.nodes.items() if metrics.seen_s}
    yield _gauge(
        "node_last_seen_timestamp_seconds", "When a node last sent anything, since 1970.", last, snapshot, node
    )
    samples = {(name,): metrics.samples for name, metrics in snapshot.nodes.items()}
    yield _counter("node_samples", "Samples that a node has sent.", samples, snapshot, node)
    connections = {(name,): metrics.connections for name, metrics in snapshot.nodes.items()}
    yield _counter("node_connections", "Times that the sampler has begun on a node.", connections, snapshot, node)
    incomplete = {(name,): count for name, count in snapshot.incomplete.items()}
    help_text = "Checks that could not be evaluated at the last full check."
    yield _gauge("node_unjudged_checks", help_text, incomplete, snapshot, node)
    late = {
        (name, source): s
        for name, metrics in snapshot.nodes.items()
        for source, (s, _) in metrics.late.items()
        if s and source in IN_WORDS
    }
    help_text = "For how long a source of samples has not answered."
    yield _gauge("source_late_seconds", help_text, late, snapshot, ("node", "source"))


def _of_gpus(snapshot: Snapshot) -> Iterator[Metric]:
    """Only nodes that currently report: old values would look current."""
    present = [
        (name, metrics)
        for name, metrics in snapshot.nodes.items()
        if metrics.seen_s and snapshot.now - metrics.at < snapshot.fresh_s
    ]
    total = {(name, str(at)): gpu.memory_mib * 1024.0**2 for name, at, gpu in _fixed(present) if gpu.memory_mib}
    yield _gauge("gpu_memory_bytes", "All of its memory.", total, snapshot, ("node", "gpu"))
    limits = {(name, str(at)): gpu.power_limit_w for name, at, gpu in _fixed(present) if gpu.power_limit_w}
    yield _gauge("gpu_power_limit_watts", "Its power limit.", limits, snapshot, ("node", "gpu"))
    for series in _GAUGES:
        values = _values(present, series)
        yield _gauge(f"gpu_{series.name}", series.help_text, values, snapshot, ("node", "gpu"))
    of_name: dict[str, list[_Series]] = {}
    for series in _COUNTERS:
        of_name.setdefault(series.name, []).append(series)
    for name, every in of_name.items():
        labels = ("node", "gpu", *every[0].labels)
        counts = {key: value for series in every for key, value in _values(present, series).items()}
        yield _counter(f"gpu_{name}", every[0].help_text, counts, snapshot, labels)


def _fixed(present: Iterable[tuple[str, NodeMetrics]]) -> Iterator[tuple[str, int, SampledGpu]]:
    for name, latest in present:
        for at, gpu in enumerate(latest.gpus[: len(latest.gpu)]):
            yield name, at, gpu


def _values(present: Iterable[tuple[str, NodeMetrics]], series: _Series) -> dict[tuple[str, ...], float]:
    more = tuple(series.labels.values())
    is_sum = series.column in _SUMS
    column = (_SUMS if is_sum else COLUMNS)[series.column]
    return {
        (name, str(at), *more): value * series.scale
        for name, metrics in present
        for at, values in enumerate(metrics.sums[: len(metrics.gpu)] if is_sum else metrics.gpu)
        if (value := values[column]) is not None
    }


def _up(cluster: str, *, is_running: bool) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_up", "1 while the watch runs; 0 is what it leaves.", labels=("cluster",))
    family.add_metric((cluster,), float(is_running))
    return family


def _info(snapshot: Snapshot) -> Metric:
    family = InfoMetricFamily(PREFIX, "Which clusterproof watches.", labels=("cluster",))
    family.add_metric((snapshot.cluster,), {"version": snapshot.version})
    return family


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    help_text: str,
    values: Mapping[Labels, float],
    snapshot: Snapshot,
    labels: tuple[str, ...] = (),
) -> Metric:
    family = kind(f"{PREFIX}_{name}", help_text, labels=("cluster", *labels))
    for key, value in values.items():
        family.add_metric((snapshot.cluster, *key), value)
    return family


_gauge, _counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)
