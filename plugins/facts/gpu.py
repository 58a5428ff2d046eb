"""A GPU as NVML tells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import (
    UNSUPPORTED,
    Field,
    flag,
    number,
    objects,
    optional,
    read,
    table,
    text,
    texts,
    values,
    whole,
)
from clusterproof.plugins.verdict import Incomplete, NotApplicable

MAX_WORD = 20  # characters of a name that a node gives to a counter or a link


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a GPU; `cgroup` tells the Slurm job it belongs to."""

    told: Mapping[str, Any]

    pid = Field(whole)
    memory_mib = Field(optional(whole))
    name = Field(text)
    cgroup = Field(text)

    @property
    def is_of_a_job(self) -> bool:
        """Whether it runs inside a Slurm job's or a pod's control group."""
        return any(mark in self.cgroup for mark in ("/job_", "/kubepods"))


@dataclass(frozen=True, slots=True)
class Fabric:
    """A GPU's place in its NVLink fabric; numbers as in catalog/fabric.toml."""

    told: Mapping[str, Any]

    state = Field(whole)
    status = Field(whole)
    health_mask = Field(whole)
    health_summary = Field(optional(whole))
    clique = Field(whole)
    cluster_uuid = Field(text)


@dataclass(frozen=True, slots=True)
class NvlinkErrors:
    """One error counter of one NVLink; `count` is None where it could not be read."""

    kind: str
    link: str
    count: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Reading a value that the driver could not tell raises Incomplete or NotApplicable."""

    index: int
    record: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What people call it: `GPU 3`; by its address where a capture does not tell its number."""
        if "index" in self.record:
            return f"GPU {self.index}"
        address = self.record.get("pci")
        return f"GPU at {address[:20]}" if isinstance(address, str) else "a GPU that the capture does not describe"

    @property
    def told(self) -> Mapping[str, Any]:
        """The object as told. Raises Incomplete for a GPU that does not answer."""
        lost = error_word(self.record.get("lost"))
        if lost:
            raise Incomplete(f"does not answer ({lost})", cause=f"{self.label} does not answer")
        return self.record

    @property
    def lost(self) -> str:
        """NVML's word where the driver no longer reaches the GPU, else empty. Raises Incomplete where nobody asked."""
        if "lost" not in self.record:
            raise Incomplete("whether it answers was not told", cause="not told by the node")
        return error_word(self.record["lost"])

    uuid = Field(text)
    serial = Field(text)
    name = Field(text)
    vbios = Field(text)
    pci = Field(text)
    ecc_enabled = Field(flag)
    ecc_uncorrected_dram = Field(whole)
    ecc_uncorrected_sram = Field(whole)
    ecc_uncorrected_total = Field(whole)
    ecc_corrected_total = Field(whole)
    ecc_aggregate_uncorrected_sram = Field(whole)
    sram_threshold_exceeded = Field(flag)
    remap_pending = Field(flag)
    remap_failed = Field(flag)
    remap_banks = Field(values)
    retired_pages_pending = Field(flag)
    retired_pages_single_bit = Field(whole)
    retired_pages_double_bit = Field(whole)
    recovery_action = Field(whole)
    pcie_width = Field(whole)
    pcie_width_max = Field(whole)
    pcie_gen = Field(whole)
    pcie_gen_max = Field(whole)
    pcie_replays = Field(whole)
    temperature_c = Field(number)
    temperature_margin_c = Field(number)
    clocks_event_reasons = Field(whole)
    power_limit_w = Field(number)
    power_limit_default_w = Field(number)
    persistence_mode = Field(flag)
    compute_mode = Field(whole)
    mig_mode = Field(flag)
    memory_used_mib = Field(whole)
    memory_total_mib = Field(whole)
    utilization_percent = Field(whole)
    nvlinks = Field(values)

    @property
    def nvlink_states(self) -> tuple[bool | None, ...]:
        """Whether each NVLink is up, by number; None where that could not be told. Raises Incomplete, NotApplicable."""
        return tuple(state if isinstance(state, bool) else None for state in self.nvlinks)

    @property
    def nvlink_errors(self) -> tuple[NvlinkErrors, ...]:
        """The NVLink error counters that are not zero, or cannot be read. Raises Incomplete, NotApplicable."""
        kinds = read(self.told.get("nvlink_errors"), table, "nvlink_errors")
        supported = {kind: links for kind, links in kinds.items() if not _is_unsupported(links)}
        if not supported:
            raise Incomplete("no NVLink error counter was told", cause="not told by the node")
        return tuple(found for kind, links in supported.items() for found in _nvlink_errors(kind, links))

    @property
    def is_partitioned(self) -> bool:
        """Whether MIG is on; a GPU that cannot be partitioned is not. Raises Incomplete."""
        try:
            return self.mig_mode
        except NotApplicable:
            return False

    @property
    def fabric(self) -> Fabric:
        """Its NVLink fabric. Raises Incomplete, NotApplicable."""
        return Fabric(read(self.told.get("fabric"), table, "fabric"))

    @property
    def processes(self) -> tuple[GpuProcess, ...]:
        """The compute processes that hold it. Raises Incomplete, NotApplicable."""
        told = read(self.told.get("processes"), objects, "processes")
        return tuple(GpuProcess(entry) for entry in told)


@dataclass(frozen=True, slots=True)
class Nvml:
    """What NVML tells of itself and of its GPUs."""

    told: Mapping[str, Any]

    init_s = Field(number)
    driver = Field(text)
    count = Field(whole)

    @property
    def error(self) -> str:
        """NVML's word where the driver does not start, else empty. Raises Incomplete where nobody asked."""
        if "init" not in self.told:
            raise Incomplete("whether the driver starts was not told", cause="not told by the node")
        return error_word(self.told["init"])

    @property
    def hidden(self) -> tuple[str, ...]:
        """The device files of GPUs that the probe may not open, and NVML does not count. Raises Incomplete."""
        return texts(self.told.get("hidden") or [])

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU that it counts. Raises Incomplete."""
        told = read(self.told.get("gpus"), objects, "GPUs")
        return tuple(
            Gpu(read(entry.get("index", place), whole, "GPU index"), entry) for place, entry in enumerate(told)
        )


def error_word(told: object) -> str:
    """The word of an error object, empty where there is none."""
    if told is None:
        return ""
    return str(told.get("error", "UNKNOWN"))[:40] if isinstance(told, dict) else "UNKNOWN"


def _is_unsupported(links: object) -> bool:
    return isinstance(links, dict) and links.get("error") in UNSUPPORTED


def _nvlink_errors(kind: str, links: object) -> Iterable[NvlinkErrors]:
    """Those of one kind of counter, by link; one without a count where nothing of that kind could be read."""
    try:
        counts = table(links)
    except TypeError:
        return [NvlinkErrors(kind[:MAX_WORD], "", None)]
    return [
        NvlinkErrors(kind[:MAX_WORD], link[:MAX_WORD], count if type(count) is int else None)
        for link, count in counts.items()
    ]
