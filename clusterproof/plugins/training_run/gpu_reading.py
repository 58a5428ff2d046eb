"""What a tool printed of one GPU at one time, and the samples that it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.samples import CLOCK, GPU, MAX_VALUE, MEMORY, POWER, TENSOR, Sample
from clusterproof.plugins.training_run.unpacked import RunFile
from clusterproof.plugins.training_run.values import MAX_NAME

UTIL, TENSORS, CLOCKS = "util", "tensor", "clock"
USED, FREE, TOTAL = "used", "free", "total"
DRAW, LIMIT = "draw", "limit"


@record
class GpuReading:
    """One GPU at one time, in seconds: of UTIL and TENSORS percent, of CLOCKS MHz; of the others any one unit."""

    node: str
    device: str  # `gpu0`
    time_s: float
    values: Mapping[str, float]

    def samples(self, where: str) -> Iterator[Sample]:
        """Its samples. Raises RunError."""
        values = self.values
        of_all = values.get(TOTAL) or (values[USED] + values[FREE] if {USED, FREE} <= values.keys() else 0.0)
        for metric, percent in (
            (GPU, values.get(UTIL)),
            (TENSOR, values.get(TENSORS)),
            (CLOCK, values.get(CLOCKS)),
            (MEMORY, 100 * values[USED] / of_all if of_all and USED in values else None),
            (POWER, 100 * values[DRAW] / values[LIMIT] if values.get(LIMIT) and DRAW in values else None),
        ):
            if percent is None:
                continue
            if not 0 <= percent <= MAX_VALUE[metric]:
                raise RunError(
                    f"{where}: {metric} of {self.device} is {percent:g}; expected 0 to {MAX_VALUE[metric]:g}"
                )
            yield Sample(self.node, metric, self.device, self.time_s, percent)


def node_of(path: RunFile) -> str:
    """The node that a file's name says: `gpu001.csv`, `gpu001.dmon.txt`."""
    return (path.name.partition(".")[0] or path.name)[:MAX_NAME]
