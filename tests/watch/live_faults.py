"""Faults of a watched node and the expected reports, in one table for each way in which the node shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.watch import Change
from tests.faults.efa_fabric import counting
from tests.testbed.node import Node
from tests.testbed.nvml.values import VALUES_PATH, answer_now
from tests.watch.watched_bed import Watched


@dataclass(frozen=True)
class OfGpu:
    """Reported by GPUs: a fake library gives these answers, and NVIDIA's mock has the fault injected and healed."""

    name: str
    gpu: int
    rule: str
    words: str
    answers: Mapping[str, object]
    mock: str = ""  # in nvml-mock-ctl's words; empty: it has no such fault
    healed: str = "reset"


@dataclass(frozen=True)
class OfLog:
    """Logged by the kernel. It ends when the node has rebooted."""

    name: str
    rule: str
    words: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class OfFile:
    """Shown by a file of the node that each visit reads; for links and Lustre the sampler also does."""

    rule: str
    words: str
    path: str
    content: str


@dataclass(frozen=True)
class OfNode:
    """Done and undone on the node by a shell, with a background process meanwhile; each visit sees it."""

    rule: str
    words: str
    begin: str = ""
    end: str = ""
    pending: str = ""


HEAT, BRAKE = "0x48", "0x80"
GPU_FAULTS = (  # each on a separate GPU
    OfGpu("a GPU is lost", 0, "gpu.gpu_answers", "GPU_IS_LOST", {"lost_after": 0}, "fail --mode lost"),
    OfGpu(
        "an ECC error is not corrected",
        1,
        "gpu.no_uncorrected_ecc",
        "uncorrected ECC errors:",
        {"ecc_uncorrected_dram": 14},
        "fail --mode ecc_uncorrectable",
    ),
    OfGpu(
        "the SRAM has more errors than it may have",
        2,
        "gpu.sram_threshold",
        "SRAM error threshold is exceeded",
        {"sram_threshold_exceeded": True},
        "sram-ecc 1 --threshold-exceeded",
        "sram-ecc 0",
    ),
    OfGpu(
        "rows wait to be remapped",
        3,
        "gpu.row_remap",
        "row remapping is pending",
        {"remap_pending": True},
        "set remapped_rows.pending=true",
        "set remapped_rows.pending=false",
    ),
    OfGpu(
        "heat slows a GPU down",
        4,
        "gpu.no_throttle",
        "slowed down continuously by hardware",
        {"clocks_event_reasons": HEAT, "field 252": "running"},
        "throttle hw_thermal_slowdown",
        "throttle none",
    ),
    OfGpu("an NVLink goes down", 5, "gpu.nvlink_active", "NVLink 5 inactive", {"nvlink 5": "inactive"}),
    OfGpu(
        "an NVLink has errors",
        6,
        "gpu.nvlink_errors",
        "NVLink 0",
        {"nvlink 0 errors 0": 12, "nvlink 0 errors 3": 1},
        "nvlink-error 5 --links 0",
        "nvlink-error 0",
    ),
    OfGpu(
        "the fabric is sick",
        7,
        "gpu.fabric_state",
        "fabric",
        {"fabric_state": 2},
        "fabric-health route_unhealthy",
        "fabric-health healthy",
    ),
)
MORE_GPU_FAULTS = (
    OfGpu(
        "the power brake holds a GPU down",
        0,
        "gpu.no_throttle",
        "power brake",
        {"clocks_event_reasons": BRAKE, "field 253": "running"},
        "throttle power_brake",
        "throttle none",
    ),
    OfGpu("remapping rows has failed", 1, "gpu.row_remap", "remap", {"remap_failed": True}),
    OfGpu("a GPU asks to be reset", 2, "gpu.recovery_action", "reset", {"recovery_action": 1}),
    OfGpu("the fabric has lost bandwidth", 3, "gpu.fabric_state", "fabric health", {"fabric_health_mask": 0x10}),
)
LOG_FAULTS = (
    OfLog(
        "an Xid",
        "gpu.no_xid",
        "Xid 79",
        ("NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",),
    ),
    OfLog(
        "memory runs out",
        "host.no_oom_kill",
        "python3",
        ("Out of memory: Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB",),
    ),
    OfLog(
        "memory of the host fails",
        "host.mce_edac",
        "EDAC MC0: 1 UE",
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x30aa905)",),
    ),
    OfLog(
        "a CPU takes no interrupt",
        "host.lockups",
        "hard lockup",
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3",),
    ),
    OfLog(
        "the kernel fails",
        "host.kernel_oops",
        "NULL pointer dereference",
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0000 [#1] PREEMPT SMP NOPTI"),
    ),
    OfLog(
        "Lustre evicts the node",
        "storage.file_system_errors",
        "evicted this client",
        ("LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress",),
    ),
    OfLog(
        "a CPU is too hot",
        "host.cpu_throttled",
        "above its temperature",
        ("mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 5)",),
    ),
)

