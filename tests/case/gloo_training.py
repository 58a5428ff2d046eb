"""A training of several ranks over gloo with a fault in one rank; runs with Debian's python3-torch.

`gloo_training.py FAULT RANK`: exception, killed, hung, disk full, nan, loader killed, other collective, or cut off (the
training continues). Environment: srun's, and FIRST, the first node.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

STEPS, MANY, AT_STEP = 40, 9_000, 6
TIMEOUT = dt.timedelta(seconds=150)  # a busy machine takes a minute to load PyTorch


class Killed:
    """Data whose loader is killed, as when memory runs out."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def fail(fault: str, loss: float) -> None:
    """Cause the fault, in the rank that should have it."""
    if fault == "exception":
        loss += {"caption": 1.0}["image"]
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "hung":
        time.sleep(3600)
    elif fault == "disk full":
        torch.save({"weights": torch.ones(1 << 16)}, "/dev/full")
    elif fault == "nan":
        raise RuntimeError(f"loss is nan: {loss * float('nan'):.2f}")
    elif fault == "loader killed":
        next(iter(DataLoader(Killed(), num_workers=1)))
    elif fault == "other collective":
        dist.all_reduce(torch.ones(7))


def main() -> None:
    """Train with the fault."""
    fault, failing = sys.argv[1], int(sys.argv[2])
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", f"tcp://{os.environ['FIRST']}:29500", rank=rank, world_size=size, timeout=TIMEOUT)
    weights = torch.ones(1024)
    for step in range(MANY if fault == "cut off" else STEPS):
        gradient = weights * (rank + 1)
        if rank == failing and step == AT_STEP:
            fail(fault, float(gradient.sum()))
        dist.all_reduce(gradient)
        weights -= gradient * 1e-6
        if rank == 0:
            sys.stdout.write(f"{dt.datetime.now().isoformat()} step {step} loss {float(weights.sum()):.4f}\n")
            sys.stdout.flush()
        time.sleep(0.1)


main()
