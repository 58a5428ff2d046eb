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
            "RuntimeError: Neuron runtime cannot be initialized; cannot determine the number of available NeuronCores",
            "unknown",
            "a rank got no Neuron device",
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
    said = (
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
    )
    assert case_of(tmp_path, {"slurm-77.out": said}).verdict.cause == "code"
