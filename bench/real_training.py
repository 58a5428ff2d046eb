"""A small PyTorch training run: ranks average gradients over gloo, and one of them has a fault.

Runs in a Python that has PyTorch, which is imported once: each line of input is a run,
`{"folder": "/tmp/1", "ranks": 4, "steps": 120, "fault": "slow", "rank": 2, "severity": 0.5}`, and the answer is its
ranks' exit codes. A rank logs its steps as docs/training-runs.md describes, and traces a few of them; rank 0 prints its
loss as torchtitan does. Ranks of a run that hangs are separate programs with the environment that torchrun gives them;
one that stops taking steps dumps its Flight Recorder, if PyTorch has one for gloo, as NCCL's watchdog does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

WIDTH = 256
HEAP = 300_000  # objects that a garbage collection scans
TRACED = {"wait": 12, "warmup": 2, "active": 8}  # steps
FOR_EVER_S = 1e6
PATIENCE_S = 10.0  # without a step before a rank dumps
LOADER_SHARE = 0.15  # of a step, times the severity: a slow loader's delay
PERIOD_US, MIN_QUOTA_US = 100_000, 1_000  # of the kernel's CPU bandwidth control, as containers use it
THROTTLED_TO = 0.5  # of the CPU that the rank used before, on a machine however busy


class Batches(torch.utils.data.Dataset):  # type: ignore[misc]
    """Batches of this many samples, each taking `slow_s` seconds to read."""

    def __init__(self, count: int, size: int, stuck_at: int) -> None:
        self.count, self.size, self.slow_s, self.stuck_at = count, size, 0.0, stuck_at

    def __len__(self) -> int:
        """How many batches there are."""
        return self.count

    def __getitem__(self, at: int) -> Any:
        """A batch."""
        if at >= self.count:
            raise IndexError
        if self.slow_s or at == self.stuck_at:
            time.sleep(FOR_EVER_S if at == self.stuck_at else self.slow_s)
        return torch.full((self.size, WIDTH), (at % 17) / 17)


class Rank:
    """One rank and its fault."""

    def __init__(self, number: int, plan: dict[str, Any]) -> None:
        self.number, self.plan, self.folder = number, plan, Path(plan["folder"])
        self.fault = plan["fault"] if number == plan["rank"] else ""
        self.stages: dict[str, float] = {}
        self.beat = 0.0
        self.hangs_at = plan["steps"] // 3
        self.heap = [{"next": [number]} for number in range(HEAP)] if self.fault == "gc pauses" else []

    def train(self) -> None:
        """Run all steps."""
        torch.set_num_threads(1)
        store = torch.distributed.FileStore(f"{self.folder}.store", self.plan["ranks"])
        torch.distributed.init_process_group("gloo", store=store, rank=self.number, world_size=self.plan["ranks"])
        torch.manual_seed(0)
        layers = [part for _ in range(3) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps, size = self.plan["steps"], self.plan["batch"] * (6 if self.fault == "uneven batch" else 1)
        batches_of_run = Batches(steps, size, self.hangs_at if self.fault == "stuck loader" else -1)
        batches = iter(torch.utils.data.DataLoader(batches_of_run, batch_size=None))
        torch.distributed.barrier()
        self.beat = time.monotonic() + PATIENCE_S  # the first step takes longer
        if self.plan["dumps"]:
            threading.Thread(target=self.watch, daemon=True).start()
        with self.traced() as profiler, (self.folder / f"steps.{self.number}.jsonl").open("a", buffering=1) as log:
            began_s, used_s = time.monotonic(), time.process_time()
            for step in range(steps):
                if self.fault == "throttled cgroup" and step == TRACED["wait"]:
                    cpu_share = (time.process_time() - used_s) / (time.monotonic() - began_s)
                    throttle(Path(self.plan["cgroup"]), THROTTLED_TO * cpu_share)
                with self.timed("step"):
                    with self.timed("data"):
                        batch = next(batches)
                    with self.timed("forward"):
                        began = time.thread_time()
                        loss = model(batch).square().mean()
                        self.hold_up(step, time.thread_time() - began)
                    loss.backward()
                    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
                    optimizer.step()
                    optimizer.zero_grad()
                profiler.step()
                self.beat = time.monotonic()
                lasted = self.stages.pop("step")
                if self.fault == "slow loader" and step < TRACED["wait"]:
                    batches_of_run.slow_s = self.plan["severity"] * LOADER_SHARE * (lasted - self.stages["data"])
                line = {"rank": self.number, "step": step, "dur": lasted, "stages": self.stages}
                log.write(json.dumps(line) + "\n")
                if self.number == 0:
                    self.say(step, loss.item(), norm.item())

    def hold_up(self, step: int, computed_s: float) -> None:
        """Compute longer, if the fault says so."""
        more = {
            "slow": self.plan["severity"],
            "growing": self.plan["severity"] * 2 * step / self.plan["steps"],
        }.get(self.fault, 0.0)
        until, matrix = time.thread_time() + more * computed_s, torch.ones(WIDTH, WIDTH)
        while time.thread_time() < until:
            matrix @ matrix
        if self.fault == "gc pauses" and step % 7 == 5:
            gc.collect()
        if step == self.hangs_at:
            self.hang()

    def hang(self) -> None:
        """Never return, if the fault says so."""
        if self.fault == "stuck in forward":
            time.sleep(FOR_EVER_S)
        elif self.fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.fault == "deadlock":
            lock = threading.Lock()
            with lock, lock:
                pass
        while self.fault == "endless loop":
            pass

    def watch(self) -> None:
        """Dump the Flight Recorder once no step was taken for a while."""
        while time.monotonic() < self.beat + PATIENCE_S:
            time.sleep(0.2)
        recorded = torch._C._distributed_c10d._dump_fr_trace_json()
        (self.folder / f"trace_rank_{self.number}").write_bytes(recorded)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a block."""
        began = time.time()
        yield
        self.stages[name] = time.time() - began

    def traced(self) -> Any:
        """The profiler, which writes a file after its last step."""
        return torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(repeat=1, **TRACED),
            on_trace_ready=lambda trace: trace.export_chrome_trace(str(self.folder / f"rank{self.number}.json")),
        )

    def say(self, step: int, loss: float, norm: float) -> None:
        """Log a line in torchtitan's format."""
        now = time.time()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now % 1 * 1000):03}"
        with (self.folder / "train.log").open("a", encoding="utf-8") as log:
            log.write(f"[titan] {when} - root - INFO - step: {step:2}  loss: {loss:8.4f}  grad_norm: {norm:7.4f}\n")


