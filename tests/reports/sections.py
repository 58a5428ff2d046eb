"""The sections on pairs and on a training run, from the page of a run that has all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from math import nan
from random import Random

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.training_run import KERNEL, OPERATOR, Position, Step, TimeSpent
from clusterproof.plugins.training_run.losses import Loss
from clusterproof.plugins.training_run.placement import Slots
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import Fact, RunData
from clusterproof.plugins.training_run.samples import GPU, MEMORY, Sample
from clusterproof.reports.formats.html import document
from clusterproof.reports.run import Run
from tests.benchmarks.pairwise.pair_faults import PAIR_FAULTS, PairFault
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.reports.page import Page
from tests.reports.reported import result, run_of

BEGAN_S = 1_700_000_000
LONG, LATE = (30, 47), 5  # steps that wait for data, and the rank that causes it
KERNELS = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "void cutlass::Kernel2<cutlass_80_tensorop>",
    "triton_poi_fused_0",
)


def training_run(ranks: int = 32, steps: int = 60, nodes: int = 4, slow: int = 12, name: str = "llama") -> TrainingRun:
    """Two stages of ranks with a slow one, on nodes with an idle GPU and one whose memory is full."""
    data = RunData()
    data.add(_facts(Random(3), ranks, steps, slow), "steps")
    data.add(_samples(Random(4), nodes), "samples")
    seats = tuple(Slots(f"gpu{number:03}", 8) for number in range(ranks // 8))
    return TrainingRun(name, data, nodes=seats)


def _facts(random: Random, ranks: int, steps: int, slow: int) -> Iterator[Fact]:
    for step in range(1, steps + 1):
        long, save = 0.8 * (step in LONG), 0.5 * (step % 25 == 0)
        for rank in range(ranks):
            work = 0.6 * random.gauss(1, 0.01) * (1.4 if rank == slow else 1)
            parts = {"forward": work, "all_reduce": 0.2, "data": 0.01 + long * (rank == LATE), "checkpoint": save}
            yield Step(Position(rank, 2 * rank // ranks), step, 1.0 + long + save + random.random() / 100, parts)
        yield Loss(0, step, 9.0 / step if step != LONG[1] else nan, 0.3)
    yield from (TimeSpent(0, KERNEL, kernel, 3.0 / (at + 1), 100) for at, kernel in enumerate(KERNELS))
    yield TimeSpent(0, OPERATOR, "aten::mm", 1.2, 40)


def _samples(random: Random, nodes: int) -> Iterator[Fact]:
    for node in range(nodes):
        for time_s in range(0, 3600, 30):
            for gpu in range(8):
                busy = 0.0 if time_s < 120 else 40.0 if (node, gpu) == (1, 2) else 96.0 + random.random()
                full = 60 + random.random() + (time_s / 120 if (node, gpu) == (2, 1) else 0)
                for metric, percent in ((GPU, busy), (MEMORY, full)):
                    yield Sample(f"gpu{node:03}", metric, f"gpu{gpu}", BEGAN_S + time_s, percent)


FAULTS = {fault.name: fault for fault in PAIR_FAULTS}
SLOW = FAULTS["a node that is 20 % slower"]


def run(between: PairwiseRun | None) -> Run:
    """A run over these nodes in which every check passed."""
    nodes = between.campaigns[0].journal.plan.nodes[:40] if between and between.campaigns else ("n0001",)
    return run_of([result("network.not_a_straggler", node) for node in nodes], between=between)


def section(between: PairwiseRun | None) -> str:
    """The section's HTML; empty if there is none."""
    match = re.search(r'<section id="pairs".*?</section>', document(run(between)), re.DOTALL)
    return match[0] if match else ""


@cache
def page(fault: PairFault) -> str:
    return section(measured(fault))


def words_of(html: str) -> str:
    """The section's visible text."""
    return " ".join(Page(html).text.split())
