"""Messages for files that hold nothing for the rules: what to give instead."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.opened import opened
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.training_run.files import GZIP, HEAD, ZSTD, RunFile, head_of
from clusterproof.plugins.training_run.rules.steps import LOG_STEPS

COLLECT = "give per-rank operations or steps with their parts, docs/training-runs.md shows how"
NO_COMPUTE = f"{NOT_RECORDED} how long each rank computes in a step; {COLLECT}"
NO_STAGES = (
    "ranks send to single ones, so that they may be of several pipeline stages, which no trace has: their kernels are "
    f"not compared; {COLLECT} (with the stage of each rank)"
)
ONE_RANK = "one rank: there is no other to compare it with"
NO_RANKS = (
    "files do not say their rank, neither in themselves nor in their names; expected names like rank3.json, a column "
    "or key rank, or distributedInfo, as PyTorch writes it once torch.distributed is initialised"
)
NO_DUMPS = (
    f"{NOT_RECORDED} where ranks wait; for a run that hangs give the Flight Recorder's dumps of all ranks "
    "(TORCH_NCCL_TRACE_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1), or what clusterproof watch --record has seen"
)
NO_STEPS = f"{NOT_RECORDED} how long steps take; {LOG_STEPS}"
NO_LOSS = (
    f"{NOT_RECORDED} the loss; give the trainer's log, with pipelines that of a rank of the last stage, or a table of "
    "steps with a column loss: docs/training-runs.md has the forms"
)


_TRACE = "expected a trace of PyTorch's profiler (export_chrome_trace)"
_EXECUTION_TRACE = re.compile(rb'\s*\{\s*"schema"\s*:\s*"[0-9]+\.[^"]{0,60}"')  # "1.1.1-chakra.0.0.4"
_RAS = re.compile(rb"NCCL version [^\n]{1,100} compiled with CUDA [^\n]{1,40}\n[^\n]{0,100}\n\nJob summary\n")
_RAS_JSON = re.compile(rb'\s*\{\s*"nccl_version"\s*:\s*"')
_JOB_STATISTICS = re.compile(rb"\s*Successfully retrieved (?:statistics for job|process info for PID): ")
_PMON = re.compile(rb"\s*#\s*(?:Date\s+)?(?:Time\s+)?gpu\s+pid\s")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
_EVENTS = b"brain.Event:"  # in the first record of TensorBoard's


@record
class UnreadFormat:
    """A file format that is not read: what it is, how it is recognised, and what is expected instead."""

    words: str
    is_of: Callable[[str, bytes], object]  # by its name, and its first bytes


OTHERS = (
    UnreadFormat(
        "an execution trace of PyTorch, which has operators and no steps; "
        "expected the profiler's trace of the same run (export_chrome_trace)",
        lambda _, head: _EXECUTION_TRACE.match(head),
    ),
    UnreadFormat(
        f"a report of Nsight Systems, which its own tools read; {_TRACE}",
        lambda name, _: name.endswith((".nsys-rep", ".qdrep", ".qdstrm")),
    ),
    UnreadFormat(
        f"an SQLite database, as nsys export writes one; {_TRACE}",
        lambda _, head: head.startswith(b"SQLite format 3\0"),
    ),
    UnreadFormat(
        "the answer of NCCL's RAS, which is of one moment; "
        "expected dumps of PyTorch's Flight Recorder (TORCH_NCCL_DUMP_ON_TIMEOUT=1)",
        lambda _, head: _RAS.match(head) or (_RAS_JSON.match(head) and b'"communicators"' in head),
    ),
    UnreadFormat(
        "what DCGM has counted of a job, means of all its time; "
        "expected samples over time (dcgmi dmon -e 203,1004,100,252,251)",
        lambda _, head: _JOB_STATISTICS.match(head),
    ),
    UnreadFormat(
        "what nvidia-smi pmon says of processes; expected what nvidia-smi dmon says of GPUs",
        lambda _, head: _PMON.match(head),
    ),
    UnreadFormat(
        "a file of Weights & Biases; expected what the job printed (its log, or output.log in the same folder)",
        lambda name, head: head.startswith(b":W&B") or name in ("wandb-metadata.json", "wandb-summary.json"),
    ),
    UnreadFormat(
        "events of TensorBoard, whose names each program chooses; "
        "expected the trainer's log, or metrics.csv of CSVLogger",
        lambda _, head: _EVENTS in head[:64],
    ),
    UnreadFormat(
        "text in UTF-16, as PowerShell writes it; expected UTF-8 (iconv -f UTF-16 -t UTF-8)",
        lambda _, head: head.startswith(_UTF_16) and b"\0" in head[:64],
    ),
)


def what_is(file: RunFile) -> str:
    """What a file of unknown format probably is, and what to provide; empty if it is not recognized.

    Raises RunError.
    """
    head = head_of(file, HEAD)
    return next((other.words for other in OTHERS if other.is_of(file.name, head)), "")


_ENDED = re.compile(  # printed by PyTorch, CUDA and launchers for a failing job
    rb"Watchdog caught collective operation timeout|uncorrectable (?:NVLink|ECC) error|ChildFailedError"
    rb"|CUDA error: [^\n]{1,60}|CUDA out of memory|Segmentation fault|slurmstepd: error: [^\n]{1,60}"
    rb"|ncclUnhandledCudaError|ncclSystemError|ncclRemoteError|Current loss scale already at minimum"
)


def how_it_ended(file: RunFile) -> str:
    """What the last lines of a log say about a failed job; empty if nothing, or if it is compressed.

    Raises OSError.
    """
    with opened(file.path, file.below) as log:
        is_packed = log.read(len(ZSTD)).startswith((GZIP, ZSTD))
        log.seek(max(0, os.fstat(log.fileno()).st_size - HEAD))
        match = None if is_packed else _ENDED.search(log.read(HEAD))
    return printable(match[0].decode("utf-8", "replace")) if match else ""
