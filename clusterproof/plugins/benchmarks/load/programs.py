"""Standard programs that measure a node's accelerators: a function for each collector, with its name."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.benchmarks.load.tool import ASK_S, NONE, document_in, gpu_count, measured

NCCL_SIZES = ("-b", "1G", "-e", "8G", "-f", "2")  # nccl-tests lowers the maximum itself if memory is short
NEURON_DEVICES = "/sys/devices/virtual/neuron_device"
NEURON_LS_S = 30.0
NEURON_SIZES = ("--minbytes", "1kb", "--maxbytes", "1gb", "--stepfactor", "4", "--datatype", "fp32", "--check")


def dcgm_diag(node: Node) -> object:
    """The output of `dcgmi diag -j`, at the level and with the parameters that the user chooses.

    At its deadline it gets SIGINT first: the work is done by DCGM's host engine.
    """
    if not gpu_count(node):
        return NONE
    level, parameters = node.settings.get("dcgm_level", "2"), node.settings.get("dcgm_parameters", "")
    chosen = ("-p", parameters) if parameters else ()
    return measured(node, "dcgmi", "diag", "-r", level, *chosen, "-j", ask_s=ASK_S)


def node_busbw(node: Node) -> object:
    """The output of `all_reduce_perf` on this node's GPUs: one process, every GPU, results compared."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    if gpus == 1:
        return {"none": "one GPU: there is no link to reduce over"}
    ran = measured(node, "all_reduce_perf", *NCCL_SIZES, "-g", str(gpus), "-c", "1", "-w", "5", "-n", "20")
    return {"gpus": gpus, **ran}


def nccom(node: Node) -> object:
    """The output of `nccom-test` for an all-reduce over all NeuronCores of this node."""
    if not node.names(NEURON_DEVICES):
        return {"none": "no Neuron device"}
    return measured(node, "nccom-test", "-r", str(cores(node)), *NEURON_SIZES, "allr")


def cores(node: Node) -> int:
    """The number of cores in neuron-ls: logical ones if the runtime combines physical ones. Raises Broke."""
    data = document_in(measured(node, "neuron-ls", "-j", timeout_s=NEURON_LS_S), "[")
    devices = [device for device in data if isinstance(device, dict)] if isinstance(data, list) else []
    count = sum(int(device["nc_count"]) for device in devices if isinstance(device.get("nc_count"), int))
    if not count:
        raise Broke("neuron-ls -j reports no NeuronCore; expected nc_count of every device")
    return count
