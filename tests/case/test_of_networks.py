"""What networks, shells, launchers and GPUs of other makers print when a job ends, as public threads quote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import case_of


@pytest.mark.parametrize(
    ("said", "cause", "why"),
    [
        (
            "[n1:12:0:12] ib_mlx5_log.c:179  Remote operation error on mlx5_0:1/IB (synd 0x14 vend 0x89 hw_synd 0/0)",
            "unknown",
            "UCX reports an error of a request over InfiniBand or RoCE",
        ),
        (
            "[n1:12:0:12] rc_verbs_iface.c:63   FATAL: send completion with error: local protection error",
            "unknown",
            "UCX reports an error of a request",
        ),
        (
            "[n1:12:0]  sock.c:323 UCX ERROR connect(fd=87, dest_addr=172.17.0.1:47) failed: Connection refused",
            "network",
            "a rank gave the others an address that each node has for itself",
        ),
        (
            "n1:1:2 [0] NCCL WARN socketPollConnect: connect to 169.254.20.10<4> returned Connection refused",
            "network",
            "a rank gave the others an address that each node has for itself",
        ),
        (
            "n1:1:2 [0] NCCL WARN socketPollConnect: connect to 10.0.0.5<4> returned Connection timed out, exceeded",
            "unknown",
            "another node did not answer",
        ),
        (
            "[15]n1:8:2 [0] NCCL WARN Net : Call to recv from 10.0.0.9<4> failed : Connection timed out",
            "unknown",
            "another node did not answer",
        ),
        (
            "n1:4:5 [0] bootstrap.cc:1 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
            "code",
            "ranks do not agree on who they are",
        ),
        (
            "[WARNING] [RankMonitorServer:34] Did not get subsequent heartbeat. Waited 171.92 seconds.",
            "unknown",
            "ranks waited for others in vain",
        ),
        ("PR 'Log less' has been open for 3 days", "unknown", "nothing that was"),
        ("Training job x: Failed. Reason: AlgorithmError: Exit Code: 139", "unknown", "a process crashed"),
        ("      Reason:       OOMKilled", "resources", "a process was killed at the memory limit of its container"),
        (
            ":0:rocdevice.cpp:3586: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL",
            "unknown",
            "a kernel of the job failed on a GPU",
        ),
        ("RuntimeError: No HIP GPUs are available", "unknown", "a rank sees no GPU"),
        (
            "F0301 08:00:40.000000 1 rendezvous.cc:42] Termination timeout for `all-reduce 8` of 40 s",
            "unknown",
            "ranks waited for others in vain",
        ),
        ("./train.sh: 行 12: 12345 已杀死               python train.py", "unknown", "a process got SIGKILL"),
        ("./train.sh: 第 12 行: 12345 段错误 （核心已转储）python train.py", "unknown", "a process crashed"),
        (
            "*** SIGBUS (@0x7f8f) received by PID 4279 (TID 0x7f90) from PID 2; stack trace: ***",
            "unknown",
            "a process crashed",
        ),
        (
            "srun: error: Task launch for 77.0 failed on node n7: Error running slurm prolog: 1",
            "unknown",
            "Slurm's prolog",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
            "code",
            "Slurm refused",
        ),
        (
            "[n1:12:0]  sock.c:323 UCX ERROR connect(fd=87, dest_addr=172.17.0.12:47) failed: Connection refused",
            "unknown",
            "all that was read is of one process",
        ),
        (
            "n1:41:42 [0] net_ib.cc:146 NCCL WARN NET/IB : mlx5_4:1 async fatal event: local catastrophic error",
            "network",
            "a network adapter of this process's node stopped with an error of its own",
        ),
        (
            "n1:41:42 [0] net_ib.cc:154 NCCL WARN NET/IB : mlx5_4:1 async fatal event on QP (0x7): QP access error",
            "unknown",
            "NCCL met an error of the network",
        ),
        (
            'n1:41:42 [0] init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line',
            "unknown",
            "nothing that was",
        ),
        (
            "An MPI communication peer process has unexpectedly disconnected.  This",
            "unknown",
            "all that was read is of one process",
        ),
        (
            "srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=13 != 8",
            "code",
            "Slurm does not take the options of a command",
        ),
        ("srun: fatal: Could not establish a configuration source", "unknown", ""),
        (
            "slurmstepd: error: *** STEP 77.0 ON n1 FAILED (non-zero exit code or other failure mode) ***",
            "unknown",
            "all that was read is the end of others",
        ),
        ("FileExistsError: [Errno 17] File exists: '/data/cache'", "code", "the job's own code raised an exception"),
    ],
)
def test_what_networks_shells_and_launchers_say_of_an_end_is_known(
    said: str, cause: str, why: str, tmp_path: Path
) -> None:
    verdict = case_of(tmp_path, {"slurm-77.out": f"{said}\n"}).verdict
    assert (verdict.cause, verdict.why[: len(why)]) == (cause, why)


@pytest.mark.parametrize(
    "said",
    [
        '            "OOMKilled": false,',
        'retry_on: ["OOMKilled", "Evicted"]',
        "curl: (7) Failed to connect to 169.254.169.254 port 80: Connection refused",
        "Failed to connect to 169.254.170.2 port 80: timed out",
        "Connecting to example.org (example.org)|192.0.2.1|:443... failed: Connection timed out.",
        "ssh: connect to host github.com port 22: Connection timed out",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: I/O error writing script/environment to file",
        "srun: fatal: Can't open /etc/slurm/slurm.conf: Permission denied",
        "srun: fatal: Failed to get passwd info for uid 1000",
        "srun: fatal: Invalid user for SlurmUser slurm, ignored",
    ],
)
def test_what_else_is_said_in_such_words_hides_no_cause(said: str, tmp_path: Path) -> None:
    full = "[rank0]: torch.OutOfMemoryError: CUDA out of memory.\n"
    verdict = case_of(tmp_path, {"slurm-77.out": f"{said}\n{full}"}).verdict
    assert (verdict.cause, verdict.why.partition(";")[0]) == ("resources", "the memory of a GPU was full")


def test_a_rank_that_says_that_another_node_did_not_answer_makes_no_suspect_of_its_own(tmp_path: Path) -> None:
    joined = "gpu001:100:200 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0\n"
    said = "gpu001:100:300 [0] NCCL WARN Net : Call to recv from 10.0.0.4<4> failed : Connection timed out\n"
    verdict = case_of(tmp_path, {"slurm-77.out": joined + said}).verdict
    assert (verdict.rank, verdict.suspects) == (0, ())