def throttle(group: Path, cpus: float) -> None:
    """Join a control group limited to this share of a CPU."""
    quota = max(MIN_QUOTA_US, int(PERIOD_US * cpus))
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}", encoding="ascii")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def run(plan: dict[str, Any]) -> list[int]:
    """Fork the ranks and wait for them; returns their exit codes."""
    if plan["hangs"]:
        return hang(plan)
    children = []
    for number in range(plan["ranks"]):
        child = os.fork()
        if not child:
            code = 1
            try:
                Rank(number, plan).train()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def hang(plan: dict[str, Any]) -> list[int]:
    """Start the ranks, and kill them once none has taken a step for as long as the plan allows."""
    job = {"WORLD_SIZE": str(plan["ranks"]), "MASTER_ADDR": "localhost", "MASTER_PORT": Path(plan["folder"]).name}
    command_line = [sys.executable, __file__, json.dumps(plan)]
    children = [
        subprocess.Popen(command_line, env={**os.environ, **job, "RANK": str(at)}) for at in range(plan["ranks"])
    ]
    logs = [Path(plan["folder"]) / f"steps.{number}.jsonl" for number in range(plan["ranks"])]
    ended = False
    while not ended:
        time.sleep(1.0)
        stepped = [log.stat().st_mtime for log in logs if log.exists()]
        hangs = len(stepped) == len(logs) and time.time() - max(stepped) > plan["hangs_s"]
        ended = hangs or any(child.poll() is not None for child in children)
    for child in children:
        child.kill()
    return [child.wait() for child in children]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Rank(int(os.environ["RANK"]), json.loads(sys.argv[1])).train()
        sys.exit()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # gloo writes to standard output
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
