"""Samples GPUs while a job runs: counters, and means since the previous sample, through NVML."""

from __future__ import annotations

import ctypes
import signal
import time

import pynvml

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.evidence.gpu.collect_nvml import BY_HARDWARE, load, slowdown_at
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, fields
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import ASKED, answers_to

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

SM, TENSOR, PCIE_OUT, PCIE_IN, NVLINK_IN, NVLINK_OUT = METRICS = (2, 5, 20, 21, 60, 61)  # NVML_GPM_METRIC_…
MB_A_MIB = 1.048576  # NVML reports MiB a second
NONE: list[float | None] = [None, None, None, None]


class Gpm:
    """One GPU: keeps the previous sample, so that values are means over all the time in between."""

    def __init__(self, handle: object) -> None:
        support: Any = answer_to(pynvml.nvmlGpmQueryDeviceSupport, handle)
        mig = answer_to(pynvml.nvmlDeviceGetMigMode, handle)
        is_parted = isinstance(mig, (list, tuple)) and bool(mig[0])  # then each part has counters of its own
        self._handle = handle
        self._is_there = bool(getattr(support, "isSupportedDevice", False)) and not is_parted
        self._before: object = None

    def values(self) -> list[float | None]:
        """SMs and tensor cores in percent, NVLink and PCIe in MB/s in both directions; None if not reported."""
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
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        request.sample1, request.sample2 = before, now
        for number, metric in enumerate(METRICS):
            request.metrics[number].metricId = metric
        if isinstance(answer_to(pynvml.nvmlGpmMetricsGet, request), dict):
            return {}
        return {metric.metricId: metric.value for metric in request.metrics[: len(METRICS)] if not metric.nvmlReturn}

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


COLUMNS = (
    "util", "sm", "tensor", "nvlink", "pcie", "mem", "clock", "power", "temp", "capped", "slowed",
    "ecc", "ecc_corrected", "link_errors",
)  # fmt: skip
SM_CLOCK, UTILIZATION_SAMPLES, UNCORRECTED, CORRECTED, VOLATILE = 1, 1, 0, 1, 0
ENERGY, POWER_CAP = 83, 74  # fields: mJ since the driver was loaded, ns of the power cap
THERMAL_POLICY = 75  # ns; of drivers that do not report the hardware's slowdown by itself
SLOWDOWNS = (270, 271, 252, 253)  # ns of the hardware's slowdown, as drivers of CUDA 13 and of CUDA 12 number them
MEMORY = "memory_used_mib memory_total_mib"
# Facts that the collector `nvml` reports too, by the same keys: of some GPUs a tick, and of one with new errors.
FACTS = (
    "ecc_uncorrected_dram", "ecc_uncorrected_sram", "ecc_uncorrected_total", "ecc_aggregate_uncorrected_sram",
    "sram_threshold_exceeded", "remapped_correctable remapped_uncorrectable remap_pending remap_failed",
    "retired_pages_pending", "retired_pages_single_bit retired_pages_double_bit recovery_action",
    "nvlinks nvlink_errors", "fabric",
)  # fmt: skip
TURNS = 4  # ticks in which all GPUs are asked for them
REASONS = "clocks_event_reasons"
OF_WORK = 0x1 | 0x2 | 0x4 | 0x100  # idle, the power cap and settings: they come and go all day
ENDS_WITH_PARENT = 1  # PR_SET_PDEATHSIG: also while the driver holds it


class Sampler:
    """All GPUs of the node, one after the other: GPM crashes if several are queried concurrently."""

    def __init__(self, node: Node) -> None:
        """Start NVML. Raises Absent, Broke."""
        ctypes.CDLL(None).prctl(ENDS_WITH_PARENT, signal.SIGKILL)
        load(node)
        node.at("nvmlInit")
        failed = answer_to(pynvml.nvmlInit)
        if failed:
            raise Broke(f"nvmlInit: {failed}")
        count = answer_to(pynvml.nvmlDeviceGetCount)
        self.gpus = [_Gpu(index) for index in range(count if isinstance(count, int) else 0)]
        self._turn = 0

    def fixed(self) -> object:
        """Constant properties: UUID, total memory, and power limit of each GPU."""
        return [gpu.fixed() for gpu in self.gpus]

    def sample(self, node: Node) -> dict[str, object]:
        """The values of each GPU, and its changed facts."""
        turn, self._turn = self._turn, (self._turn + 1) % TURNS
        values = []
        facts: dict[str, object] = {}
        for gpu in self.gpus:
            node.at(f"GPU {gpu.index}")
            values.append(gpu.values())
            changed = gpu.changed(node, gpu.index % TURNS == turn)
            if changed:
                facts[str(gpu.index)] = changed
        return {"values": values, **({"facts": {"nvml": facts}} if facts else {})}


