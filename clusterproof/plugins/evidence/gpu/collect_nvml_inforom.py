"""Whether each GPU's InfoROM is intact: the driver reads its flash, about 70 ms each, and verifies checksums.

`{"gpus": {"0000:53:00.0": true, "0000:64:00.0": false}}`; an error in place of what could not be verified. For a
corrupted one NVML has an error of its own, and nvidia-smi a warning and exit code 14.
"""

from __future__ import annotations

import pynvml

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.gpu.collect_nvml import load
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, call
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import ASKED

CORRUPTED = "CORRUPTED_INFOROM"
VALIDATE = call("nvmlDeviceValidateInforom")


def read(node: Node) -> object:
    """The state of each GPU by its PCI address; those that give no handle are left out. Raises Absent."""
    load(node)
    node.at("nvmlInit")
    count = answer_to(pynvml.nvmlDeviceGetCount) if answer_to(pynvml.nvmlInit) is None else None
    gpus = {}
    for index in range(count if isinstance(count, int) else 0):  # that NVML does not start is of the collector nvml
        node.at(f"GPU {index}")
        handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, index)
        address = handle if isinstance(handle, dict) else answer_to(ASKED["pci"], handle)
        if isinstance(address, str):
            gpus[address] = _state(answer_to(VALIDATE, handle))
            node.so_far({"gpus": gpus})
    return {"gpus": gpus}


def _state(answer: object) -> object:
    if isinstance(answer, dict):
        return False if answer["error"] == CORRUPTED else answer
    return True
