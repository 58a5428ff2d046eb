"""What the name of an operation, or of a part of a step, says of it."""

from __future__ import annotations

import re
from functools import lru_cache

COMPUTE, COMMUNICATION, DATA, EXPOSED = "compute", "communication", "data", "exposed"
CHECKPOINT, INIT, OTHER = "checkpoint", "init", "other"
BUSY = "busy"  # compute that is compared with no other rank's
UNKNOWN = "unknown"  # a word of somebody's own: taken for compute where nothing else is
EXPOSED_ALONE, KERNELS = "exposed communication", "kernels"  # parts that traces have; the latter of unknown stages

_WORDS = (  # the first kind that has one of the name's words: `forward-recv` waits for others
    (EXPOSED, "exposed"),
    (
        COMMUNICATION,
        """send recv receive isend irecv sendrecv reduce allreduce gather allgather scatter broadcast bcast all2all
        alltoall a2a nccl rccl p2p comm comms communication collective barrier wait sync synchronize idle bubble""",
    ),
    (CHECKPOINT, "checkpoint checkpointing ckpt save"),
    (INIT, "init initialization initialisation setup startup warmup"),
    (DATA, "data dataloader loader loading load batch fetch prefetch input dataset"),
    (COMPUTE, "compute forward fwd backward bwd"),
    (BUSY, "kernels"),
    (OTHER, "gc optimizer optim opt log logging eval evaluation validation step total zero grad"),
)
_KINDS = {word: kind for kind, words in reversed(_WORDS) for word in words.split()}
_ORDER = [kind for kind, _ in _WORDS]
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+2?[a-z]*|[0-9]+")
_TOGETHER = (  # words that mean another thing one by one
    (re.compile(r"all[ _-]?to[ _-]?all", re.IGNORECASE), "alltoall"),
    (re.compile(r"(data|batch|input)[ _-]?wait", re.IGNORECASE), "dataloader"),
)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """Whether it is compute, communication, data loading, a checkpoint, another known thing, or unknown."""
    for pattern, word in _TOGETHER:
        name = pattern.sub(word, name)
    words = _PARTS.findall(name)
    kinds = {_KINDS[word.lower()] for word in words if word.lower() in _KINDS}
    return next((kind for kind in _ORDER if kind in kinds), UNKNOWN)
