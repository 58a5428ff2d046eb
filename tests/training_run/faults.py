"""What is wrong with training runs, and what their checks say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nan

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import arriving, computing, logging_ranks, losing, slow, stepping, uneven
from tests.training_run.dumps import dumped
from tests.training_run.healthy import parts
from tests.training_run.sampled import sampled
from tests.training_run.watched import leaking, of_every_gpu, of_gpu, stuck, watched

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE


@dataclass(frozen=True)
class RunFault:
    """One fault: every verdict in which the run differs from a healthy one, and words of the first one's message."""

    name: str
    run: Callable[[], TrainingRun]
    expect: Mapping[str, Verdict]
    words: str


def one(_step: int) -> float:
    """A second for each step."""
    return 1.0


FAULTS = (
    RunFault(
        "a rank that computes 1.3 times as long",
        lambda: computing(slow(2, 1.3), replicas=8),
        {"run.slow_rank": FAIL},
        "rank 2: computes 1.3 times as long as its 7 peers",
    ),
    RunFault(
        "a rank that computes 1.07 times as long",
        lambda: computing(slow(5, 1.07), stages=2),
        {"run.slow_rank": CONCERN},
        "rank 5: computes 1.07 times as long as its 3 peers",
    ),
    RunFault(
        "a rank that collects garbage in each seventh step",
        lambda: logging_ranks(lambda rank, step: 2.0 if rank == 3 and step % 7 == 5 else 0.0),
        {"run.held_up": CONCERN, "run.step_outliers": CONCERN},
        "the others wait for rank 3 for 8.5 % of the time: it computes longest in",
    ),
    RunFault(
        "sequences of uneven length",
        lambda: computing(uneven(), stages=2, steps=400),
        {"run.work_uneven": CONCERN},
        "times as long as usual in one step of ten",
    ),
    RunFault(
        "a replica that always has the longest sequences",
        lambda: computing(lambda place, _: 1.2 if place.replica == 3 else 1.0, stages=2),
        {"run.work_uneven": CONCERN},
        "data-parallel rank 3 computes 1.20 times as long as others",
    ),
    RunFault(
        "a last stage with more layers",
        lambda: computing(lambda place, _: 1.5 if place.stage == 3 else 1.0, stages=4),
        {"run.stages_uneven": CONCERN},
        "stage 3 computes 1.5 times as long as stage",
    ),
    RunFault(
        "a trace of three steps",
        lambda: computing(steps=3),
        {"run.slow_rank": INCOMPLETE, "run.work_uneven": INCOMPLETE, "run.stages_uneven": INCOMPLETE},
        "3 steps; expected at least 20",
    ),
    RunFault(
        "a trace of one data-parallel rank",
        lambda: computing(stages=4, replicas=1),
        {"run.slow_rank": INCOMPLETE, "run.work_uneven": Verdict.NOT_APPLICABLE},
        "1 ranks a stage; expected 3",
    ),
    RunFault(
        "a rank whose program does not come to a collective",
        lambda: dumped({0: {"1": (91, 90)}, 1: {"1": (90, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": FAIL},
        "rank 1 missing in all_reduce 91 of TENSOR (rank 0 waiting)",
    ),
    RunFault(
        "a rank that left no dump",
        lambda: dumped({0: {"1": (91, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": INCOMPLETE},
        "rank 1 left no dump, and others wait",
    ),
    RunFault(
        "a rank that comes last to every collective",
        lambda: arriving(5),
        {"run.last_to_come": CONCERN},
        "rank 5 of communicator 0xabc123 (gpu1) comes last to",
    ),
    RunFault(
        "a tenth of all steps twice as long",
        lambda: stepping(lambda step: 2.0 if step % 10 == 0 else 1.0, parts),
        {"run.step_outliers": CONCERN},
        "40 of 395 steps take far longer than the usual 1 s",
    ),
    RunFault(
        "steps that take longer from the 250th on",
        lambda: stepping(lambda step: 1.15 if step >= 250 else 1.0, parts),
        {"run.step_drift": CONCERN},
        "from step 250 on steps take 1.15 s, 1.15 times the 1 s before",
    ),
    RunFault(
        "a data loader without workers",
        lambda: stepping(one, lambda step: {**parts(step), "data": 0.4}),
        {"run.data_wait": CONCERN},
        "waits for data for 40",
    ),
    RunFault(
        "collectives that nothing hides",
        lambda: stepping(one, lambda step: {**parts(step), "exposed communication": 0.3}),
        {"run.comm_exposed": CONCERN},
        "% of its steps only collectives run; expected at most 20 %",
    ),
    RunFault(
        "GPUs that compute half of the time",
        lambda: sampled(lambda *_: 55.0),
        {"run.gpu_busy": CONCERN},
        "55 % of the time, algo-",
    ),
    RunFault(
        "GPUs that stand idle for six seconds of a minute",
        lambda: sampled(lambda _node, _gpu, time_s: 0.0 if time_s % 60 < 6 else 95.0),
        {"run.gpu_fluctuates": CONCERN},
        "% of the time; expected at most 5 %",
    ),
    RunFault(
        "a GPU that no rank uses",
        lambda: sampled(lambda node, gpu, _: 0.0 if (node, gpu) == (2, 3) else 92.0),
        {"run.load_balance": CONCERN, "run.gpu_fluctuates": CONCERN},
        "algo-2 gpu3 0 %; expected all within 10 points",
    ),
    RunFault(
        "loaders that use all CPUs of a node",
        lambda: sampled(lambda node, *_: 40.0 if node == 1 else 45.0, cpu=lambda node, *_: 97.0 if node == 1 else 40.0),
        {"run.cpu_bound": CONCERN, "run.gpu_busy": CONCERN},
        "50 % of the time GPUs wait while the CPUs are busy",
    ),
    RunFault(
        "a file system that stalls",
        lambda: sampled(lambda *_: 40.0, io=lambda *_: 35.0),
        {"run.io_bound": CONCERN, "run.gpu_busy": CONCERN},
        "100 % of the time GPUs wait while the CPUs wait for I/O",
    ),
    RunFault(
        "half an hour until the first step",
        lambda: stepping(one, lambda step: {**parts(step), "init": 1800.0 if step == 1 else 0.0}),
        {"run.init_time": CONCERN},
        "1800 s to the first step; expected at most 1200 s",
    ),
    RunFault(
        "a minute until the first step of a run of seven",
        lambda: stepping(one, lambda step: {**parts(step), "init": 60.0 if step == 1 else 0.0}),
        {"run.init_time": CONCERN},
        "60 s to the first step, 13.1 % of all that was logged",
    ),
    RunFault(
        "a checkpoint each five steps",
        lambda: stepping(
            lambda step: 1.5 if step % 5 == 0 else 1.0,
            lambda step: {**parts(step), "checkpoint": 0.5 if step % 5 == 0 else 0.0},
        ),
        {"run.checkpoint_share": CONCERN},
        "of its time on 80 checkpoints",
    ),
    RunFault(
        "a log of fifty steps",
        lambda: stepping(one, lambda step: {**parts(step), "init": 0.0}, steps=55),
        {"run.step_outliers": INCOMPLETE, "run.step_drift": INCOMPLETE, "run.checkpoint_share": INCOMPLETE},
        "50 steps behind the warm-up; expected at least 100",
    ),
    RunFault(
        "noise that may hide a slow rank",
        lambda: computing(slow(0, 1.08), steps=20, noise=0.1),
        {"run.slow_rank": INCOMPLETE},
        "which differ too much to tell",
    ),
    RunFault(
        "memory that grows by 35 points an hour",
        lambda: watched(leaking(35.0)),
        {"run.gpu_memory_growth": FAIL},
        "gpu002 gpu1 uses 9",
    ),
    RunFault(
        "memory that grows by four points an hour",
        lambda: watched(leaking(4.0, begins=70.0)),
        {"run.gpu_memory_growth": CONCERN},
        "points more each hour: full in 6.",
    ),
    RunFault(
        "memory of twenty minutes",
        lambda: watched(minutes=20),
        {"run.gpu_memory_growth": INCOMPLETE},
        "memory was sampled for 9 min behind the run's first ten; expected at least 30",
    ),
    RunFault(
        "GPUs with room for a batch four times as large",
        lambda: watched(of_every_gpu(memory=25.0, tensor_cores=9.0)),
        {"run.batch_size": CONCERN},
        "at most 25 % of the GPUs' memory used, tensor cores busy 9 % of the time",
    ),
    RunFault(
        "a GPU that its heat slows down",
        lambda: watched(of_gpu("gpu001", 2, clock=1_200.0, hardware_slowdown=60.0)),
        {"run.slow_clock": FAIL},
        "gpu001 gpu2 at 0.69 of its peers' clock for 60 min, slowed by hardware 60 % of it",
    ),
    RunFault(
        "a GPU that its power cap holds further down than the others",
        lambda: watched(of_gpu("gpu002", 0, clock=1_600.0, power_cap=100.0)),
        {"run.slow_clock": CONCERN},
        "held by the power cap",
    ),
    RunFault(
        "a loss that is no number from the 60th step on",
        lambda: losing(lambda step: 2.0 if step < 60 else nan),
        {"run.loss_finite": FAIL, "run.loss_spikes": INCOMPLETE},
        "rank 0: the loss is nan from step 60 on, in 241 of 300 lines; expected a number",
    ),
    RunFault(
        "a loss that is no number for a while",
        lambda: losing(lambda step: 2.0 if step not in (40, 41) else inf),
        {"run.loss_finite": CONCERN},
        "rank 0: the loss is inf in 2 of 300 lines, first at step 40, and a number again later",
    ),
    RunFault(
        "gradients that are no numbers any more",
        lambda: losing(lambda _: 2.0, lambda step: 0.3 if step < 290 else nan),
        {"run.loss_finite": CONCERN},
        "rank 0: the norm of the gradients is nan from step 290 on",
    ),
    RunFault(
        "a loss that leaps in one step",
        lambda: losing(lambda step: 2.0 if step != 200 else 30.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the loss is 30 at step 200, 15 times the largest of the 100 lines before; expected less than 10 times",
    ),
    RunFault(
        "a loss that rises and stays",
        lambda: losing(lambda step: 2.0 if step < 200 else 5.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the loss is 5 at step 204, 2.4 times the mean of the 100 lines before, as in 5 lines together",
    ),
    RunFault(
        "gradients that leap in one step",
        lambda: losing(lambda _: 2.0, lambda step: 0.3 if step != 200 else 9.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the norm of the gradients is 9 at step 200, 30 times the largest of the 100 lines before",
    ),
    RunFault(
        "losses below 0, which no multiple tells anything of",
        lambda: losing(lambda step: -1.0 if step != 200 else 30.0),
        {"run.loss_spikes": INCOMPLETE},
        "no loss has 100 before it, all above 0; expected more",
    ),
    RunFault(
        "a log too short for its losses to be compared",
        lambda: losing(lambda _: 2.0, steps=90),
        {"run.loss_spikes": INCOMPLETE},
        "no loss and no norm of the gradients has 100 before it",
    ),
    RunFault(
        "a collective that never ends",
        lambda: watched(stuck),
        {"run.hung": FAIL, "run.gpu_memory_growth": Verdict.PASS},
        "8 GPUs (gpu001 gpu0, gpu001 gpu1",
    ),
)