class _Gpu:
    def __init__(self, index: int) -> None:
        self.index = index
        self._sent: dict[str, object] = {}
        self._before: dict[str, tuple[float, float]] = {}  # counters: when, and what
        self._sampled_us = 0
        self._gpm: Gpm | None = None
        self._slowdown: dict[str, object] | None = None
        self._is_held = False
        self._link_errors: float | None = None
        self.handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, index)

    def fixed(self) -> dict[str, object]:
        memory = answer_to(ASKED[MEMORY], self.handle)
        limit = answer_to(ASKED["power_limit_w"], self.handle)
        uuid = answer_to(ASKED["uuid"], self.handle)
        return {
            "uuid": uuid if isinstance(uuid, str) else "",
            "memory_mib": memory[1] if isinstance(memory, tuple) else None,
            "power_limit_w": limit if isinstance(limit, (int, float)) else None,
        }

    def values(self) -> list[float | None]:
        """The values in COLUMNS; None if the GPU does not report one."""
        now = time.monotonic()
        if self._gpm is None:
            self._gpm = Gpm(self.handle)
        memory = answer_to(ASKED[MEMORY], self.handle)
        energy, capped, thermal, *slowed = self._fields()
        slow = [self._share(f"slowed {number}", now, value) for number, value in zip(SLOWDOWNS, slowed)]
        by_policy = self._share("thermal", now, thermal)
        known = [share for share in slow if share is not None] or ([] if by_policy is None else [by_policy])
        return [
            self._utilization(),
            *self._gpm.values(),
            memory[0] if isinstance(memory, tuple) else None,
            _number(answer_to(pynvml.nvmlDeviceGetClockInfo, self.handle, SM_CLOCK)),
            self._power(now, energy),
            _number(answer_to(ASKED["temperature_c"], self.handle)),
            self._share("capped", now, capped),
            max(known, default=None),
            self._counted(UNCORRECTED),
            self._counted(CORRECTED),
            self._link_errors,
        ]

    def changed(self, node: Node, is_its_turn: bool) -> dict[str, object]:
        """The facts that differ from those last sent; all of them if the GPU is lost, or has new errors."""
        if isinstance(self.handle, dict):
            self.handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, self.index)
        if isinstance(self.handle, dict):
            facts: dict[str, object] = {"lost": self.handle}
        else:
            facts = self._throttle(node)
            errors = answer_to(ASKED["ecc_uncorrected_total"], self.handle)
            if _is_lost(errors):
                facts["lost"] = errors
            elif self._sent.get("lost"):
                self._gpm = None  # it may be there now
                facts.update({"lost": None, **self._facts(node)})
            elif is_its_turn or errors != self._sent.get("ecc_uncorrected_total", errors):
                facts.update({"lost": None, **self._facts(node)})
        new = {key: value for key, value in facts.items() if key not in self._sent or self._sent[key] != value}
        self._sent.update(new)
        return new

    def _facts(self, node: Node) -> dict[str, object]:
        facts: dict[str, object] = {}
        for keys in FACTS:
            facts.update(answers_to(keys, self.handle, node, self.index))
        errors: Any = facts["nvlink_errors"]
        if isinstance(errors, dict) and "error" not in errors:
            counts = [count for links in errors.values() if isinstance(links, dict) for count in links.values()]
            self._link_errors = sum(count for count in counts if isinstance(count, int))
        return facts

    def _throttle(self, node: Node) -> dict[str, object]:
        """While it is held down: why, and of the hardware its counters at the sample before and now; then the end."""
        reasons = answer_to(ASKED[REASONS], self.handle)
        mask = reasons if isinstance(reasons, int) else 0
        was_held, self._is_held = self._is_held, bool(mask & ~OF_WORK)
        before, self._slowdown = self._slowdown, slowdown_at(node, self.index) if mask & BY_HARDWARE else None
        if not (was_held or self._is_held):
            return {}
        return {REASONS: reasons, "slowdown": [before or self._slowdown, self._slowdown] if self._slowdown else None}

    def _fields(self) -> tuple[Any, ...]:
        wanted = (ENERGY, POWER_CAP, THERMAL_POLICY, *SLOWDOWNS)
        answer = answer_to(fields, self.handle, wanted)
        return answer if isinstance(answer, tuple) else (None,) * len(wanted)

    def _utilization(self) -> float | None:
        """The mean of the driver's own samples since the last query; its latest value if it keeps none."""
        answer: Any = answer_to(pynvml.nvmlDeviceGetSamples, self.handle, UTILIZATION_SAMPLES, self._sampled_us)
        samples = answer[1] if isinstance(answer, tuple) else []
        values = [sample.sampleValue.uiVal for sample in samples if sample.timeStamp > self._sampled_us]
        if values:
            self._sampled_us = max(sample.timeStamp for sample in samples)
            return round(min(100, sum(map(int, values)) // len(values)))
        return _number(answer_to(ASKED["utilization_percent"], self.handle))

    def _power(self, now: float, energy_mj: Any) -> float | None:
        if isinstance(energy_mj, int):
            watts = self._rate("energy", now, energy_mj / 1000)
        else:
            watts = _number(answer_to(ASKED["power_w"], self.handle))
        return None if watts is None else round(watts)

    def _share(self, name: str, now: float, nanoseconds: Any) -> float | None:
        """Percent of the time in which a counter ran; what a driver has under another's number is no such counter."""
        share = self._rate(name, now, nanoseconds / 1e9) if isinstance(nanoseconds, int) else None
        return None if share is None or share > 1.5 else round(min(100.0, 100 * share))

    def _rate(self, name: str, now: float, value: float) -> float | None:
        """By how much a counter grows in a second; None the first time, and where it began anew."""
        before = self._before.get(name)
        self._before[name] = (now, value)
        if before is None or now <= before[0] or value < before[1]:
            return None
        return (value - before[1]) / (now - before[0])

    def _counted(self, kind: int) -> float | None:
        return _number(answer_to(pynvml.nvmlDeviceGetTotalEccErrors, self.handle, kind, VOLATILE))


def _number(answer: object) -> float | None:
    return answer if isinstance(answer, (int, float)) else None


def _is_lost(answer: object) -> bool:
    return isinstance(answer, dict) and answer.get("error") in ("GPU_IS_LOST", "RESET_REQUIRED")
