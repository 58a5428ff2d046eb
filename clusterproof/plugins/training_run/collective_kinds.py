"""Which collectives end on all ranks at once: only their durations say who came last.

A rank ends an AllReduce, AllGather, ReduceScatter or AllToAll when it has something from every other one. The root of a
Broadcast or Scatter waits for nobody, no more than the other ranks of a Reduce or Gather; a send or receive is of two.
"""

from __future__ import annotations

import re
from functools import lru_cache

ALL_TO_ALL = "AllToAll"
TOGETHER = "AllReduce, AllGather, ReduceScatter or AllToAll"
_TOGETHER = re.compile("allreduce|allgather|reducescatter|alltoall|barrier")
_APART = re.compile("broadcast|reduce(?!scatter)|gather|scatter|send|recv")
_NO_LETTER = re.compile("[^a-z]+")
_ROOTED = re.compile(r"_(Broadcast|Reduce|Gather|Scatter)_")  # in the name of a kernel
_OF_PAIR = re.compile(r"send_?recv", re.IGNORECASE)
_KIND = re.compile(r"_(AllReduce|AllGather|ReduceScatter|AllToAll|AlltoAll)_")


@lru_cache(maxsize=1024)
def ends_together(name: str) -> bool:
    """Whether a collective of this name ends on all ranks at once, as NCCL or PyTorch calls it."""
    return bool(_TOGETHER.match(_letters(name)))


@lru_cache(maxsize=1024)
def ends_apart(name: str) -> bool:
    """Whether it is known to have a root, or to be of two ranks: one ends it while others still wait for their part."""
    return bool(_APART.match(_letters(name)))


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name.lower()).removeprefix("nccl")


@lru_cache(maxsize=1024)
def kind_of_kernel(kernel: str, collective: str = "") -> str:
    """What a kernel of NCCL does, by the name of the collective where that is known; empty where neither says.

    An all-to-all is sent by kernels called SendRecv; a gather of uneven parts by those of broadcasts.
    """
    if rooted := _ROOTED.search(kernel):
        return rooted[1]
    found = _KIND.search(kernel)
    return collective or (found[1] if found else "")


def is_of_pair(kernel: str) -> bool:
    """Whether a kernel sends to single ranks, or to all of them as an all-to-all does."""
    return bool(_OF_PAIR.search(kernel))
