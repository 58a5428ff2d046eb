"""What is said where no file of a run has what a check evaluates: what to give, and what writes it."""

from __future__ import annotations

from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.training_run.part_kinds import CHECKPOINT, DATA, EXPOSED, INIT

COLLECT = "give per-rank operations or steps with their parts, docs/training-runs.md shows how"
NO_COMPUTE = f"{NOT_RECORDED} how long each rank computes in a step; {COLLECT}"
NO_STAGES = (
    "ranks send to single ones, so that they may be of several pipeline stages, which no trace has: their kernels are "
    f"not compared; {COLLECT} (with the stage of each rank)"
)
ONE_RANK = "one rank: there is no other to compare it with"
NO_DUMPS = (
    f"{NOT_RECORDED} where ranks wait; for a run that hangs give the Flight Recorder's dumps of all ranks "
    "(TORCH_NCCL_TRACE_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
)
STEPS = "give a log of steps with their parts, docs/training-runs.md shows how"
EACH_STEP = "log each step (Megatron-LM: --log-interval 1)"
NO_STEPS = f"{NOT_RECORDED} how long steps take; {STEPS}"
NO_LOSS = f"{NOT_RECORDED} the loss; give the log of Megatron-LM or torchtitan"
NO_PARTS = {
    EXPOSED: f"{NOT_RECORDED} how long collectives run alone; give traces of PyTorch's profiler",
    DATA: f"{NOT_RECORDED} how long steps wait for data; {STEPS} (a part called data)",
    CHECKPOINT: f"{NOT_RECORDED} how long checkpoints take; {STEPS} (a part called checkpoint)",
    INIT: f"{NOT_RECORDED} how long the job took to begin; {STEPS} (a part of the first step called init)",
}
