"""A training of several ranks over gloo, in which one rank does what it is told to: run with Debian's python3-torch.

`gloo_training.py FAULT RANK`: exception, killed, hung, disk full, nan or other collective; of srun's environment.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

STEPS, AT_STEP = 40, 6
TIMEOUT = dt.timedelta(seconds=150)  # a loaded machine loads PyTorch for a minute


def fail(fault: str, loss: float) -> None:
    """What goes wrong in the rank that it is asked of."""
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
    elif fault == "other collective":
        dist.all_reduce(torch.ones(7))


def main() -> None:
    """Train, if that is the word for it."""
    fault, failing = sys.argv[1], int(sys.argv[2])
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", "tcp://gpu001:29500", rank=rank, world_size=size, timeout=TIMEOUT)
    weights = torch.ones(1024)
    for step in range(STEPS):
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
