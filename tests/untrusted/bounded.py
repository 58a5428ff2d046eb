"""A program whose reading is bounded by the kernel: what would never end, or takes all memory, is ended by it."""

from __future__ import annotations

import resource
import subprocess
import sys

MEMORY_BYTES = 2 << 30
CPU_S = 60  # of a processor, which a busy machine does not change


def bounded(program: str, cpu_s: int = CPU_S) -> subprocess.CompletedProcess[str]:
    """What a program of Python's says that may have so much; its return code is negative where it took more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))

    words = [sys.executable, "-c", program]
    return subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)
