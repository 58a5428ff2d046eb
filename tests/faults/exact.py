"""GPUs, cores and memory that give wrong results without an error, and exact tests that could not be made."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from tests.faults.fault import FAIL, INCOMPLETE, Fault
from tests.testbed.exact import Change, core_without_answer, dead, on_core, on_gpu, untested, with_exact, wrong
from tests.testbed.load import loadable_p5, without_torch

GPU, CPU = "gpu.gpu_exact", "host.cpu_exact"
COLLECTOR = {GPU: "gpu_exact", CPU: "cpu_exact"}


def fault(name: str, check: str, verdict: Verdict, words: str, *changes: Change) -> Fault:
    """One that shows in what exact products print."""
    loads = (COLLECTOR[check],)
    return Fault(
        f"exact: {name}", with_exact(*changes), {check: verdict}, words, loadable_p5, loads=loads, occasion="perf"
    )


STUCK = wrong("lane 9 of 32 (128 columns)", [12], 8)
FLIP = wrong("row 5, column 1033", [3, 4], 0)
MEMORY = wrong("tile", [7], 8, changed=True)

FAULTS = (
    fault(
        "a GPU with a stuck bit in one lane",
        GPU,
        FAIL,
        "GPU 3, bfloat16: 1 wrong in 30 products: lane 9 of 32 (128 columns), bit 12 (wide by narrow; 8 of 8 times "
        "again, always alike)",
        on_gpu(3, "bfloat16", STUCK),
    ),
    fault(
        "a GPU in which a bit flipped once",
        GPU,
        FAIL,
        "GPU 6, float64: 1 wrong in 574 products: row 5, column 1033, bits 3, 4 (wide by narrow; 0 of 8 times again)",
        on_gpu(6, "float64", FLIP),
    ),
    fault(
        "a GPU whose operands change in memory",
        GPU,
        FAIL,
        "its operands changed in memory",
        on_gpu(0, "int8", MEMORY),
    ),
    fault(
        "a PyTorch without products of FP8",
        GPU,
        INCOMPLETE,
        "float8_e4m3fn not tested on GPU 0, 1, 2, 3",
        untested("float8_e4m3fn", "PyTorch 2.0.1 has no product of float8_e4m3fn"),
    ),
    fault(
        "a GPU that does not answer",
        GPU,
        INCOMPLETE,
        "GPU 4: no answer in 210 s; expected products of every type",
        dead(4, "no answer in 210 s"),
    ),
    fault(
        "a core that multiplies wrong",
        CPU,
        FAIL,
        "core 77, float32: row 5, column 1033, bits 3, 4 (wide by narrow; 0 of 8 times again)",
        on_core(77, "float32", FLIP),
    ),
    fault(
        "host memory that loses a bit",
        CPU,
        FAIL,
        "core 12, memory: byte 81920 of what was written, bit 5",
        on_core(12, "memory", {**wrong("byte 81920 of what was written", [5], 8), "set": None}),
    ),
    fault(
        "a core whose process is killed",
        CPU,
        INCOMPLETE,
        "1 core (40): its process ended with signal 9 and no answer; expected an answer",
        core_without_answer(40, "its process ended with signal 9 and no answer"),
    ),
    Fault(
        "exact: a node without PyTorch",
        without_torch,
        {CPU: INCOMPLETE},
        "vector units not tested: none of ",
        loadable_p5,
        loads=("cpu_exact",),
        occasion="perf",
        collector_s=5.0,
    ),
)
