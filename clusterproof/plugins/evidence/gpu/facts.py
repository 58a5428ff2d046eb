"""A GPU according to NVML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import GPUS, limited
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    object_as,
    objects,
    objects_as,
    optional,
    read,
    reading_of,
    require_read,
    table,
    text,
    texts,
    value_of,
    values,
)
from clusterproof.plugins.evidence.gpu.facts_parts import GpuProcess, NvlinkErrors, nvlink_errors
from clusterproof.plugins.evidence.pci.facts import Paths

BASEBOARD = Pattern(r"SXM|HBM3$|NVIDIA (?:H20|H200|H800|G?B[23]00)$")  # names of GPUs whose board wires all NVLinks
LOST = ("GPU_IS_LOST", "RESET_REQUIRED")  # in any value: whatever else it reported, the GPU does not work
NO_PERMISSION = "NO_PERMISSION"  # says nothing of the GPU, nor of the driver
HIDDEN = "may not be opened by the probe: it runs in a step or container that was not given all GPUs"
NOT_ALLOWED = "NVML may not be asked by the probe"
MAX_NESTING = 4  # levels: a counter at one of several moments


@record
class Fabric(Reported):
    """A GPU's place in its NVLink fabric; numbers as in catalog/fabric.toml."""

    state = Field(integer)
    status = Field(integer)
    health_mask = Field(integer)
    health_summary = Field(optional(integer))
    clique = Field(integer)
    cluster_uuid = Field(text)


@record
class ThrottleReading(Reported):
    """A throttling GPU at one moment: for how long so far, by the fields of NVML."""

    at_s = Field(number)
    counters_ns = Field(table)


@record
class Gpu:
    """One GPU. Reading a value that the driver could not report raises Incomplete or NotApplicable."""

    index: int
    record: Mapping[str, Any]
    known: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    fabric = Field(object_as(Fabric))

    @property
    def label(self) -> str:
        """Its name for people: `GPU 3`; by its address if a capture does not give its number, if it gives that."""
        if "index" in self.record:
            return f"GPU {self.index}"
        address = self.record.get("pci")
        if isinstance(address, str):
            return f"GPU at {address[:20]}"
        return "a GPU of unknown number" if self.record else "a GPU that the capture does not describe"

    @property
    def data(self) -> Mapping[str, Any]:
        """The object as reported. Raises Incomplete for a GPU that does not answer."""
        lost = self._lost_by_any_value
        if lost:
            raise Incomplete(f"does not answer ({lost})", cause=f"{self.label} does not answer")
        return self.record

    @property
    def lost(self) -> str:
        """NVML's error if the driver no longer reaches the GPU, found in any of its values, else empty.

        Raises Incomplete if that was not queried, or the probe may not ask it.
        """
        lost = self._lost_by_any_value
        if not lost and "lost" not in self.record:
            require_read(self.record, "whether it answers")
            raise Incomplete("whether it answers was not reported", cause="not reported by the node")
        return lost

    @property
    def _lost_by_any_value(self) -> str:
        if "lost" not in self.known:  # it is asked for with every value
            word = error_word(self.record.get("lost"))
            self.known["lost"] = word or _lost_word(self.record, MAX_NESTING)
        if self.known["lost"] == NO_PERMISSION:
            raise Incomplete(HIDDEN, cause=HIDDEN)
        return self.known["lost"]

    uuid = Field(text)
    serial = Field(text)
    name = Field(text)
    vbios = Field(text)
    inforom = Field(optional(text))  # the version of its image
    pci = Field(text)
    ecc_enabled = Field(boolean)
    ecc_pending = Field(boolean)  # whether it will be enabled after the next reset
    ecc_uncorrected_dram = Field(integer)
    ecc_uncorrected_sram = Field(integer)
    ecc_uncorrected_total = Field(integer)
    ecc_corrected_total = Field(integer)
    ecc_aggregate_uncorrected_sram = Field(integer)
    sram_threshold_exceeded = Field(boolean)
    remap_pending = Field(boolean)
    remap_failed = Field(boolean)
    remapped_uncorrectable = Field(integer)  # rows, in its life
    memory_unrepairable = Field(boolean)
    channel_repair_pending = Field(boolean)  # of its memory, and the next of its processors: at the next reset
    tpc_repair_pending = Field(boolean)
    remap_banks = Field(values)
    retired_pages_pending = Field(boolean)
    retired_pages_single_bit = Field(integer)
    retired_pages_double_bit = Field(integer)
    recovery_action = Field(integer)
    pcie_width = Field(integer)
    pcie_width_max = Field(integer)
    pcie_gen = Field(integer)
    pcie_gen_max = Field(integer)
    pcie_replays = Field(integer)
    temperature_c = Field(number)
    temperature_margin_c = Field(number)
    clocks_event_reasons = Field(integer)
    power_w = Field(number)  # drawn now
    power_limit_w = Field(number)
    power_limit_default_w = Field(number)
    clock_mhz = Field(integer)  # of graphics, now
    clock_max_mhz = Field(optional(integer))  # None in older recordings
    app_clock_mhz = Field(integer)
    app_clock_default_mhz = Field(integer)
    persistence_mode = Field(boolean)
    compute_mode = Field(integer)
    mig_mode = Field(boolean)
    mig_pending = Field(optional(boolean))  # after the next reset; None in older recordings
    memory_used_mib = Field(integer)
    memory_total_mib = Field(integer)
    utilization_percent = Field(integer)
    nvlinks = Field(values)
    nvlink_numbers = Field(optional(values))  # of these, where dcgmi shows them
    paths = Field(optional(object_as(Paths)))  # of nvidia-smi topo -m; None where it was not captured
    processes = Field(objects_as(GpuProcess))  # the compute processes that hold it
    processes_left_out = Field(optional(integer))  # of them; None in older recordings and in captures

    @property
    def nvlink_states(self) -> tuple[bool | None, ...]:
        """Whether each NVLink is up, by number; None where that is unknown. Raises Incomplete, NotApplicable."""
        return tuple(state if isinstance(state, bool) else None for state in self.nvlinks)

    @property
    def nvlinks_to(self) -> Mapping[str, int]:
        """How many NVLinks lead to each other GPU, by nvidia-smi topo -m; none where it was not captured.

        Raises Incomplete.
        """
        to = value_of(self.data, "nvlinks_to", optional(table)) or {}
        return {gpu: read(links, integer, "nvlinks_to") for gpu, links in to.items()}

    @property
    def nvlink_errors(self) -> tuple[NvlinkErrors, ...]:
        """The NVLink error counters that are not zero, or cannot be read. Raises Incomplete, NotApplicable."""
        return tuple(nvlink_errors(value_of(self.data, "nvlink_errors", table)))

    @property
    def is_partitioned(self) -> bool:
        """Whether MIG is known to be on."""
        return bool(reading_of(self, "mig_mode"))

    def slowed_share(self, counters: Iterable[int]) -> float | None:
        """The share of the time between two moments in which one of these counters ran; None without two."""
        try:
            first, last = (ThrottleReading(moment) for moment in value_of(self.data, "slowdown", objects))
            apart_ns = (last.at_s - first.at_s) * 1e9
            before, after = first.counters_ns, last.counters_ns
        except (Incomplete, NotApplicable, ValueError):
            return None
        both = [(before.get(str(field)), after.get(str(field))) for field in counters]
        ran_ns = [late - early for early, late in both if type(early) is int and type(late) is int]
        return max(ran_ns) / apart_ns if ran_ns and apart_ns > 0 else None


