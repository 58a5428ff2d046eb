"""The sinks of a watch of one node with two GPUs, and what Prometheus scrapes from them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from clusterproof.plugins.training_run.sample_columns import GPU_COLUMNS, SampledGpu
from clusterproof.plugins.watch.metrics import Metrics
from clusterproof.plugins.watch.sinks import Sinks
from clusterproof.plugins.watch.updates import Hello, Tick, Update
from tests.watch.days import NODE, Day

GPUS = (SampledGpu("GPU-1", 81_559.0, 700.0), SampledGpu("GPU-2", 81_559.0, 700.0))
OF_GPU = (96.0, 48.0, 32.0, 9_600.0, 100.0, 70_000.0, 1_700.0, 576.0, 60.0, 50.0, 10.0, 0.0, 3.0, 7.0)
VALUES = dict(zip(GPU_COLUMNS, OF_GPU, strict=True))


def tick(up: float, *, late: float = 0.0, gpus: tuple[SampledGpu, ...] | None = GPUS, **values: float | None) -> Tick:
    """Two equal GPUs; `late`: seconds since their driver last answered."""
    row = tuple({**VALUES, **values}[column] for column in GPU_COLUMNS)
    return Tick(1.7e9 + up, up, () if late else (row, row), (1.0,) * 15, gpus, {}, {"gpu": (late, "")} if late else {})


class OfDay:
    """Sinks, updated by a test."""

    def __init__(self) -> None:
        self.day = Day()
        self.own: list[str] = []
        self.sinks = Sinks("prod", self.day.watch, self.own.append)
        self.snapshot = self.sinks.measured()
        self.at = 0.0

    def take(self, *every: Update) -> OfDay:
        """The node sends these, ten seconds apart."""
        for update in every:
            self.at += 10.0
            self.sinks.update(NODE, update, 1.7e9 + self.at, self.snapshot().now)
        return self

    def hello(self) -> OfDay:
        """The sampler starts."""
        return self.take(Hello("boot-1", 1.7e9, 1.0))

    @property
    def text(self) -> str:
        """The answer to Prometheus."""
        self.sinks.states_changed([NODE])
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Metrics(self.snapshot))
        return generate_latest(registry).decode()

    @property
    def read(self) -> Mapping[str, float]:
        """The same by name and labels, without those of cluster and node: `gpu_power_watts{gpu="0"}`."""
        return series(self.text)


def series(text: str) -> dict[str, float]:
    """The series as Prometheus' own parser reads them, by name and labels."""
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key not in ("cluster", "node")}
            written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
            name = sample.name.removeprefix("clusterproof_watch_")
            values[f"{name}{{{written}}}" if written else name] = sample.value
    return values
