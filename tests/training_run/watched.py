"""`clusterproof watch` samples of two nodes with four GPUs each, which train well by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from clusterproof.plugins.training_run import samples as of_run
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.samples import Sample

BEGAN_S = 1_763_600_000.0
EVERY_S = 10
HEALTHY: Mapping[str, float] = {
    of_run.GPU: 97.0,
    of_run.TENSOR: 42.0,
    of_run.LINK: 30_000.0,
    of_run.MEMORY: 83.0,
    of_run.CLOCK: 1_755.0,
    of_run.POWER: 92.0,
    of_run.CAPPED: 30.0,
    of_run.SLOWED: 0.0,
}
OF_NODE: Mapping[str, float] = {
    of_run.CPU: 12.0,
    of_run.IO_WAIT: 0.5,
    of_run.CPU_PRESSURE: 1.0,
    of_run.IO_PRESSURE: 0.3,
    of_run.NETWORK: 20_000.0,
}
Change = Callable[[str, int, float], Mapping[str, float]]  # of a node, its GPU and the seconds: the differing values


def as_ever(_node: str, _gpu: int, _time_s: float) -> Mapping[str, float]:
    return {}


def readings(change: Change = as_ever, minutes: int = 60, *, noise: float = 0.01) -> Iterator[Sample]:
    """Each metric of each GPU and node every ten seconds; -1 is the node itself."""
    random = Random(4)
    for number in range(minutes * 60 // EVERY_S):
        time_s = float(number * EVERY_S)
        for node in ("gpu001", "gpu002"):
            for index in (0, 1, 2, 3, -1):
                usual = OF_NODE if index < 0 else HEALTHY
                for metric, value in {**usual, **change(node, index, time_s)}.items():
                    steady = metric in (of_run.SLOWED, of_run.MEMORY) or value in (0, 100)
                    noisy = value * (1 if steady else random.gauss(1, noise))
                    device = "" if index < 0 else f"gpu{index}"
                    yield Sample(
                        node, metric, device, BEGAN_S + time_s, min(noisy, of_run.MAX_VALUE.get(metric, noisy))
                    )


def watched(change: Change = as_ever, minutes: int = 60, without: tuple[str, ...] = ()) -> TrainingRun:
    """The run with these samples."""
    data = RunData()
    data.add((reading for reading in readings(change, minutes) if reading.metric not in without), "made up")
    return TrainingRun("made-up", data)


def of_gpu(on_node: str, number: int, **other: float) -> Change:
    """One GPU has other values, by metric with `_` for blanks."""
    named = {metric.replace("_", " "): value for metric, value in other.items()}
    return lambda on, index, _time: named if (on, index) == (on_node, number) else {}


def of_every_gpu(since_s: float = 0, **other: float) -> Change:
    """All GPUs have other values from then on."""
    named = {metric.replace("_", " "): value for metric, value in other.items()}
    return lambda _node, index, time_s: named if index >= 0 and time_s >= since_s else {}


def leaking(points_an_hour: float, begins: float = 60.0, after_s: float = 0, until_s: float = 1e9) -> Change:
    """One GPU's memory use grows."""

    def change(node: str, gpu: int, time_s: float) -> Mapping[str, float]:
        if (node, gpu) != ("gpu002", 1):
            return {}
        grown_s = max(0.0, min(time_s, until_s) - after_s)
        return {of_run.MEMORY: min(99.9, begins + points_an_hour * grown_s / 3600)}

    return change


def stuck(node: str, gpu: int, time_s: float, *, since_s: float = 600) -> Mapping[str, float]:
    """All GPUs wait in a collective from then on."""
    if time_s < since_s:
        return {}
    if gpu < 0:
        return {of_run.NETWORK: 0.01}
    return {of_run.GPU: 100.0, of_run.TENSOR: 0.0, of_run.LINK: 0.0, of_run.POWER: 18.0, of_run.CAPPED: 0.0}
