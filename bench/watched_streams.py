"""The lines that a sampler sends from a node in training, under the nonce `cp`."""

from __future__ import annotations

import json
from random import Random


def hello_line(boot_id: str = "b") -> bytes:
    """The first line."""
    message = {"sampler": 1, "boot_id": boot_id, "log": "", "now": 1.7e9, "up": 100.0}
    return f"cp {json.dumps(message)}\n".encode()


def tick_line(random: Random, at: int, every_s: float) -> bytes:
    """One tick."""

    def gpu() -> list[float]:
        busy = [random.randint(92, 99), random.randint(550, 700) / 10, random.randint(350, 450) / 10]
        moved = [random.randint(30_000, 45_000), random.randint(1_000, 2_000)]
        now = [70_123, random.randint(1_590, 1_980), random.randint(550, 690), random.randint(58, 62)]
        return [*busy, *moved, *now, random.randint(0, 60), 0, 0, 3, 0]

    fixed = {
        "gpu_fixed": [{"uuid": f"GPU-{number}", "memory_mib": 81_559, "power_limit_w": 700.0} for number in range(8)]
    }
    message = {
        "now": 1.7e9 + at * every_s,
        "up": 100.0 + at * every_s,
        "gpu": [gpu() for _ in range(8)],
        "host": [random.randint(100, 200) / 10, 0.1, 0.5, 0.0, 0.0, random.randint(1_800_000, 1_900_000), 0],
        "network": [0.1, 0.2, 0, random.randint(2_000_000, 3_000_000) / 100, 21_000.5, 0],
        "lustre": [12.5, 0.0],
        **(fixed if at == 0 else {}),
    }
    return f"cp {json.dumps(message, separators=(',', ':'))}\n".encode()
