"""Use of GPUs: faults, and healthy runs."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run import samples as of_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import GpuLost
from tests.training_run.faults.fault import CONCERN, FAIL, INCOMPLETE, RunFault
from tests.training_run.sampled import sampled
from tests.training_run.watched import BEGAN_S, leaking, of_every_gpu, of_gpu, readings, stuck, watched

LOST_S, END_S = 3_000.0, 3_600.0


@cache
def used() -> TrainingRun:
    """GPUs of two nodes, all well used."""
    return sampled()


@cache
def recorded() -> TrainingRun:
    """GPUs of two nodes that train well."""
    return watched()


def losing_gpu(message: str, *, is_gone: bool) -> TrainingRun:
    """A run in which a tool cannot read a GPU after 50 minutes."""
    run = vanishing()
    run.data.samples.lose(GpuLost("gpu001", "gpu3", BEGAN_S + LOST_S, message, is_gone=is_gone))
    return run


def out_of_reach(message: str) -> TrainingRun:
    """A run at whose end a tool does not reach a node's driver."""
    run = watched()
    run.data.samples.lose(GpuLost("gpu001", "", BEGAN_S + END_S, message, is_gone=False))
    return run


def vanishing() -> TrainingRun:
    """A run without samples of one GPU after 50 minutes."""
    data = RunData()
    gone = ("gpu001", "gpu3")
    data.add(
        (
            reading
            for reading in readings()
            if (reading.node, reading.device) != gone or reading.time_s < BEGAN_S + LOST_S
        ),
        "made up",
    )
    return TrainingRun("made-up", data)


HEALTHY = {
    "run.gpu_busy": used,
    "run.gpu_fluctuates": used,
    "run.load_balance": used,
    "run.cpu_bound": used,
    "run.io_bound": used,
    "run.gpu_memory_growth": recorded,
    "run.batch_size": recorded,
    "run.slow_clock": recorded,
    "run.gpu_lost": recorded,
    "run.hung": recorded,
}

FAULTS = (
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
        "algo-2 gpu3 0 %; expected all within 10 percentage points",
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
        "heat that slows all GPUs down",
        lambda: watched(of_every_gpu(clock=1_200.0, hardware_slowdown=100.0)),
        {"run.slow_clock": FAIL},
        "gpu001 gpu0 busy for 60 min, slowed by hardware 100 % of it",
    ),
    RunFault(
        "a GPU that its power cap holds further down than the others",
        lambda: watched(of_gpu("gpu002", 0, clock=1_600.0, power_cap=100.0)),
        {"run.slow_clock": CONCERN},
        "held by the power cap",
    ),
    RunFault(
        "a GPU that is slow where nobody sampled why",
        lambda: watched(of_gpu("gpu001", 2, clock=1_200.0), without=(of_run.CAPPED, of_run.SLOWED)),
        {"run.slow_clock": INCOMPLETE},
        "gpu001 gpu2 at 0.69 of its peers' clock for 60 min; expected at least 0.95: clusterproof watch",
    ),
    RunFault(
        "a GPU that is slow where only the power cap was sampled",
        lambda: watched(of_gpu("gpu001", 2, clock=1_200.0, power_cap=0.0), without=(of_run.SLOWED,)),
        {"run.slow_clock": INCOMPLETE},
        "gpu001 gpu2 at 0.69 of its peers' clock for 60 min; expected at least 0.95: clusterproof watch",
    ),
    RunFault(
        "a GPU that nvidia-smi says is lost",
        lambda: losing_gpu("GPU is lost", is_gone=True),
        {"run.gpu_lost": FAIL},
        "gpu001 gpu3 from 2025-11-20 01:43:20 on: GPU is lost; expected every GPU until the end",
    ),
    RunFault(
        "a GPU of which no value can be read any more",
        lambda: losing_gpu("Unknown Error", is_gone=False),
        {"run.gpu_lost": CONCERN},
        "gpu001 gpu3 from 2025-11-20 01:43:20 on: Unknown Error; expected its values until the end",
    ),
    RunFault(
        "a driver that nvidia-smi does not reach any more",
        lambda: out_of_reach("Failed to initialize NVML: Unknown Error"),
        {"run.gpu_lost": INCOMPLETE},
        "gpu001 from 2025-11-20 01:53:20 on: Failed to initialize NVML: Unknown Error; expected values until the end",
    ),
    RunFault(
        "a GPU that is not sampled any more",
        vanishing,
        {"run.gpu_lost": INCOMPLETE},
        "no sample of gpu001 gpu3 after 2025-11-20 01:43:10; expected samples, as from the others",
    ),
    RunFault(
        "a collective that never ends",
        lambda: watched(stuck),
        {"run.hung": FAIL, "run.gpu_memory_growth": Verdict.PASS},
        "8 GPUs (gpu001 gpu0, gpu001 gpu1",
    ),
)
