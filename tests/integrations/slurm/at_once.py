"""The health checks of a whole cluster, which find the same fault at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clusterproof.integrations.slurm import health_check
from clusterproof.integrations.slurm.settings import HealthCheck
from clusterproof.integrations.slurm.verdict import CheckFinding
from tests.integrations.slurm.calls import call_of, state_in

LOST = CheckFinding("gpu.gpu_answers", "fail", "GPU 3: the driver says GPU_IS_LOST; expected an answer")


def drain_at_once(names: Sequence[str], folder: Path, limits: HealthCheck) -> list[bool]:
    """Have all nodes find the same fault at the same moment; returns whether each settled it."""
    gate = threading.Barrier(len(names))

    def drain_one(name: str) -> bool:
        state = state_in(folder / name)
        state.prepare()
        call = call_of("health-check", state, name, limits)
        gate.wait()
        return health_check.drain(call, call.drain((LOST,), None))

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(drain_one, names))
