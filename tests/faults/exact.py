"""GPUs, cores and memory that compute wrong results without an error, and exact tests that could not run."""

from __future__ import annotations

from clusterproof.plugins.core.verdict import Verdict
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.exact import (
    Change,
    by_processors,
    core_without_answer,
    dead,
    exchanged_wrong,
    gpu_without_steps,
    on_core,
    on_gpu,
    rank_without_answer,
    trained_otherwise,
    unsteady,
    untested,
    with_exact,
    without_last,
    wrong,
)
from tests.testbed.load import loadable_p5, without_torch

GPU, CPU = "gpu.gpu_exact", "host.cpu_exact"
COLLECTIVE, STEP = "gpu.exact_collective", "gpu.exact_step"
COLLECTOR = {GPU: "gpu_exact", CPU: "cpu_exact", COLLECTIVE: "exact_collective", STEP: "exact_step"}


def fault(name: str, check: str, verdict: Verdict, message: str, *changes: Change) -> Fault:
    """A fault in the output of exact products."""
    loads = (COLLECTOR[check],)
    return Fault(
        f"exact: {name}", with_exact(*changes), {check: verdict}, message, loadable_p5, loads=loads, occasion="perf"
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
        "a library that multiplies wrong on every GPU",
        GPU,
        CONCERN,
        "float16: wrong each time on every GPU (first lane 9 of 32 (128 columns), bit 12 (wide by narrow; 8 of 8",
        *(on_gpu(gpu, "float16", STUCK) for gpu in range(8)),
    ),
    fault(
        "a GPU whose memory is in use",
        GPU,
        INCOMPLETE,
        "GPU 2: products of 512 x 512 keep 8 of 132 SMs busy, as little of its memory is free",
        lambda report: report["gpus"]["gpus"][2].update(size=512),
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
        "a GPU that multiplies nothing",
        GPU,
        INCOMPLETE,
        "7 of 8 GPUs were measured; expected all of them",
        without_last("gpus"),
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
    fault(
        "a job that has two CPUs of its node",
        CPU,
        INCOMPLETE,
        "2 of 192 CPUs were tested; expected all of them",
        lambda report: report["cores"].update(cores=2, online=192),
    ),
    fault(
        "a GPU that sends wrong elements to all others",
        COLLECTIVE,
        FAIL,
        "14 wrong in all-to-all of int32 (first rank 0 from rank 5: 12 elements from 512 on, bit 9): GPU 5; expected",
        exchanged_wrong("all_to_all", 5, [0, 1, 2, 3, 4, 6, 7], (3, 8)),
    ),
    fault(
        "a GPU whose elements are missing in sums",
        COLLECTIVE,
        FAIL,
        "8 wrong in all-reduce of bfloat16 (first rank 0: 12 elements from 512 on, without that of rank 2): GPU 2; ",
        exchanged_wrong("all_reduce", 2, [*range(8)], kind="bfloat16", how="without that of rank", other=2),
    ),
    fault(
        "a link between two GPUs that changes elements",
        COLLECTIVE,
        FAIL,
        "the link between GPU 1 and GPU 6; expected every bit right",
        exchanged_wrong("all_to_all", 1, [6], (0, 4, 9)),
    ),
    fault(
        "sums that are wrong on all GPUs alike",
        COLLECTIVE,
        FAIL,
        "whose fault it is cannot be told; expected every bit right",
        exchanged_wrong("all_reduce", None, [*range(8)], kind="float32"),
    ),
    fault(
        "collectives that processors made in place of GPUs",
        COLLECTIVE,
        INCOMPLETE,
        "the ranks exchanged over gloo, not over NCCL: no GPU took part; expected nccl",
        by_processors,
    ),
    fault(
        "a rank that does not answer",
        COLLECTIVE,
        INCOMPLETE,
        "GPU 3: no answer in 150 s; expected the result of each operation",
        rank_without_answer(3, "no answer in 150 s"),
    ),
    fault(
        "a GPU that trains to other weights",
        STEP,
        FAIL,
        "GPU 6, bfloat16: from step 5 on another result than most of 32 GPUs of its kind with the same software",
        trained_otherwise([6], "bfloat16", other_from=5),
    ),
    fault(
        "a GPU whose steps differ when repeated",
        STEP,
        FAIL,
        "GPU 2, float32: other results when it repeats its steps; expected the same bits",
        unsteady([2], "float32"),
    ),
    fault(
        "four GPUs that train alike, and otherwise than others",
        STEP,
        CONCERN,
        "4 of 32 GPUs of one kind, driver and library have this result, others another: differs by software, no GPU",
        trained_otherwise([0, 1, 2, 3], "float32"),
    ),
    fault(
        "a GPU that is not asked for steps",
        STEP,
        INCOMPLETE,
        "7 of 8 GPUs were measured; expected all of them",
        without_last("steps"),
    ),
    fault(
        "a GPU that makes no steps",
        STEP,
        INCOMPLETE,
        "GPU 1: RuntimeError: CUDA error: an illegal memory access was encountered; expected the digest",
        gpu_without_steps(1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
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