@record
class Nvml(Reported):
    """What NVML reports about itself and its GPUs."""

    init_s = Field(number)
    driver = Field(text)
    count = Field(integer)

    @property
    def error(self) -> str:
        """NVML's error if the driver does not start, else empty: one that counts or describes GPUs has started.

        Raises Incomplete if it was not queried, or the probe may not ask it.
        """
        if not self.data.keys() & {"init", "count", "gpus"}:
            raise Incomplete("whether the driver starts was not reported", cause="not reported by the node")
        word = error_word(self.data.get("init"))
        if word == NO_PERMISSION:
            raise Incomplete(f"{NOT_ALLOWED} ({word}); expected a user who may open /dev/nvidiactl", cause=NOT_ALLOWED)
        return word

    @property
    def daemon_users(self) -> frozenset[int]:
        """The users that run the node's own daemons: root, and those of Slurm's. Raises Incomplete."""
        users = value_of(self.data, "daemon_users", values, "the daemons' users")
        return frozenset(read(user, integer, "a daemon's user") for user in users)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The device files of GPUs that the probe may not open, and NVML does not count. Raises Incomplete."""
        return read(self.data.get("hidden") or [], texts, "hidden")

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU that it counts. Raises Incomplete."""
        entries = limited(read(self.data.get("gpus"), objects, GPUS), GPUS)
        return tuple(
            Gpu(read(entry.get("index", index), integer, "GPU index"), entry) for index, entry in enumerate(entries)
        )


def error_word(data: object) -> str:
    """The word of an error object, empty where there is none."""
    if data is None:
        return ""
    return str(data.get("error", "UNKNOWN"))[:40] if isinstance(data, dict) else "UNKNOWN"


def _lost_word(data: object, levels: int) -> str:
    """The first error of LOST that stands in place of a value, else empty."""
    if isinstance(data, dict) and data.get("error") in LOST:
        return str(data["error"])
    if not levels or not isinstance(data, (dict, list)):
        return ""
    for entry in data.values() if isinstance(data, dict) else data:
        if type(entry) in (dict, list) and (word := _lost_word(entry, levels - 1)):
            return word
    return ""
