"""The faults, one file per part of the node."""

from __future__ import annotations

from tests.faults import (
    captured,
    ebs,
    efa_fabric,
    ena,
    gpu,
    gpu_fabric,
    gpu_link,
    gpu_memory,
    gpu_settings,
    host,
    host_settings,
    image,
    infiniband,
    interfaces,
    kernel_host,
    kernel_limits,
    kernel_log,
    load,
    manifest,
    network,
    neuron,
    node,
    processors,
    software,
    storage,
    transport,
)

PARTS = (
    node,
    gpu,
    gpu_memory,
    gpu_link,
    gpu_fabric,
    gpu_settings,
    neuron,
    kernel_log,
    kernel_host,
    network,
    efa_fabric,
    ena,
    infiniband,
    transport,
    interfaces,
    host,
    host_settings,
    kernel_limits,
    processors,
    storage,
    ebs,
    software,
    manifest,
    image,
    load,
)
FAULTS = tuple(fault for part in PARTS for fault in part.FAULTS)
ALL_FAULTS = (*FAULTS, *captured.FAULTS)  # those of live nodes, and those in captures made by hand
BY_NAME = {fault.name: fault for fault in FAULTS}
