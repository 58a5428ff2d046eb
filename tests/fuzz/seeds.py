"""A small file in each format that the suite reads from others, as its writer produces it."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zstandard

from clusterproof.plugins.accept.journal import FILE, EndedRun, JournalWriter, RepairedNodes
from clusterproof.plugins.agent import sending
from clusterproof.plugins.benchmarks.pairwise.journal import SCHEMA
from clusterproof.plugins.command_line.init import TEMPLATES, template
from clusterproof.plugins.core.result import Measured
from clusterproof.plugins.evidence.exchanges import Exchange
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.training_run.sample_columns import (
    GPU_COLUMNS,
    SUFFIX,
    Header,
    SampledGpu,
    SamplesFile,
    columns_for,
)
from clusterproof.reports.history import Gpu, NodeIdentity, PastRun
from clusterproof.reports.history.store import write_run
from tests.case.files import BROKEN_GPU, SCONTROL
from tests.reports.history.kept import FAIL, PASS, result
from tests.training_run.recorded import dump, ten_steps, trace

Seeds = Mapping[str, bytes]  # by file name
NONCE = "cp0123456789"
PLAN = "0" * 64  # its digest
ANSWER = {
    "probe": {"python": "3.11.2"},
    "collectors": {
        "boot": {"status": "read", "value": {"uptime_s": 86400.5, "hostname": "gpu001"}, "seconds": 0.01},
        "kernel_log": {"status": "read", "value": {"lines": [[1.5, "NVRM: Xid (PCI:0000:53:00): 79"]] * 9}},
    },
}
SAMPLER = (
    {"sampler": 1, "now": 1_763_600_000.0, "up": 10.0, "boot_id": "5f0c", "n": 0},
    {"now": 1_763_600_010.0, "up": 20.0, "n": 1, "gpu": [[97.0] * len(GPU_COLUMNS)], "late": {"host": [9.0, "busy"]}},
    {"up": 21.0, "log": [[7, 20.5, "NVRM: Xid (PCI:0000:53:00): 79", 0, 4]], "n": 2},
)
MEGATRON = (
    "time to initialize megatron (seconds): 71.935\n    model-and-optimizer-setup .....: (271.3, 272.4)\n"
    + "".join(
        f"1: iteration {step:8d}/  508626 | consumed samples: 288 | elapsed time per iteration (ms): {900 + step}.5 |\n"
        for step in range(1, 30)
    )
    + "0: saving checkpoint at iteration 1 to /fsx\n1:     save-checkpoint .....: (8161.2, 8161.8)\n"
)
BARS = "  Total optimization steps = 400\n" + "".join(
    f"\r {step // 4:2}%|#   | {step}/400 [{step // 20:02}:{3 * step % 60:02}<12:31,  3.00s/it]\r   "
    f"\r{{'loss': '2.{step}', 'grad_norm': '0.9', 'learning_rate': '1e-05', 'epoch': '{step / 200}'}}\n"
    for step in range(1, 60)
)
STATE = {
    "global_step": 60,
    "log_history": [{"epoch": 0.1, "grad_norm": float("nan"), "loss": 2.5, "step": step} for step in range(60)],
    "max_steps": 400,
}
SMI = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]\n"
DMON = "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk\n# Idx     W     C     %     %     %     %   MHz   MHz\n"
LABELS = {"gpu": "0", "UUID": "GPU-df2bfa0a", "Hostname": "gpu001"}
SERIES: list[dict[str, Any]] = [
    {
        "metric": {"__name__": f"DCGM_FI_DEV_{name}", **LABELS},
        "values": [[1_782_864_000 + 15 * n, "97"] for n in range(40)],
    }
    for name in ("GPU_UTIL", "FB_USED", "FB_FREE")
]
RANKS = [(rank, step) for step in range(1, 25) for rank in range(4)]


def _lines(*rows: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@cache
def of_frames() -> Seeds:
    """A node's answer, its packed content, and a sampler's stream."""
    packed = zlib.compress(json.dumps(ANSWER).encode())
    stream = "".join(f"{NONCE} {json.dumps(line)}\n" for line in SAMPLER)
    lines = [f"{NONCE}:begin.", *sending.lines(packed, NONCE)]
    return {"answer": "\n".join(lines).encode(), "packed": json.dumps(ANSWER).encode(), "stream": stream.encode()}


@cache
def of_runs() -> Seeds:
    """One for each reader of `--run`."""
    header = {"id": "0xabc", "n_ranks": 4, "rank": 0}
    metric = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 91.0, "NodeId": "algo-1"}
    answer = {"status": "success", "data": {"resultType": "matrix", "result": SERIES}}
    entries = pickle.dumps(dump(3, {"0": (51, 50)}))
    samples = _samples()
    return {
        "table.csv": b"step,rank,optype,duration\n" + "".join(f"{s},{r},forward,1.{r}\n" for r, s in RANKS).encode(),
        "steps.jsonl": _lines(*({"rank": r, "step": s, "dur": 1.3, "stages": {"forward": 0.4}} for r, s in RANKS)),
        "sagemaker.json": _lines(*({**metric, "Timestamp": 1_700_000_000.0 + n} for n in range(30))),
        "inspector.log": _lines(
            *(
                {
                    "header": {**header, "rank": r},
                    "metadata": {"hostname": f"gpu{r}"},
                    "coll_perf": {
                        "coll": "AllReduce",
                        "coll_sn": s,
                        "coll_exec_time_us": 30 + r,
                        "coll_timing_source": "kernel_gpu",
                    },
                }
                for r, s in RANKS
            )
        ),
        "gpu001.samples.jsonl.zst": samples,
        "samples.jsonl": zstandard.ZstdDecompressor().stream_reader(samples, read_across_frames=True).read(),
        "trace_rank_3.json": trace(ten_steps()).encode(),
        "trace_rank_4.json.gz": gzip.compress(trace(ten_steps()).encode(), mtime=0),
        "gpu002.csv": (
            SMI + "".join(f"2026/08/17 10:00:{n:02}.000, 0, 97 %, 4 MiB, 9 MiB, 5 W, 7 W\n" for n in range(40))
        ).encode(),
        "gpu003.dmon": (DMON + "    0   350    50    97    40     0     0  2619  1755\n" * 40).encode(),
        "prometheus.json": json.dumps(answer).encode(),
        "nccl_trace_rank_3": entries,
        "nccl_trace_rank_2.json": json.dumps(dump(2, {"0": (51, 50)})).encode(),
        "hostfile": b"gpu001 slots=8\ngpu002 slots=8  # spare\n",
        "pods.jsonl": _lines({"pod": "train-worker-0", "node": "gpu001"}, {"pod": "train-worker-1", "node": "gpu002"}),
        "train.log": MEGATRON.encode(),
        "trainer.log": BARS.encode(),
        "metrics.csv": b"epoch,grad_norm,step,train_loss\n" + "".join(f"0,0.9,{n},2.{n}\n" for n in range(40)).encode(),
        "trainer_log.jsonl": b"".join(
            b'{"current_steps": %d, "total_steps": 90, "loss": 2.5, "elapsed_time": "0:%02d:00"}\n' % (n, n)
            for n in range(1, 40)
        ),
        "trainer_state.json": json.dumps(STATE, indent=2).encode(),
    }


def _samples() -> bytes:
    """A watch's record of one node."""
    with TemporaryDirectory() as folder:
        file = SamplesFile(Path(folder, f"gpu001{SUFFIX}"))
        gpu, columns = SampledGpu("GPU-a", 81_559.0, 700.0), columns_for(1)
        file.begin(Header("gpu001", "5f0c8f6e", 1_763_600_000.0, 10.0, (gpu,), columns))
        for number in range(30):
            file.sample(10.0 * number, [float(place) for place, _ in enumerate(columns)])
        file.event(300.0, "kernel", "NVRM: Xid (PCI:0000:53:00): 79")
        file.gap(1_763_600_300.0, 1_763_600_360.0, "the connection broke")
        return file.path.read_bytes()


