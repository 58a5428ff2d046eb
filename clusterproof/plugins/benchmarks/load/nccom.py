"""Collectives over the NeuronCores of this node: `nccom-test`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.benchmarks.load.tool import document_in, measured

DEVICES = "/sys/devices/virtual/neuron_device"
LS_S = 30.0
SIZES = ("--minbytes", "1kb", "--maxbytes", "1gb", "--stepfactor", "4", "--datatype", "fp32", "--check")


def read(node: Node) -> object:
    """What `nccom-test` prints of an all-reduce over every core."""
    if not node.names(DEVICES):
        return {"none": "no Neuron device"}
    return measured(node, "nccom-test", "-r", str(cores(node)), *SIZES, "allr")


def cores(node: Node) -> int:
    """The cores as neuron-ls counts them: logical ones, where the runtime joins physical ones. Raises Broke."""
    data = document_in(measured(node, "neuron-ls", "-j", timeout_s=LS_S), "[")
    devices = [device for device in data if isinstance(device, dict)] if isinstance(data, list) else []
    count = sum(int(device["nc_count"]) for device in devices if isinstance(device.get("nc_count"), int))
    if not count:
        raise Broke("neuron-ls -j reports no NeuronCore; expected nc_count of every device")
    return count
