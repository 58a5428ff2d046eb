"""What a GPU's own counters show for an interval (GPM, from Hopper on): how busy SMs, tensor cores and links were."""

from __future__ import annotations

import pynvml

from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

SM, TENSOR, PCIE_OUT, PCIE_IN, NVLINK_IN, NVLINK_OUT = METRICS = (2, 5, 20, 21, 60, 61)  # NVML_GPM_METRIC_…
MB_A_MIB = 1.048576  # NVML reports MiB a second
NONE: list[float | None] = [None, None, None, None]


class Gpm:
    """One GPU: the sample before is kept, so that values are means over all the time since."""

    def __init__(self, handle: object) -> None:
        support: Any = answer_to(pynvml.nvmlGpmQueryDeviceSupport, handle)
        mig = answer_to(pynvml.nvmlDeviceGetMigMode, handle)
        is_parted = isinstance(mig, (list, tuple)) and bool(mig[0])  # then each part has counters of its own
        self._handle = handle
        self._is_there = bool(getattr(support, "isSupportedDevice", False)) and not is_parted
        self._before: object = None

    def values(self) -> list[float | None]:
        """SMs and tensor cores in percent, NVLink and PCIe in MB/s both ways; None where it does not report one."""
        if not self._is_there:
            return NONE
        before, self._before = self._before, self._sample()
        if before is None:
            return NONE
        measured = self._metrics(before, self._before) if self._before is not None else {}
        answer_to(pynvml.nvmlGpmSampleFree, before)
        return [
            _percent(measured.get(SM)),
            _percent(measured.get(TENSOR)),
            _sum(measured.get(NVLINK_IN), measured.get(NVLINK_OUT)),
            _sum(measured.get(PCIE_IN), measured.get(PCIE_OUT)),
        ]

    def _metrics(self, before: object, now: object) -> dict[int, float]:
        """Those that it reports for the time between two samples, by number."""
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        asked.sample1, asked.sample2 = before, now
        for number, metric in enumerate(METRICS):
            asked.metrics[number].metricId = metric
        if isinstance(answer_to(pynvml.nvmlGpmMetricsGet, asked), dict):
            return {}
        return {one.metricId: one.value for one in asked.metrics[: len(METRICS)] if not one.nvmlReturn}

    def _sample(self) -> object:
        sample = answer_to(pynvml.nvmlGpmSampleAlloc)
        if isinstance(sample, dict):
            return None
        taken = answer_to(pynvml.nvmlGpmSampleGet, self._handle, sample)
        if isinstance(taken, dict):
            answer_to(pynvml.nvmlGpmSampleFree, sample)
            return None
        return sample


def _percent(value: float | None) -> float | None:
    return None if value is None or not 0 <= value <= 110 else round(min(100.0, value), 1)


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None and value >= 0]
    return round(MB_A_MIB * sum(known)) if known else None
