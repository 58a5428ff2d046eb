"""Made-up system metrics in the format of SageMaker's profiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import CPU, GPU, IO_WAIT, Sample

Percent = Callable[[int, int, float], float]  # of a node's GPU at a time
BEGAN_S = 1_591_160_000.0
DCGM_4_DMON = "#Entity   GPUTL  TENSO  SMCLK  FBUSD  FBFRE\nID\n"  # the header lines of dcgmi dmon


def busy(_node: int, _gpu: int, _time_s: float) -> float:
    return 92.0


def readings(gpu: Percent = busy, cpu: Percent = lambda *_: 40.0, io: Percent = lambda *_: 1.0) -> Iterator[Sample]:
    """Ten minutes of two nodes with four GPUs and two CPUs each, every two seconds."""
    random = Random(8)
    for number in range(300):
        time_s = 2.0 * number
        for node in (1, 2):
            for metric, name, percent in (
                *((GPU, f"gpu{index}", gpu(node, index, time_s)) for index in range(4)),
                *((CPU, "", cpu(node, index, time_s)) for index in range(2)),
                (IO_WAIT, "", io(node, 0, time_s)),
            ):
                noisy = min(100.0, max(0.0, percent + random.gauss(0, 1.0)))
                yield Sample(f"algo-{node}", metric, name, BEGAN_S + time_s, noisy)


def sampled(gpu: Percent = busy, cpu: Percent = lambda *_: 40.0, io: Percent = lambda *_: 1.0) -> TrainingRun:
    """The run with these samples."""
    data = RunData()
    data.add(readings(gpu, cpu, io), "made up")
    return TrainingRun("made-up", data)


def line(sample: Sample) -> str:
    """The sample as a line of the profiler."""
    dimension = {GPU: "GPUUtilization", CPU: "CPUUtilization", IO_WAIT: "I/OWaitPercentage"}[sample.metric]
    document = {
        "Type": sample.metric[:3],
        "Name": sample.device or "cpu0",
        "Dimension": dimension,
        "Value": round(sample.percent, 2),
        "NodeId": sample.node,
        "Timestamp": sample.time_s,
    }
    return json.dumps(document) + "\n"
