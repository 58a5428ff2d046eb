"""What a run's files do not say, each with what to collect."""

from __future__ import annotations

from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.training_run.rules.steps import LOG_STEPS

COLLECT = "give per-rank operations or steps with their parts, docs/training-runs.md shows how"
NO_COMPUTE = f"{NOT_RECORDED} how long each rank computes in a step; {COLLECT}"
NO_STAGES = (
    "ranks send to single ones, so that they may be of several pipeline stages, which no trace has: their kernels are "
    f"not compared; {COLLECT} (with the stage of each rank)"
)
ONE_RANK = "one rank: there is no other to compare it with"
NO_RANKS = (
    "files do not say their rank, neither in themselves nor in their names; expected names like rank3.json, a column "
    "or key rank, or distributedInfo, as PyTorch writes it once torch.distributed is initialised"
)
NO_DUMPS = (
    f"{NOT_RECORDED} where ranks wait; for a run that hangs give the Flight Recorder's dumps of all ranks "
    "(TORCH_NCCL_TRACE_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1), or what clusterproof watch --record has seen"
)
NO_STEPS = f"{NOT_RECORDED} how long steps take; {LOG_STEPS}"
NO_LOSS = (
    f"{NOT_RECORDED} the loss; give the trainer's log, with pipelines that of a rank of the last stage, or a table of "
    "steps with a column loss: docs/training-runs.md has the forms"
)
