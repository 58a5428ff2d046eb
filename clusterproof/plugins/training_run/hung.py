"""Whether a run hangs: all of its GPUs spin in a kernel that computes nothing, and nothing passes between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.samples import (
    GPU,
    IDLE_PERCENT,
    LINK,
    NETWORK,
    POWER,
    TENSOR,
    Samples,
    Series,
    longest,
)

SPINNING_PERCENT = 98.0  # what the driver calls utilisation, of a kernel that waits
COMPUTES_PERCENT = 1.0  # of the tensor cores' cycles: below it nothing is computed

Every = Mapping[tuple[str, str], Series]


@record
class Spin:
    """For how long at most all GPUs of a run only waited, which they are, and when it began (s since 1970)."""

    seconds: float
    gpus: tuple[str, ...]
    began: float


@record
class Bounds:
    """Below what a GPU draws too little power to compute (percent of its limit), and what is no traffic (MB/s)."""

    power_percent: float
    traffic: float


class Look:
    """All samples that show hanging, by metric."""

    def __init__(self, samples: Samples) -> None:
        self.bin_s = samples.bin_s
        self.use = samples.of(GPU)
        self.tensor, self.power = samples.of(TENSOR), samples.of(POWER)
        self.link, self.network = samples.of(LINK), samples.of(NETWORK)

    @property
    def lacks(self) -> str:
        """What is missing to decide, in words; empty where nothing is."""
        nodes = {node for node, _ in self.use}
        if not (self.use.keys() <= self.tensor.keys() or self.use.keys() <= self.power.keys()):
            return "how much the GPUs compute (GPM), or draw of their power limit"
        on_wires = len(nodes) > 1 and nodes <= {node for node, _ in self.network}
        if not (self.use.keys() <= self.link.keys() or on_wires):
            return "what passes over NVLink (GPM), or between several nodes"
        return ""

    def spin(self, bounds: Bounds) -> Spin | None:
        """The longest time in which all GPUs in use only waited; None where there was none."""
        times = sorted({at for series in self.use.values() for at in series})
        found = longest(((at, self._all_wait(at, bounds)) for at in times), self.bin_s)
        if not found:
            return None
        seconds = (found[-1] - found[0] + 1) * self.bin_s
        return Spin(seconds, tuple(" ".join(key) for key in self._used(found[-1])), found[0] * self.bin_s)

    def _all_wait(self, at: int, bounds: Bounds) -> bool:
        used = list(self._used(at))
        return len(used) > 1 and all(self._waits(key, at, bounds) for key in used)

    def _used(self, at: int) -> Iterator[tuple[str, str]]:
        return (key for key, series in sorted(self.use.items()) if at in series and series[at].mean >= IDLE_PERCENT)

    def _waits(self, key: tuple[str, str], at: int, bounds: Bounds) -> bool:
        if self.use[key][at].mean < SPINNING_PERCENT:
            return False
        tensor, power = _at(self.tensor, key, at), _at(self.power, key, at)
        is_idle = (tensor or 0) < COMPUTES_PERCENT and (power or 0) < bounds.power_percent  # as far as each is known
        traffic = [_at(self.link, key, at), _at(self.network, (key[0], ""), at)]
        return (
            is_idle and (tensor, power) != (None, None) and all(one is None or one < bounds.traffic for one in traffic)
        )


def _at(every: Every, key: tuple[str, str], at: int) -> float | None:
    stretch = every.get(key, {}).get(at)
    return stretch.mean if stretch else None
