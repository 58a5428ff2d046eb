"""The table in docs/watch.md, which promises when faults are reported: a fault of each check in it, in a node's day."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import RuleResult
from clusterproof.plugins.watch.states import MAX_OPEN
from clusterproof.plugins.watch.updates import LogUpdate
from tests.builders.wheel import ROOT
from tests.watch.days import BRAKE, LOST, NODE, UP_S, Act, Day, again, evidence, slowed

WITHIN = {"with its line": 0, "within two ticks": 2, "within four ticks": 4, "at the third tick": 3}  # ticks
PORT = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand", "link_downed": 0, "symbol_errors": 0}  # fmt: skip
DEVICE = {"vendor": "15b3", "device": "1021", "driver": "mlx5_core", "firmware": "28.39.1002", "p2p": None, "gdr": None}
INFINIBAND = {"devices": [{"name": f"mlx5_{number}", **DEVICE, "ports": [dict(PORT)]} for number in range(8)]}


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    what: str
    checks: tuple[str, ...]
    named: str


def rows() -> list[Row]:
    """The rows of the table that promise a time."""
    text = (ROOT / "docs/watch.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    begin = cells.index(["what happens", "named by", "when"]) + 2
    end = next(number for number in range(begin, len(cells)) if cells[number][0] == "everything else")
    return [Row(what, tuple(checks.replace("`", "").split(", ")), named) for what, checks, named in cells[begin:end]]


def value_of(collector: str) -> dict[str, Any]:
    """A collector's value on a healthy node."""
    value: Any = evidence().collectors[collector].value
    return copy.deepcopy(value)


def logs(*lines: str) -> Act:
    """The kernel logs these lines."""
    return lambda day: [day.log(line) for line in lines]


def reports(collector: str, change: Callable[[dict[str, Any]], object], value: Mapping[str, Any] = {}) -> Act:
    """The sampler reports this for a collector, unlike before."""

    def act(day: Day) -> None:
        new: Any = {**value_of(collector), **copy.deepcopy(dict(value))}
        if value:
            day.visit(**{collector: new})
            new = copy.deepcopy(new)
        change(new)
        day.tick(**{collector: new})

    return act


def of_mount(path: str, **values: Any) -> Act:
    """A file system reports these."""
    return reports(
        "mounts", lambda data: next(mount for mount in data["mounts"] if mount["path"] == path).update(values)
    )


def of_fstab(path: str, **values: Any) -> Act:
    """It is no longer mounted."""

    def change(evidence: dict[str, Any]) -> None:
        evidence["mounts"] = [mount for mount in evidence["mounts"] if mount["path"] != path]
        next(mount for mount in evidence["fstab"] if mount["path"] == path).update(values)

    return reports("mounts", change)


def blocked(day: Day) -> None:
    """A process remains in a file system's function."""
    wait = {"wait": "cl_sync_io_wait", "stack": [], "blocked_s": 75.0, "age_s": 900.0}
    process = {"pid": 4242, "name": "python3", "uid": 1000, **wait}
    day.tick(processes={**value_of("processes"), "blocked": [process], "blocked_alike": 0, "blocked_left_out": 0})


def braked(day: Day) -> None:
    """The power brake slows a GPU, tick by tick."""
    day.tick({3: {"clocks_event_reasons": BRAKE, "slowdown": slowed(day.now, 1.0)}})


def first_port(rdma: dict[str, Any]) -> Any:
    """The first port of the first RDMA device."""
    return rdma["devices"][0]["ports"][0]


SCRATCH = "/opt/dlami/scratch"


def crowded(day: Day) -> None:
    """It has more findings than are reported for a node."""
    results = {(f"GPU 0, Xid {code}", "gpu.no_xid"): RuleResult(Verdict.FAIL, "") for code in range(MAX_OPEN + 1)}
    day.said += day.watch.states.events(NODE, frozenset(), results, day.now)
    day.tick()


FAULTS: Mapping[str, Act] = {  # by check
    "gpu.no_xid": logs("NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', GPU has fallen off the bus."),
    "host.no_oom_kill": logs("Out of memory: Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB"),
    "host.mce_edac": logs("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)"),
    "host.kernel_oops": logs(
        "BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0000 [#1] PREEMPT SMP NOPTI"
    ),
    "host.lockups": logs("INFO: task python3:4242 blocked for more than 120 seconds."),
    "host.cpu_throttled": logs(
        "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 5)"
    ),
    "storage.file_system_errors": logs(
        "LustreError: 167-0: fsx-OST0001-osc-ffff8a01b2c3d400: This client was evicted by fsx-OST0001; in progress"
    ),
    "storage.disk_errors": logs("EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: reading directory lblock 0"),
    "network.interfaces_up": reports("interfaces", lambda interfaces: interfaces["physical"][0].update(carrier=False)),
    "network.mtu": reports("interfaces", lambda interfaces: interfaces["physical"][0].update(mtu=1500)),
    "network.efa_port_active": reports("rdma", lambda rdma: first_port(rdma).update(state="1: DOWN")),
    "network.efa_count": reports("rdma", lambda rdma: rdma["devices"].pop()),
    "network.ib_ports": reports("rdma", lambda rdma: first_port(rdma).update(state="1: DOWN"), INFINIBAND),
    "storage.mounts_writable": of_mount(SCRATCH, options="ro,relatime,size=1048576k"),
    "storage.mounts_alive": of_mount("/fsx", alive="hung", free_kib=None, total_kib=None),
    "storage.mounts_expected": of_fstab("/fsx", mounted=False),
    "storage.lustre_health": reports("lustre", lambda lustre: lustre.update(health="NOT HEALTHY")),
    "storage.lustre_clients": reports("lustre", lambda lustre: lustre["clients"][0].update(state="DISCONN")),
    "storage.space": of_mount(SCRATCH, free_kib=0),
    "host.root_volume": of_mount("/", free_kib=0),
    "host.d_state": blocked,
    "gpu.gpu_answers": again(lost=LOST),
    "gpu.no_uncorrected_ecc": again(ecc_uncorrected_dram=14, ecc_uncorrected_total=14),
    "gpu.sram_threshold": again(sram_threshold_exceeded=True),
    "gpu.row_remap": again(remap_failed=True),
    "gpu.recovery_action": again(recovery_action=1),
    "gpu.nvlink_active": again(nvlinks=[False] + [True] * 17),
    "gpu.nvlink_errors": again(nvlink_errors={"replay": {"0": 12}}),
    "gpu.fabric_state": again(fabric={"state": 2}),
    "gpu.no_throttle": braked,
    "watch.source": lambda day: day.tick(late=10.0),
    "watch.silent": lambda day: day.silence(10),
    "watch.clock": lambda day: (setattr(day, "stepped_s", 60.0), day.tick()),
    "watch.log": lambda day: day.said.extend(day.watch.update(NODE, LogUpdate(UP_S, (), 1_200), day.now)),
    "watch.reboot": lambda day: day.hello("boot-2"),
    "watch.findings": crowded,
}
