"""The faults, one file per part of the node."""

from __future__ import annotations

from tests.faults import gpu, host, kernel_log, network, neuron, node, software, storage

PARTS = (node, gpu, neuron, kernel_log, network, host, storage, software)
FAULTS = tuple(fault for part in PARTS for fault in part.FAULTS)
BY_NAME = {fault.name: fault for fault in FAULTS}