@cache
def of_captures() -> Seeds:
    """Captures that people collect by hand, in the formats that hold most."""
    return {
        "nvlink": b"GPU 0: NVIDIA H100 (UUID: GPU-a)\n\t Link 0: Replay Errors: 3\n\t Link 0: CRC Errors: 0\n",
        "edac": b"/sys/devices/system/edac/mc/mc0/ce_count:3\n/sys/devices/system/edac/mc/mc0/ue_count:0\n",
        "nvidia-smi": (
            b"==============NVSMI LOG==============\nDriver Version : 550.54\nAttached GPUs : 1\nGPU 00000000:53:00.0\n"
            b"    Product Name : NVIDIA H100\n    GPU UUID : GPU-a\n    ECC Errors\n        Volatile\n"
            b"            DRAM Uncorrectable : 5\n    Remapped Rows\n        Pending : Yes\n"
        ),
        "dmesg": b"".join(
            b"[%5d.000001] NVRM: Xid (PCI:0000:53:00): 79, pid=1, name=a, GPU has fallen off the bus.\n" % n
            for n in range(40)
        ),
        "query": b"index, uuid, pci.bus_id, ecc.errors.uncorrected.volatile.total\n0, GPU-a, 00000000:53:00.0, 14\n",
        "ps": b"    PID STAT ELAPSED WCHAN                            COMMAND\n      1 Ss      99 ep_poll   systemd\n",
        "lspci": b"0000:53:00.0 3D controller [0302]: NVIDIA Device [10de:2330] (rev a1)\n\tLnkSta: Speed 32GT/s\n",
        "mounts": b"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/root 100 50 50 50% /\n",
        "meminfo": b"MemTotal: 2113437632 kB\nMemFree: 2000000000 kB\nMemAvailable: 2000000000 kB\n",
        "lscpu": b"Architecture: x86_64\nCPU(s): 192\nOn-line CPU(s) list: 0-191\nNUMA node0 CPU(s): 0-95,192-287\n",
        "session": b"u@gpu001:~$ uname -a\nLinux gpu001 6.8.0 #1 SMP x86_64\nu@gpu001:~$ uptime\n up 3 days\n",
    }


