"""What each node reported last, for whoever asks at any moment: current values, and sums that only grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.record import field, record, replace
from clusterproof.plugins.training_run.sample_columns import GPU_COLUMNS, SampledGpu
from clusterproof.plugins.watch.updates import Hello, Tick, Update

# Columns that are means over the time since the sample before: times that time they are sums, in these units.
SUMMED: Mapping[str, float] = {
    "nvlink": 1e6,  # MB/s → bytes
    "pcie": 1e6,
    "capped": 0.01,  # % → seconds
    "slowed": 0.01,
}
_INDEX = {column: place for place, column in enumerate(GPU_COLUMNS)}
NOTHING = (None,) * len(SUMMED)

Values = tuple[float | None, ...]


@record
class Latest:
    """A node, as of the last thing that it sent; `seen_s` is in seconds since 1970 by the watching host's clock."""

    seen_s: float = 0.0
    at: float = 0.0  # the same by time.monotonic()
    samples: int = 0
    connections: int = 0
    up: float | None = None  # of its last sample, in seconds since its boot
    gpu: tuple[Values, ...] = ()  # of each GPU, as GPU_COLUMNS have them
    gpus: tuple[SampledGpu, ...] = ()
    sums: tuple[Values, ...] = ()  # of each GPU, as SUMMED has them; None for what was never reported
    late: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def after(self, update: Update, wall_s: float, at: float) -> Latest:
        """What is known once the node has sent this."""
        seen = replace(self, seen_s=wall_s, at=at)
        if isinstance(update, Hello):
            return replace(seen, connections=self.connections + 1, up=None)
        if not isinstance(update, Tick):
            return seen
        seconds = max(0.0, update.up - self.up) if self.up is not None else 0.0
        return replace(
            seen,
            samples=self.samples + 1,
            up=update.up,
            gpu=update.gpu,
            gpus=self.gpus if update.gpus is None else update.gpus,
            sums=tuple(_summed(self.sums, update.gpu, seconds)) if update.gpu else self.sums,
            late=update.late,
        )


def _summed(sums: tuple[Values, ...], gpu: tuple[Values, ...], seconds: float) -> Iterable[Values]:
    for index, values in enumerate(gpu):
        before = sums[index] if index < len(sums) else NOTHING
        yield tuple(
            old if (value := values[_INDEX[column]]) is None else (old or 0.0) + max(0.0, value) * seconds * scale
            for old, (column, scale) in zip(before, SUMMED.items(), strict=True)
        )
