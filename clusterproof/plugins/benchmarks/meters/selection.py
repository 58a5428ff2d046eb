"""Every meter by its name, the one for a node, and what its bandwidths may be compared with."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.benchmarks.meters import (
    Meter,
    MeterSettings,
    exact,
    fi_pingpong,
    iperf3,
    nccl_tests,
    nccom_test,
    rdma_mesh,
)
from clusterproof.plugins.catalog.busbw import BusbwKey

METERS: Mapping[str, Meter] = {
    meter.name: meter
    for meter in (
        nccl_tests.METER,
        nccom_test.METER,
        iperf3.METER,
        fi_pingpong.METER,
        exact.METER,
        rdma_mesh.METER,
    )
}


def meter_for(gpus: int, neuron_devices: int) -> Meter:
    """The meter for a node with so many NVIDIA GPUs and Neuron devices."""
    if gpus:
        return nccl_tests.METER
    return nccom_test.METER if neuron_devices else iperf3.METER


def key_of(
    meter: Meter, settings: MeterSettings, size_bytes: int, instance_type: str, efa: int, ranks_per_node: int
) -> BusbwKey:
    """What a bandwidth may be compared with: for a two-ended meter the meter itself, with one rank per node."""
    return BusbwKey(
        instance_type=instance_type.removeprefix("ml."),
        efa=efa,
        nodes=2,
        ranks_per_node=ranks_per_node if meter.is_collective else 1,
        collective=settings.collective if meter.is_collective else meter.name,
        size_bytes=size_bytes,
    )
