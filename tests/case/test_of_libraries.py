"""What containers, NVLink, UCX, EFA, Neuron and Slurm's authentication print when a job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import case_of


@pytest.mark.parametrize(
    ("said", "cause", "why"),
    [
        (
            "slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",
            "code",
            "enroot may not make its folders on a node",
        ),
        ("mkdir: cannot create directory '/raid/enroot/user-1000': File exists", "unknown", ""),
        ("mkdir: cannot create directory '/data/a': Permission denied; enroot", "unknown", ""),
        ("slurmstepd: error: pyxis: failed to import docker image", "unknown", "the container of a job did not start"),
        ("slurmstepd: error: pyxis: couldn't start container", "unknown", "the container of a job did not start"),
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            "code",
            "a node has no nvidia-container-cli",
        ),
        (
            "n1:4:7 [5] NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory : CUDA error 401",
            "unknown",
            "NCCL could not set up NVLink SHARP",
        ),
        (
            "n1:4:7 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
            "unknown",
            "NCCL could not set up",
        ),
        (
            "RuntimeError: CUDA error in cuMemImportFromShareableHandle: invalid resource handle",
            "unknown",
            "GPUs of several nodes could not share memory over NVLink",
        ),
        (
            "n1:1:2 [0] mnnvl.cc:55 NCCL WARN MNNVL (cliqueSize 4) is available but not supported on some ranks.",
            "unknown",
            "GPUs of several nodes could not share memory over NVLink",
        ),
        (
            "[n1:12:0:12] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81)",
            "unknown",
            "UCX got no answer of a peer",
        ),
        (
            "n1:41367:41367 [1] enqueue.cc:422 NCCL WARN Error : no algorithm/protocol available",
            "unknown",
            "NCCL warned, and no sign says of what: n1:41367:41367 [1] enqueue.cc:422 NCCL WARN Error : no algorithm",
        ),
        ("[n1:2121 :0:7025] Caught signal 7 (Bus error: nonexistent physical address)", "unknown", "a process crashed"),
        ("[n1:34:0:34] Caught signal 11 (Segmentation fault: invalid permissions)", "unknown", "a process crashed"),
        (
            "srun: error: Munge decode failed: Expired credential",
            "unknown",
            "MUNGE, by which Slurm's programs know each",
        ),
        ("srun: error: Unable to allocate resources: Protocol authentication error", "unknown", "MUNGE, by which"),
        (
            "n1:3:4 [0] NCCL WARN socketStartConnect: Connect to 10.0.0.2 failed : Software caused connection abort",
            "network",
            "a node could not be reached",
        ),
        (
            "ERROR  TDRV:tdrv_init_mla_phase1                    Could not open the nd3",
            "unknown",
            "a rank got no Neuron device",
        ),
        (
            "RuntimeError: nrt_execute status=1202 (NRT_EXEC_HW_ERR_NC_UE)",
            "unknown",
            "the Neuron runtime reports an error",
        ),
        (
            "RuntimeError: Neuron runtime cannot be initialized; cannot determine the number of available NeuronCores",
            "unknown",
            "a rank got no Neuron device",
        ),
        (
            "n1:3:4 [0] NCCL WARN NET/OFI Request 0x7f2c completed with error. RC: 21. Error: 4 (x). Completed length",
            "unknown",
            "EFA reports an error of a request",
        ),
        (
            "libfabric:45:17::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address",
            "unknown",
            "EFA reports an error of a request",
        ),
    ],
)
def test_what_containers_fabrics_and_libraries_say_of_an_end_is_known(
    said: str, cause: str, why: str, tmp_path: Path
) -> None:
    verdict = case_of(tmp_path, {"slurm-77.out": f"{said}\n"}).verdict
    assert (verdict.cause, verdict.why[: len(why)]) == (cause, why)


def test_why_a_container_did_not_start_stands_before_that_it_did_not(tmp_path: Path) -> None:
    output = (
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
    )
    assert case_of(tmp_path, {"slurm-77.out": output}).verdict.cause == "code"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("srun: error: Task launch for StepId=77.8 failed on node n3: Unable to satisfy cpu bind request", "code"),
        ("srun: error: Task launch for StepId=77.8 failed on node n3: Communication connection failure", "unknown"),
        ("OSError: [Errno 116] Stale file handle: '/home/u/.triton/cache/cff6/_rms_norm.json'", "code"),
        ("OSError: [Errno 116] Stale file handle: '/home/u/run/checkpoint.pt'", "storage"),
        ("OSError: [Errno 16] Device or resource busy: '/home/u/.triton/cache/cff6/tmp.pid_1'", "code"),
        ("OSError: [Errno 16] Device or resource busy: '/mnt/data'", "unknown"),
        (
            "node_manager.cc:3064: 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers c",
            "resources",
        ),
        (
            "node_manager.cc:3064: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers c",
            "unknown",
        ),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "resources"),
        ("ValueError: Free memory on device (9/80 GiB) is less than desired GPU memory utilization (0.9)", "resources"),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB on device ordinal 0",
            "resources",
        ),
        ("XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect.", "unknown"),
        ("HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api", "code"),
        ("ClientError: An error occurred (SlowDown) when calling the CreateMultipartUpload operation", "storage"),
        ("ClientError: An error occurred (404) when calling the HeadObject operation: Not Found", "code"),
        ("As a result, the libfabric EFA provider is operating in", "code"),
        ("Open MPI is currently operating in a condition that could result in memory corruption", "unknown"),
        ("Unable to write to EQ: err: Input/output error (5) prov_errno: Unknown error -114 (-114)", "unknown"),
        ("n1:4:7 [0] init.cc:416 NCCL WARN Cuda failure 'operation not supported'", "unknown"),
        ("n1:4:7 [0] NCCL WARN Cuda failure 'API call is not supported in the installed CUDA driver'", "code"),
        (
            "InductorError: CalledProcessError: Command '['/usr/bin/gcc', '-lcuda']' returned non-zero exit status 1",
            "code",
        ),
        ("RuntimeError: DDP expects same model across all ranks, but Rank 3 has 9 params, while rank 0 has 8", "code"),
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 3 has 9, rank 0 inconsistent 0 params",
            "unknown",
        ),
        ("RuntimeError: Expected to mark a variable ready only once. This error is caused by one of", "code"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "code"),
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", "code"),
        ("RuntimeError: CUDA error: device kernel image is invalid", "unknown"),
        ("InductorError: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "resources"),
        ("init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls", "code"),
    ],
)
def test_what_frameworks_say_is_told_from_what_is_like_it(said: str, cause: str, tmp_path: Path) -> None:
    assert case_of(tmp_path, {"slurm-77.out": f"{said}\n"}).verdict.cause == cause


RAISED = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, {kind} (run with NCCL_DEBUG=INFO)\n"
    "{name}: Call to a function failed.\nLast error:\n{last}\n"
)


@pytest.mark.parametrize(
    ("kind", "name", "last", "cause"),
    [
        ("unhandled cuda error", "ncclUnhandledCudaError", "Cuda failure 2 'out of memory'", "resources"),
        ("unhandled cuda error", "ncclUnhandledCudaError", "Cuda failure 719 'unspecified launch failure'", "unknown"),
        (
            "unhandled system error",
            "ncclSystemError",
            "Error: failed to extend /dev/shm/nccl-Xz to 9 bytes",
            "resources",
        ),
        ("invalid argument", "ncclInvalidArgument", "Invalid rank requested : 2/2", "code"),
    ],
)
@pytest.mark.parametrize("label", ["", "[rank3]: "])
def test_the_last_error_of_nccl_says_what_the_exception_above_it_does_not(
    kind: str, name: str, last: str, cause: str, label: str, tmp_path: Path
) -> None:
    raised = RAISED.format(kind=kind, name=name, last=last)
    output = "".join(f"{label}{line}\n" for line in raised.splitlines())
    assert case_of(tmp_path, {"train.log": output}).verdict.cause == cause


def test_what_a_launcher_says_below_an_exception_is_not_of_it(tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: the loader has ended\n'
    ended = "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.\n"
    verdict = case_of(tmp_path, {"rank_3.log": raised + ended}).verdict
    assert (verdict.cause, "the loader has ended" in verdict.why) == ("unknown", True)
