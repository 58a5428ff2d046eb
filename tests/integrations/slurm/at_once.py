"""The health checks of a whole cluster, which find the same fault at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clusterproof.integrations.slurm import health_check
from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.records import Log
from clusterproof.integrations.slurm.settings import HealthCheck, Settings
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import NO_JOB, CheckFinding

NODES = 200
LOST = CheckFinding("gpu.gpu_answers", "fail", "GPU 3: the driver says GPU_IS_LOST; expected an answer")


def drain_at_once(names: Sequence[str], folder: Path, limits: HealthCheck) -> list[bool]:
    """Have all nodes find the same fault at the same moment; returns whether each settled it."""
    gate = threading.Barrier(len(names))

    def drain_one(name: str) -> bool:
        state = State(str(folder / name))
        state.prepare()
        call = Call("health-check", name, NO_JOB, Settings("drain", health_check=limits), state, Log("test", ""))
        gate.wait()
        return health_check.drain(call, call.drain((LOST,), None))

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(drain_one, names))
