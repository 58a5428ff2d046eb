"""Lines of a job's output, as a case reads them."""

from __future__ import annotations

from clusterproof.plugins.case import runs_of_log
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.output import Output, OutputSource

OOM = "torch.OutOfMemoryError: CUDA out of memory."


def read(text: str) -> Output:
    return runs_of_log.read(text.splitlines(), OutputSource("rank.log"), Clock(2026))