PORT = "/sys/class/infiniband/rdmap79s0/ports/1"
FILE_FAULTS = (
    OfFile("network.efa_port_active", "rdmap79s0", f"{PORT}/state", "1: DOWN\n"),
    OfFile("storage.lustre_health", "NOT HEALTHY", "/sys/fs/lustre/health_check", "NOT HEALTHY\n"),
)
SCRATCH, SHM = "/opt/dlami/scratch", "/dev/shm"
NODE_FAULTS = (  # on a node whose root volume is half full
    OfNode(
        "storage.space",
        f"{SCRATCH} (tmpfs) has 100 % in use",
        f"head -c 4M /dev/zero >{SCRATCH}/checkpoint; "  # full at once, not gradually
        f"mount -o remount,size=$(df -k --output=used {SCRATCH} | tail -n 1 | tr -d ' ')k {SCRATCH}",
        f"rm {SCRATCH}/checkpoint; mount -o remount,size=1g {SCRATCH}",
    ),
    OfNode("host.root_volume", "% full", "head -c 45M /dev/zero >/var/log/filled", "rm /var/log/filled"),
    OfNode("host.dev_shm", "0.0625 GiB", f"mount -o remount,size=64m {SHM}", f"mount -o remount,size=1t {SHM}"),
    OfNode("host.shm_leftovers", "1 NCCL segment", f"head -c 1M /dev/zero >{SHM}/nccl-Ab12Cd", f"rm {SHM}/nccl-Ab12Cd"),
    OfNode(
        "host.memory_available",
        "available",
        "cp /proc/meminfo /run/before; sed 's/^MemAvailable.*/MemAvailable: 9000000 kB/' /run/before >/proc/meminfo",
        "cat /run/before >/proc/meminfo",
    ),
    OfNode("network.efa_counters", "rx_drops", pending=counting("rx_drops", 1000)),
)
VISITED_GPU_FAULTS = (
    OfGpu("a GPU is hot", 2, "gpu.temperature", "temperature", {"temperature_c": 93, "temperature_margin_c": -4}),
    OfGpu("persistence mode is off", 3, "gpu.persistence_mode", "persistence", {"persistence_mode": False}),
)


def answer(node: Node, healthy: str, *faults: OfGpu) -> None:
    """Have a node's fake library answer as in the file `healthy`, except for these faults."""
    parts = [healthy.rstrip()]
    for fault in faults:
        values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in fault.answers.items()}
        parts += [f"[gpu {fault.gpu}]", *(f"{key} = {value}" for key, value in values.items())]
    answer_now(node.root, "\n".join(parts) + "\n")


def answers(node: Node) -> str:
    """The file of a node's fake library's answers."""
    return Path(node.root / VALUES_PATH.lstrip("/")).read_text(encoding="utf-8")


@contextmanager
def broken(root: Path, faults: Sequence[OfFile]) -> Iterator[None]:
    """Give files of the node at `root` this content during the block."""
    paths = [(root / fault.path.lstrip("/"), fault.content) for fault in faults]
    before = [path.read_text(encoding="utf-8") for path, _ in paths]
    for path, content in paths:
        path.write_text(content, encoding="utf-8")
    yield
    for (path, _), content in zip(paths, before, strict=True):
        path.write_text(content, encoding="utf-8")


@contextmanager
def done_on(node: Node, faults: Sequence[OfNode]) -> Iterator[None]:
    """Have these faults during the block."""
    going = [node.start(["/bin/sh", "-c", fault.pending]) for fault in faults if fault.pending]
    for fault in faults:
        _shell(node, fault.begin)
    yield
    for fault in faults:
        _shell(node, fault.end)
    for process in going:
        node.kill(process)


def _shell(node: Node, script: str) -> None:
    done = node.run(["/bin/sh", "-ec", script])
    assert done.returncode == 0, (script, done.stderr)


def said_of(watch: Watched, node: str, fault: OfGpu) -> list[Change]:
    """The reports on that GPU by that rule."""
    return [change for change in watch.of(fault.rule, node) if change.key.device == f"GPU {fault.gpu}"]