@cache
def of_recordings() -> Seeds:
    """The files of a recording of one node, and a campaign of pairs."""
    cluster = json.loads((DEMO / "cluster.json").read_text("utf-8"))
    node = json.loads((DEMO / "nodes" / "gpu001.json").read_text("utf-8"))
    plan = {
        "schema": SCHEMA, "nodes": ["gpu001", "gpu002"], "places": {}, "min_effect": 0.1,
        "is_full": True, "asked": [], "seed": 1, "absent": {}, "about": {},
        "mesh": {"rail_share": 0.1, "switch_share": 0.1},
    }  # fmt: skip
    reading = {"pair": ["gpu001", "gpu002"], "round": 0, "at_once": 1, "reading": {"busbw_gb_per_s": 48.0}}
    exchange = asdict(Exchange(0, "mlx5_0 port 1", "mlx5_0 port 1"))
    return {
        "cluster.json": json.dumps({**cluster, "nodes": cluster["nodes"][:1]}).encode(),
        "nodes/gpu001.json": json.dumps(node).encode(),
        "control_plane.json": (DEMO / "control_plane.json").read_bytes(),
        "pairwise.jsonl": _lines(plan, reading, {**reading, "reading": {"exchanges": [exchange]}}),
    }


@cache
def of_policies() -> Seeds:
    """The complete policy and inventory that `clusterproof init` writes."""
    return {name: re.sub(r"(?m)^#= ?", "", template(name)).replace("~/.ssh/", "").encode() for name in TEMPLATES}


@cache
def of_histories() -> Seeds:
    """A history of some runs."""
    gpus = {"gpu001": NodeIdentity("i-1", "serial", (Gpu(0, "GPU-a", "1"),))}
    with TemporaryDirectory() as folder:
        path = Path(folder, "history.sqlite")
        for number in range(3):
            results = [result("gpu001", FAIL if number % 2 else PASS), result("gpu002", PASS)]
            began = 1_700_000_000.0 + number
            write_run(path, PastRun("small", began, began), results, gpus, [Measured("busbw", "gpu001", 480.0, "GB/s")])
        return {"history.sqlite": path.read_bytes()}


@cache
def of_cases() -> Seeds:
    """A job's files: output, Slurm and Kubernetes records, a kernel log, check results, a dump."""
    of_node = {"node": "gpu003", "check": "gpu.no_xid", "verdict": "fail", "message": "a", "action": "replace"}
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-03-01T08:00:00Z"}}
    pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "gpu003"}, "status": {}}
    pod["status"] = {"containerStatuses": [{"state": ended}]}
    return {
        **{name: text.encode() for name, text in BROKEN_GPU.items()},
        "scontrol.txt": SCONTROL.encode(),
        "pods.json": json.dumps({"kind": "List", "items": [pod]}).encode(),
        "results.jsonl": _lines(of_node, {**of_node, "node": "gpu001", "verdict": "pass"}),
        "nccl_trace_rank_2.json": json.dumps(dump(2, {"0": (51, 50)})).encode(),
    }


def of_nhc() -> Seeds:
    """An NHC file with a line of each kind."""
    rows: tuple[str, ...] = (
        "check_fs_mount_rw -f /fsx",
        "check_fs_used /tmp 90%",
        "check_fs_free /tmp 3%",
        "check_hw_swap 1G 2G",
    )
    rows += ("check_hw_ib 400 mlx5_0:1", "check_ps_service -u root -S sshd", "check_nvsmi_healthmon", "true 'a b'")
    rows += ("export MCELOG_MAX_CORRECTED_RATE=9", "check_hw_gpucount 8")
    return {"nhc.conf": "".join(f"* || {row}\n" for row in rows).encode()}


def of_acceptances() -> Seeds:
    """A plan that uses each of its tables, and a journal of a run and a repair."""
    plan = (
        'stages = ["inventory", "speed"]\n[bought]\nnodes = 2\ntype = "p5.48xlarge"\nexpect = { gpus = 8 }\n[errors]\n'
    )
    plan += "most_runs = 9\n[limits]\nhours = 2.5\nnodes_at_once = 1\n[floors]\n[options]\n"
    command = ("clusterproof", "check", "--cluster", "ssh:gpu[001-002]")
    run = EndedRun("speed", 0, ("gpu001", "gpu002"), command, 0, 5.0, 9.0, 4.0, "runs/0001-speed", "0" * 64)
    with TemporaryDirectory() as folder:
        writer = JournalWriter(Path(folder), "small", PLAN)
        writer.append(run)
        writer.append(RepairedNodes(("gpu001",), 10.0))
        writer.close()
        return {"plan.toml": plan.encode(), FILE: Path(folder, FILE).read_bytes()}


ALL: Mapping[str, Callable[[], Seeds]] = {
    "frames": of_frames,
    "evidence": lambda: {"node.json": of_recordings()["nodes/gpu001.json"]},
    "captures": of_captures,
    "runs": of_runs,
    "recordings": of_recordings,
    "policy": of_policies,
    "history": of_histories,
    "cases": of_cases,
    "nhc": of_nhc,
    "acceptances": of_acceptances,
}
