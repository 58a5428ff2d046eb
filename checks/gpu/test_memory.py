"""GPU memory: errors that corrupt a run, or will; and who still holds it."""

from __future__ import annotations

from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, fail, not_applicable
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.gpu.of_node import is_busy
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.gpu, mark.preflight, mark.prolog]


@mark.ami
@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi -q -d ECC")
def test_no_uncorrected_ecc(gpu: Gpu, node: Node) -> None:
    """Uncorrected GPU memory errors.

    Errors since the driver loaded that ECC could not correct mean corrupted data.

    Remedy (reset or reboot): Drain the node and reset the GPU. If errors return, replace the node.
    """
    counts, unread = readings(gpu, "ecc_uncorrected_dram", "ecc_uncorrected_sram")
    seen = " and ".join(f"{count} in {name[-4:].upper()}" for name, count in counts.items() if count)
    assert not seen, f"uncorrected ECC errors: {seen}; expected 0"
    in_all = readings(gpu, "ecc_uncorrected_total")[0].get("ecc_uncorrected_total", 0)
    assert not (unread and in_all), f"uncorrected ECC errors: {in_all} in all; expected 0"
    if unread and ecc_is_off(gpu) and node.of_type("ecc"):
        concern(f"ECC is disabled; expected enabled on {node.instance_type}")
    require(unread)


def ecc_is_off(gpu: Gpu) -> bool:
    """Whether ECC could be enabled and is not."""
    data, _ = readings(gpu, "ecc_enabled")
    return data.get("ecc_enabled") is False


@mark.hyperpod_node_debugger("G.1.a")
@evidence("nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure --format=csv")
def test_row_remap(gpu: Gpu, node: Node) -> None:
    """Row remapping.

    A failed remapping means that the memory has no spare rows left to repair itself with. A pending one takes effect at
    the next reset of the GPU; until then the bad row stays in use. GPUs before Ampere retire pages instead.

    Remedy (replace): Pending: reset the GPU or reboot the node before the next long job. Failed: replace the node.
    """
    try:
        pending, failed = gpu.remap_pending, gpu.remap_failed
    except NotApplicable:
        evaluate_without_remapping(gpu, node)
        return
    except Incomplete:
        with suppress(NotApplicable):  # it has rows to remap instead
            evaluate_retired_pages(gpu, node)
        raise
    assert not failed, "row remapping failed; expected no failure"
    if pending and node.occasion == "prolog":  # another job may hold the GPU: it cannot be reset now
        concern("row remapping is pending; expected none")
    if pending:
        fail("row remapping is pending; expected none", action="reset or reboot")
    evaluate_spare_rows(gpu)


def evaluate_without_remapping(gpu: Gpu, node: Node) -> None:
    """The verdict on a GPU that does not report remapped rows: partitioned ones only report spare rows."""
    if not gpu.is_partitioned:
        evaluate_retired_pages(gpu, node)
        return
    evaluate_spare_rows(gpu)
    not_applicable("the driver does not report row remapping while MIG is on")


def evaluate_spare_rows(gpu: Gpu) -> None:
    """A concern where spare rows run short."""
    few = few_spare_rows(gpu)
    if few:
        concern(f"{few} memory banks have few or no spare rows left; expected 0")


def evaluate_retired_pages(gpu: Gpu, node: Node) -> None:
    """The verdict on a GPU that retires pages; what is pending is in use until its next reset."""
    if gpu.retired_pages_pending:
        fail("page retirement is pending; expected none", action="reset or reboot")
    counts, unread = readings(gpu, "retired_pages_single_bit", "retired_pages_double_bit")
    pages, most = sum(counts.values()), node.threshold("retired_pages.concern")
    if pages > most:
        concern(f"{pages} retired pages; expected at most {most:.0f}")
    require([why for why in unread if isinstance(why, Incomplete)])


def few_spare_rows(gpu: Gpu) -> int:
    """Banks with low or no availability of spare rows; 0 where the driver does not report it."""
    try:
        banks = gpu.remap_banks
    except NotApplicable:
        return 0
    return sum(count for count in banks[3:5] if isinstance(count, int))


@mark.epilog
@mark.hyperpod_node_debugger("I")
@evidence("nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv")
def test_no_leftover_processes(gpu: Gpu, node: Node) -> None:
    """Processes on idle GPUs.

    A process that belongs to no job, or memory that no process owns, takes memory and time from the next job. Before
    and after a job this fails; at any other time it is a concern, since somebody may be working.

    Remedy (clean up): Find the process's owner and end it if its work is done. Memory that no process owns is freed by
    resetting the GPU.
    """
    strays = [process for process in gpu.processes if not (process.is_of_a_job or process.serves_jobs(node.nvml))]
    named = ", ".join(f"{process.name or 'a process'} (pid {process.pid})" for process in strays)
    if node.occasion in ("prolog", "epilog"):
        assert not strays, f"held by {named}, of no job; expected no process"
    busy = named or ", ".join(f"{process.name} (pid {process.pid})" for process in gpu.processes)
    if busy:
        concern(f"held by {busy}; expected no process")
    limit_mib = node.threshold("gpu.idle_memory_mib")
    if gpu.memory_used_mib > limit_mib:
        concern(f"{gpu.memory_used_mib} MiB in use and no process owns it; expected less than {limit_mib:.0f} MiB")
    data, _ = readings(gpu, "utilization_percent")
    if data and is_busy(gpu, node) and node.idle_gpus:
        busy_percent = data["utilization_percent"]
        concern(f"busy to {busy_percent} % and no process owns it; expected idle, as other GPUs of the node are")
