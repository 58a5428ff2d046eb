"""GPU memory: ECC errors, row remapping, and processes that still hold it."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, listed
from clusterproof.plugins.core.verdict import (
    NotApplicable,
    concern,
    concern_if,
    fail,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import Unreadable, boolean, known, read, reading_of, readings, require
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.gpu.facts_node import is_busy
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.gpu, mark.preflight]


@mark.prolog
@mark.ami
@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi -q -d ECC")
def test_no_uncorrected_ecc(gpu: Gpu, node: Node) -> None:
    """Uncorrected GPU memory errors.

    ECC could not correct these errors, counted since the driver loaded: data was corrupted.

    Remedy (reset or reboot): Drain the node and reset the GPU. If errors return, replace the node.
    """
    for name in ("dram", "sram"):
        with part:
            count = getattr(gpu, f"ecc_uncorrected_{name}")
            fail_if(count, f"uncorrected ECC errors: {count} in {name.upper()}; expected 0")
    counts, _ = readings(gpu, "ecc_uncorrected_dram", "ecc_uncorrected_sram")
    in_all = reading_of(gpu, "ecc_uncorrected_total", 0)
    if in_all and not any(counts.values()):
        elsewhere = ", and none in DRAM or SRAM" if len(counts) == 2 else ""
        fail(f"uncorrected ECC errors: {in_all} in all{elsewhere}; expected 0")
    if not counts and ecc_is_off(gpu) and node.of_type("ecc"):
        concern(f"ECC is disabled; expected enabled on {node.instance_type}")


def ecc_is_off(gpu: Gpu) -> bool:
    """Whether ECC could be enabled but is not."""
    return reading_of(gpu, "ecc_enabled") is False


@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi; echo $?  # 14, and a warning with the address of each")
def test_inforom(node: Node) -> None:
    """InfoROM of each GPU.

    The InfoROM stores the GPU's remapped memory rows and ECC counts. If it is corrupted, they are lost, and NVIDIA's
    driver container refuses the node.

    Remedy (investigate): Reset the GPU and run the check again. If the InfoROM is still corrupted, have the GPU
    replaced: only the vendor can repair it.
    """
    try:
        intact = node.inforoms
    except Absent:
        intact = {}  # there is no driver: whether a GPU is there is known without it
    named = gpus_by_address(node)
    for address, state in intact.items():
        with part:
            label = f"GPU {named[address].index}" if address in named else f"the GPU at {address:.20}"
            is_intact = read(state, boolean, f"{label}: the InfoROM's state")
            concern_if(not is_intact, f"{label}: the InfoROM is corrupted; expected valid checksums")
    unread = [gpu.label for gpu in node.gpus if gpu.pci not in intact]
    if unread:
        incomplete(f"{', '.join(unread)}: NVML did not report whether the InfoROM is intact")
    if not any(isinstance(state, bool) for state in intact.values()):
        not_applicable("NVML cannot verify the InfoROM of these GPUs")


@mark.prolog
@mark.hyperpod_node_debugger("G.1.a")
@evidence(
    "nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT; nvidia-smi -q -d ECC | grep -E 'Repair Pending|Unrepairable Memory'"
)
def test_row_remap(gpu: Gpu, node: Node) -> None:
    """Row remapping.

    A failed remapping means that the memory bank has no spare row left. A pending one takes effect at the next GPU
    reset; until then the bad row stays in use. A GPU that has remapped hundreds of rows for uncorrectable errors is
    worn out. Recent drivers also report memory that cannot be repaired, and channel or TPC repairs that wait for a
    reset. GPUs before Ampere retire pages instead.

    Remedy (replace): Pending: reset the GPU or reboot the node before the next long job. Failed: replace the node.
    """
    with part:
        evaluate_repair(gpu, node)
    rows, unread = readings(gpu, "remap_failed", "remap_pending")
    fail_if(rows.get("remap_failed"), "row remapping failed; expected no failure")
    message, is_free = "row remapping is pending; expected none", node.occasion != "prolog"
    fail_if(rows.get("remap_pending") and is_free, message, action="reset or reboot")
    concern_if(rows.get("remap_pending") and not is_free, message)  # a job may hold the GPU: it cannot be reset now
    read_banks, unread_banks = readings(gpu, "remap_banks")
    banks = read_banks.get("remap_banks", [])
    few = sum(count for count in banks[3:5] if isinstance(count, int))
    concern_if(few, f"{few} memory banks have few or no spare rows left; expected 0")
    lost, many = reading_of(gpu, "remapped_uncorrectable", 0), node.threshold("remapped_rows.uncorrectable_concern")
    concern_if(lost >= many, f"{lost} rows remapped for errors; expected less than {many:.0f}")
    pages, unread_pages = readings(gpu, "retired_pages_pending", "retired_pages_single_bit", "retired_pages_double_bit")
    is_pending = pages.get("retired_pages_pending")
    fail_if(is_pending, "page retirement is pending; expected none", action="reset or reboot")
    count, most = sum(pages.values()) - bool(is_pending), node.threshold("retired_pages.concern")
    concern_if(count > most, f"{count} retired pages; expected at most {most:.0f}")
    if not rows and all(isinstance(why, NotApplicable) for why in unread):
        if gpu.is_partitioned:
            not_applicable("the driver does not report row remapping while MIG is on")
        unread = unread_pages
    elif not rows and pages:
        unread += unread_pages
    unread += [why for why in unread_banks if isinstance(why, Unreadable)]  # captures and older recordings have none
    for why in unread:
        with part:
            raise why
    if "retired_pages_pending" not in pages:
        require(unread)


REPAIRS = {"channel_repair_pending": "repair of a memory channel", "tpc_repair_pending": "repair of a processor (TPC)"}


def evaluate_repair(gpu: Gpu, node: Node) -> None:
    """The verdict on other repairs that the driver reports; most drivers and GPUs report none."""
    state, _ = readings(gpu, "memory_unrepairable", *REPAIRS)
    fail_if(state.get("memory_unrepairable"), "its memory cannot be repaired; expected no unrepairable memory")
    pending, is_free = listed(repair for name, repair in REPAIRS.items() if state.get(name)), node.occasion != "prolog"
    message = f"{pending} is pending; expected none"
    fail_if(pending and is_free, message, action="reset or reboot")
    concern_if(pending and not is_free, message)


@mark.prolog
@mark.epilog
@mark.hyperpod_node_debugger("I")
@evidence(
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv; "
    "nvidia-smi --query-gpu=index,uuid,memory.used,utilization.gpu --format=csv"
)
def test_no_leftover_processes(gpu: Gpu, node: Node) -> None:
    """Processes on idle GPUs.

    A process outside any job, or memory that no process owns, takes memory and time from the next job. This fails
    before and after a job; at any other time it is a concern, since somebody may be working on the GPU.

    Remedy (clean up): Find the process's owner and end it if its work is done. Memory that no process owns is freed by
    resetting the GPU.
    """
    with part:
        evaluate_processes(gpu, node)
    left_out = known(lambda: gpu.processes_left_out, None)
    with part:
        if left_out:
            incomplete(f"held by {left_out} more processes that were not identified; expected none")
    reading, _ = readings(gpu, "processes", "utilization_percent")
    if reading.get("processes"):
        return
    owned = "no compute process owns it" if "processes" in reading else "no process is known to own it"
    with part:
        used_mib, limit_mib = gpu.memory_used_mib, node.threshold("gpu.idle_memory_mib")
        concern_if(used_mib > limit_mib, f"{used_mib} MiB in use and {owned}; expected less than {limit_mib:.0f} MiB")
    busy = reading.get("utilization_percent")
    if busy is not None and is_busy(gpu, node) and node.idle_gpus:
        concern(f"{busy} % busy and {owned}; expected idle, like the node's other GPUs")


def evaluate_processes(gpu: Gpu, node: Node) -> None:
    """The verdict on the processes on a GPU: a failure around a job, otherwise a concern."""
    strays = [process for process in gpu.processes if not (process.is_of_a_job or process.serves_jobs(node.nvml))]
    named = ", ".join(f"{process.name or 'a process'} (pid {process.pid})" for process in strays)
    if node.occasion in ("prolog", "epilog"):
        assert not strays, f"held by {named}, outside any job; expected no process"
    busy = named or ", ".join(f"{process.name} (pid {process.pid})" for process in gpu.processes)
    concern_if(busy, f"held by {busy}; expected no process")


DAY_S = 86_400


@mark.hyperpod_node_debugger("G")
@mark.ami
@evidence("nvidia-smi -q -d ECC | grep -i -A3 sram")
def test_sram_threshold(gpu: Gpu, node: Node) -> None:
    """SRAM error threshold.

    The driver raises a flag when a GPU's SRAM errors meet NVIDIA's criterion for replacement. A count above four
    without the flag comes close.

    Remedy (replace): If the flag is raised, replace the node. Otherwise keep watching the count.
    """
    with part:
        fail_if(gpu.sram_threshold_exceeded, "the SRAM error threshold is exceeded; expected it not to be")
    with part:
        errors, most = gpu.ecc_aggregate_uncorrected_sram, node.threshold("ecc.aggregate_sram")
        concern_if(
            errors > most, f"{errors} uncorrected SRAM errors over the GPU's lifetime; expected at most {most:.0f}"
        )


@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi --query-gpu=index,ecc.errors.corrected.volatile.total --format=csv")
def test_corrected_ecc_rate(gpu: Gpu, node: Node) -> None:
    """Corrected GPU memory error rate.

    A single corrected error is harmless. A rising rate precedes uncorrected errors, and thousands a second stall the
    driver while every tool reports the GPU as healthy. The rate is the mean since boot; in the first day the
    errors so far count as a day's.

    Remedy (replace): Above a thousand a second: drain the node and replace it. Above a thousand a day: watch it.
    """
    count, uptime_s = gpu.ecc_corrected_total, node.boot.uptime_s
    per_s, per_day = count / max(uptime_s, 1.0), count / max(uptime_s / DAY_S, 1.0)
    most_per_s, most_per_day = node.threshold("ecc.corrected_per_s"), node.threshold("ecc.corrected_per_day")
    seen, most = format_pair(per_s, most_per_s)
    assert per_s <= most_per_s, f"{seen} corrected ECC errors a second; expected at most {most}"
    seen, most = format_pair(per_day, most_per_day)
    concern_if(per_day > most_per_day, f"{seen} corrected ECC errors a day; expected at most {most}")
