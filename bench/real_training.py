"""A small training run of real PyTorch: ranks that average gradients over gloo, with a fault in one of them.

Run by a Python that has PyTorch, which is imported once: each line of its input is a run,
`{"folder": "/tmp/1", "ranks": 4, "steps": 120, "fault": "slow", "rank": 2, "severity": 0.5}`, and is answered by the
exit codes of its ranks. A rank logs its steps as docs/training-runs.md has it, and traces a few of them; rank 0 prints
its loss as torchtitan does. A rank that takes no step any more dumps its Flight Recorder, as NCCL's watchdog does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

WIDTH, BATCH = 256, 128
HEAP = 300_000  # objects that a garbage collection looks at
TRACED = {"wait": 12, "warmup": 2, "active": 8}  # steps
FOR_EVER_S = 1e6
PATIENCE_S, TO_END_S = 10.0, 8.0  # without a step, until a rank dumps; then for all others to do so
PERIOD_US = 100_000  # of the kernel's bandwidth control, as containers have it


class Batches(torch.utils.data.Dataset):  # type: ignore[misc]
    """Batches of so many samples, each of which takes so many seconds to read."""

    def __init__(self, count: int, size: int, slow_s: float, stuck_at: int) -> None:
        self.count, self.size, self.slow_s, self.stuck_at = count, size, slow_s, stuck_at

    def __len__(self) -> int:
        """How many there are."""
        return self.count

    def __getitem__(self, at: int) -> Any:
        """A batch."""
        if at >= self.count:
            raise IndexError
        if self.slow_s or at == self.stuck_at:
            time.sleep(FOR_EVER_S if at == self.stuck_at else self.slow_s)
        return torch.full((self.size, WIDTH), (at % 17) / 17)


class Rank:
    """One rank: its program, with its fault."""

    def __init__(self, number: int, plan: dict[str, Any]) -> None:
        self.number, self.plan, self.folder = number, plan, Path(plan["folder"])
        self.fault = plan["fault"] if number == plan["rank"] else ""
        self.stages: dict[str, float] = {}
        self.beat = 0.0
        self.hangs_at = plan["steps"] // 3
        self.heap = [{"next": [number]} for number in range(HEAP)] if self.fault == "gc pauses" else []

    def train(self) -> None:
        """All its steps."""
        torch.set_num_threads(1)
        store = torch.distributed.FileStore(f"{self.folder}.store", self.plan["ranks"])
        torch.distributed.init_process_group("gloo", store=store, rank=self.number, world_size=self.plan["ranks"])
        torch.manual_seed(0)
        layers = [part for _ in range(3) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps, size = self.plan["steps"], BATCH * (6 if self.fault == "uneven batch" else 1)
        slow_s = self.plan["severity"] * 0.01 if self.fault == "slow loader" else 0.0
        stuck_at = self.hangs_at if self.fault == "stuck loader" else -1
        batches = iter(torch.utils.data.DataLoader(Batches(steps, size, slow_s, stuck_at), batch_size=None))
        if self.fault == "throttled cgroup":
            throttle(self.plan)
        torch.distributed.barrier()
        self.beat = time.monotonic() + PATIENCE_S  # the first step takes longer
        if self.plan["hangs"]:
            threading.Thread(target=self.watch, daemon=True).start()
        with self.traced() as profiler, (self.folder / f"steps.{self.number}.jsonl").open("a", buffering=1) as log:
            for step in range(steps):
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
                line = {"rank": self.number, "step": step, "dur": lasted, "stages": self.stages}
                log.write(json.dumps(line) + "\n")
                if self.number == 0:
                    self.say(step, loss.item(), norm.item())

    def hold_up(self, step: int, computed_s: float) -> None:
        """Compute longer, as the fault has it."""
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
        """Never come back, as the fault has it."""
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
        """Dump what the Flight Recorder has, once no step was taken for a while, and end."""
        while time.monotonic() < self.beat + PATIENCE_S:
            time.sleep(0.2)
        recorded = torch._C._distributed_c10d._dump_fr_trace_json()
        (self.folder / f"trace_rank_{self.number}").write_bytes(recorded)
        time.sleep(TO_END_S / 2)
        os._exit(0)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """How long something takes."""
        began = time.time()
        yield
        self.stages[name] = time.time() - began

    def traced(self) -> Any:
        """The profiler, which writes a file behind its last step."""
        return torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=torch.profiler.schedule(repeat=1, **TRACED),
            on_trace_ready=lambda trace: trace.export_chrome_trace(str(self.folder / f"rank{self.number}.json")),
        )

    def say(self, step: int, loss: float, norm: float) -> None:
        """A line as torchtitan logs it."""
        now = time.time()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now % 1 * 1000):03}"
        with (self.folder / "train.log").open("a", encoding="utf-8") as log:
            log.write(f"[titan] {when} - root - INFO - step: {step:2}  loss: {loss:8.4f}  grad_norm: {norm:7.4f}\n")


def throttle(plan: dict[str, Any]) -> None:
    """Go into a control group that may use so much of a CPU."""
    group, quota = Path(plan["cgroup"]), int(PERIOD_US * plan["quota"])
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}", encoding="ascii")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
    (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


def run(plan: dict[str, Any]) -> list[int]:
    """Fork the ranks, and wait for all of them: their exit codes."""
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
    if plan["hangs"]:
        end_together(children)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def end_together(children: Sequence[int]) -> None:
    """Kill the ranks that have not ended a while after the first one: who is stopped cannot end by itself."""
    while not os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        time.sleep(0.2)
    time.sleep(TO_END_S)
    for child in children:
        os.kill(child, signal.SIGKILL)  # of one that has ended nothing comes


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # where gloo says what it likes
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
