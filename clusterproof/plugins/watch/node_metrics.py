"""What metrics need of each node, from what it last reported; means are summed, as counters must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from operator import itemgetter

from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.training_run.sample_columns import GPU_COLUMNS, SampledGpu
from clusterproof.plugins.watch.updates import Hello, Tick, Update

# Columns that are means since the previous sample: multiplied by that time they are sums, in these units.
SUMMED: Mapping[str, float] = {
    "nvlink": 1e6,  # MB/s → bytes
    "pcie": 1e6,
    "capped": 0.01,  # % → seconds
    "slowed": 0.01,
}
COLUMNS = {column: index for index, column in enumerate(GPU_COLUMNS)}
_summable = itemgetter(*map(COLUMNS.__getitem__, SUMMED))
NOTHING = (None,) * len(SUMMED)

Values = tuple[float | None, ...]


@record
class NodeMetrics:
    """A node as of its last message; `seen_s` is in seconds since 1970 by the watching host's clock."""

    seen_s: float = 0.0
    at: float = 0.0  # the same, by time.monotonic()
    samples: int = 0
    connections: int = 0
    up: float | None = None  # seconds from boot to its last sample
    gpu: tuple[Values, ...] = ()  # of each GPU, in the order of GPU_COLUMNS
    gpus: tuple[SampledGpu, ...] = ()
    sums: tuple[Values, ...] = ()  # of each GPU, in the order of SUMMED; None for what was never reported
    late: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def after(self, update: Update, wall_s: float, at: float) -> NodeMetrics:
        """The state after a message from the node."""
        if isinstance(update, Hello):
            return replace(self, seen_s=wall_s, at=at, connections=self.connections + 1, up=None)
        if not isinstance(update, Tick):
            return replace(self, seen_s=wall_s, at=at)
        seconds = max(0.0, update.up - self.up) if self.up is not None else 0.0
        return replace(
            self,
            seen_s=wall_s,
            at=at,
            samples=self.samples + 1,
            up=update.up,
            gpu=update.gpu,
            gpus=self.gpus if update.gpus is None else update.gpus,
            sums=tuple(_summed(self.sums, update.gpu, seconds)) if update.gpu else self.sums,
            late=update.late,
        )


def _summed(sums: tuple[Values, ...], gpu: tuple[Values, ...], seconds: float) -> Iterable[Values]:
    factors = [seconds * scale for scale in SUMMED.values()]
    for values, before in zip(gpu, chain(sums, repeat(NOTHING)), strict=False):
        yield tuple(
            [
                old if value is None else (old or 0.0) + (value * factor if value > 0 else 0.0)
                for old, value, factor in zip(before, _summable(values), factors, strict=True)
            ]
        )
