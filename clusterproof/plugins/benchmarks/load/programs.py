"""Programs of vendors that measure a node, run as they are: a function for each collector, called like it."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.benchmarks.load.tool import ASK_S, NONE, document_in, gpu_count, measured

NCCL_SIZES = ("-b", "1G", "-e", "8G", "-f", "2")  # nccl-tests lowers the last one itself where memory is short
NEURON_DEVICES = "/sys/devices/virtual/neuron_device"
NEURON_LS_S = 30.0
NEURON_SIZES = ("--minbytes", "1kb", "--maxbytes", "1gb", "--stepfactor", "4", "--datatype", "fp32", "--check")


def dcgm_diag(node: Node) -> object:
    """What `dcgmi diag -j` prints, at the level that the user chooses.

    One that hangs is asked to end first: the work is done by DCGM's host engine.
    """
    if not gpu_count(node):
        return NONE
    return measured(node, "dcgmi", "diag", "-r", node.settings.get("dcgm_level", "2"), "-j", ask_s=ASK_S)


def node_busbw(node: Node) -> object:
    """What `all_reduce_perf` prints over the GPUs of this node alone: one process, every GPU, results compared."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    if gpus == 1:
        return {"none": "one GPU: there is no link to reduce over"}
    ran = measured(node, "all_reduce_perf", *NCCL_SIZES, "-g", str(gpus), "-c", "1", "-w", "5", "-n", "20")
    return {"gpus": gpus, **ran}


def nccom(node: Node) -> object:
    """What `nccom-test` prints of an all-reduce over every NeuronCore of this node."""
    if not node.names(NEURON_DEVICES):
        return {"none": "no Neuron device"}
    return measured(node, "nccom-test", "-r", str(cores(node)), *NEURON_SIZES, "allr")


def cores(node: Node) -> int:
    """The cores as neuron-ls counts them: logical ones, where the runtime joins physical ones. Raises Broke."""
    data = document_in(measured(node, "neuron-ls", "-j", timeout_s=NEURON_LS_S), "[")
    devices = [device for device in data if isinstance(device, dict)] if isinstance(data, list) else []
    count = sum(int(device["nc_count"]) for device in devices if isinstance(device.get("nc_count"), int))
    if not count:
        raise Broke("neuron-ls -j reports no NeuronCore; expected nc_count of every device")
    return count
