"""Which meter a node gets, and what its measurements can be compared with."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.benchmarks.meters import exact, fi_pingpong, iperf3, nccl_tests, nccom_test
from clusterproof.plugins.benchmarks.meters.meter import Meter, MeterSettings
from clusterproof.plugins.catalog.busbw import BusbwKey

METERS: Mapping[str, Meter] = {
    each.name: each for each in (nccl_tests.METER, nccom_test.METER, iperf3.METER, fi_pingpong.METER, exact.METER)
}


def meter_for(gpus: int, neuron_devices: int) -> Meter:
    """The meter of a node that has so many NVIDIA GPUs and Neuron devices."""
    if gpus:
        return nccl_tests.METER
    return nccom_test.METER if neuron_devices else iperf3.METER


def key_of(
    meter: Meter, settings: MeterSettings, size_bytes: int, instance_type: str, efa: int, ranks_per_node: int
) -> BusbwKey:
    """What a bandwidth can be compared with: a meter of two ends stands for itself, with one rank on each node."""
    return BusbwKey(
        instance_type=instance_type.removeprefix("ml."),
        efa=efa,
        nodes=2,
        ranks_per_node=ranks_per_node if meter.is_collective else 1,
        collective=settings.collective if meter.is_collective else meter.name,
        size_bytes=size_bytes,
    )
