"""The signs of causes.toml: how each counts, and that evidence for each exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import causes
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.catalog.rows import document

ROOT = Path(__file__).parents[2]
CHECKS = json.loads((ROOT / "clusterproof/plugins/evaluation/checks.json").read_text("utf-8"))
ROLES = (causes.CAUSE, causes.SUSPICION, causes.CASCADE)
READ_IN = ("output", "scheduler", "kubernetes", "dumps", "exceptions", "warnings")
RESTARTS = ("yes", "no", "after", "unknown")
NAMES = re.findall(r'"([a-z_]+\.[a-z0-9_]+)"', json.dumps(CHECKS))


def wrong(sign: causes.Sign) -> str:
    """What is wrong with a sign, or empty."""
    if sign.role not in ROLES or not sign.says or not set(sign.read_in) <= set(READ_IN):
        return f"{sign.role!r}, read in {', '.join(sign.read_in)}; expected {', '.join(ROLES)} and {', '.join(READ_IN)}"
    if sign.role == causes.CASCADE:
        return "a cascade has a cause; expected none" if sign.cause or sign.probability else ""
    if sign.cause not in causes.CAUSES[:-1]:
        return f"{sign.cause!r}; expected one of {', '.join(causes.CAUSES[:-1])}"
    if sign.role == causes.SUSPICION:
        return "a suspicion has a probability; expected none" if sign.probability else ""
    if sign.cause == causes.HARDWARE:
        return "a line of the job blames hardware; expected a suspicion, which a node's own evidence proves"
    is_right = 0.5 <= sign.probability < 1 and sign.restart in RESTARTS
    return "" if is_right else f"{sign.probability}, restart {sign.restart!r}; expected 0.5 to 1, and {RESTARTS}"


@pytest.mark.parametrize("sign", causes.signs().values(), ids=lambda sign: sign.name)
def test_every_sign_is_right(sign: causes.Sign) -> None:
    assert not wrong(sign)


def test_no_line_of_a_job_says_hardware_by_itself() -> None:
    names = [sign.name for sign in causes.signs().values() if sign.cause == causes.HARDWARE]
    assert names
    assert {causes.signs()[name].role for name in names} == {causes.SUSPICION}


@pytest.mark.parametrize("sign", [sign for sign in causes.signs().values() if sign.proof or sign.load])
def test_what_proves_a_sign_is_a_check(sign: causes.Sign) -> None:
    for word in filter(None, [*sign.proof.split(" or "), *sign.load.split(" or ")]):
        assert [name for name in NAMES if word in name.partition(".")[2]], word


@pytest.mark.parametrize(
    ("sign", "check"),
    [
        ("no_queue_pair", "roce_settings"),  # GIDs
        ("no_ipv6_address", "nameservers"),
        ("no_route", "nameservers"),
        ("no_route", "own_name"),
        ("not_registered", "efa_gdr"),
        ("not_ready", "version_compat"),  # the driver and libcuda; gpu_driver is about nouveau
        ("driver_upgraded", "version_compat"),
        ("old_driver", "version_compat"),
        ("script_lost", "root_volume"),  # slurmd's spool is in /var
    ],
)
def test_a_sign_names_a_check_of_what_it_means(sign: str, check: str) -> None:
    assert check in causes.signs()[sign].proof.split(" or ")


def test_evidence_is_of_checks_of_the_kernel_log() -> None:
    known = {form.check for form in log_forms().values()}
    rows = document(causes.FILE)["evidence"]
    assert {check for cause in causes.CAUSES for check in rows.get(cause, ())} <= known


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(", "watchdog"),
        ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-03-01T08:00:00 DUE TO TIME LIMIT ***", "time_limit"),
        ("slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-03-01T08:00:00 ***", "told_to_end"),
        ("OSError: [Errno 28] No space left on device: '/ckpt'", "no_room"),
        ("failed to extend /dev/shm/nccl-x to 9 bytes, error: No space left on device (28)", "shared_memory"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal_address"),
        ("NCCL WARN Cuda failure 2 'out of memory'", "gpu_memory"),
        ("RuntimeError: cuda runtime error (2) : out of memory at /b/THCStorage.cu:66", "gpu_memory"),
        ("ResourceExhaustedError: OOM when allocating tensor on device:GPU:0 by allocator GPU_0_bfc", "gpu_memory"),
        ("ResourceExhaustedError: OOM when allocating tensor on device:CPU:0 by allocator mklcpu", "host_memory"),
        ("unable to allocate shared memory(shm) for file </torch_1_2>: Success (0)", "shared_memory"),
        ("unable to allocate shared memory(shm) for file </torch_1_2>: No space left on device (28)", "shared_memory"),
        ("unable to allocate shared memory(shm) for file </t>: Resource temporarily unavailable (11)", "shared_memory"),
        ("NCCL WARN unlink shared memory /dev/shm/nccl-x failed, error: No such file or directory", "removed_segment"),
        ("NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "locked_memory"),
        ("ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory (ulimit -l)", "locked_memory"),
        ("srun: error: Unable to allocate resources: Requested node configuration is not available", "refused_request"),
        ("OSError: unable to lock file, errno = 11, error message = 'Resource temporarily unavailable'", "locked_file"),
        ("RuntimeError: received 0 items of ancdata", "too_many"),
        ("The server socket has failed to bind to [::]:47531 (errno: 98 - Address already in use).", "port_taken"),
        ("DistNetworkError: port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, TCPStore", "port_taken"),
        ("slurmstepd: error: Job 41 exceeded memory limit (104 > 102), being killed", "oom_of_step"),
        ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "oom_of_step"),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time_limit"),
        ("=>> PBS: job killed: walltime 3611 exceeded limit 3600", "time_limit"),
        ("srun: error: Task launch for 1.0 failed on node n1: Job credential expired", "credential"),
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore.", "not_a_number"),
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "not_a_number"),
        (
            " 33%|###Memory access fault by GPU node-3 (Agent handle: 0x5a) on address 0x709. Reason: Unknown.",
            "illegal",
        ),
        ("HW Exception by GPU node-1 (Agent handle: 0x1b0fc990) reason :GPU Hang", "illegal"),
        ("RuntimeError: CUDA driver error: unknown error", "gpu_lost"),
        ("Unable to determine the device handle for gpu 0000:23:00.0: Unknown Error", "gpu_lost"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "watchdog"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12090).", "old_driver"),
        ("Error 804: forward compatibility was attempted on non supported HW", "not_ready"),
        ("OutOfResources: out of resource: shared memory, Required: 81920, Hardware limit: 65536.", "large_kernel"),
        ("python3: malloc.c:2401: sysmalloc: Assertion `(old_top == initial_top (av))' failed.", "broken_heap"),
        ("*** Error in `python': malloc(): smallbin double linked list corrupted: 0x7f ***", "broken_heap"),
        ("train: loss.cc:9: float step(int): Assertion `n > 0' failed.", "assertion"),
        ("../aten/src/x.cu:92: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0` failed.", "device_assert"),
        (
            "/b/NanCheck.cu:217: checkForNaN: block: [0,0,0], thread: [0,0,0] Assertion `!isnan(x[i])` failed.",
            "nan_in_kernel",
        ),
        ("[rank0]:[E507 17:31:56.8 Utils.cu:30] CUDA error during checkForNan: device-side assert", "nan_in_kernel"),
        (
            "x.cu:110: Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.",
            "nan_in_kernel",
        ),
        ("  6%|#### | 3787/62565 [04:47<1:10:53, 13.82it/s]Killed", "killed"),
        ("Error running slurm prolog: 1", "prolog_failed"),
        ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE ***", "node_failed"),
        ("execve(): /tmp/slurmd/job00089/slurm_script: No such file or directory", "script_lost"),
        ("RuntimeError: Timed out initializing process group in store based barrier on rank: 0", "watchdog"),
        ("TimeoutError: The client socket has timed out after 60s while trying to connect to (n1, 29500).", "watchdog"),
        ("store->get('0') got error: Socket Timeout", "watchdog"),
        ("srun: error: Timed out waiting for job step to complete", ""),
        ("df: /root/.triton/autotune: No such file or directory", ""),
        ("/usr/bin/ld: cannot find -laio: No such file or directory", ""),
        ("'[Errno -3] Temporary failure in name resolution' thrown while requesting HEAD https://x/config.json", ""),
        ("A matching Triton is not available, some optimizations will not be enabled", ""),
        ("KeyboardInterrupt: MQLLMEngine terminated", ""),
        ("_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so", "weights_only"),
        ("WeightsUnpickler error: Unsupported global: GLOBAL numpy.dtype was not an allowed global", "weights_only"),
        ("Weights only load failed. Do it only if you trust it. Unsupported class argparse.Namespace", "weights_only"),
        ("WeightsUnpickler error: Unsupported operand 118", "broken_checkpoint"),
        (
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
            "broken_checkpoint",
        ),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "placeholder"),
        ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "broken_checkpoint"),
        ("[enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/3", "not_written"),
        ("RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0", "not_written"),
        (
            "UCX  ERROR failed to register address 0x7f mem_type bit 0x2 on md[5]=mlx5_0: Input/output error",
            "not_registered",
        ),
        ("UCX  ERROR ibv_reg_mr(address=0x7f, length=4096, access=0xf) failed: Bad address", "not_registered"),
        ("[n1:820] pml_ucx.c:860  Error: ucx send failed: Input/output error", ""),
        (
            "UCX  ERROR ibv_reg_mr(address=0x7f) failed: Cannot allocate memory : Please set max locked memory",
            "locked_memory",
        ),
        ("OSError: [Errno 5] Input/output error: '/mnt/nfs/part-3'", "input_output"),
        ("  what():  Transport endpoint is not connected", "endpoint"),
        ("OSError: [Errno 107] Transport endpoint is not connected", "endpoint"),
        ("[/opt/gloo/transport/tcp/pair.cc:1] shutdown: Transport endpoint is not connected", "endpoint"),
        ("RuntimeError: flock: Transport endpoint is not connected", "mount_gone"),
        ("OSError: [Errno 107] Transport endpoint is not connected: 'ckpt/x.pt'", "mount_gone"),
        ("cat: /mnt/gluster/x: Transport endpoint is not connected", "mount_gone"),
        ("ls: cannot access '/mnt/x': Transport endpoint is not connected", "mount_gone"),
        ("mkdir: cannot create directory '/media': Read-only file system", "read_only_path"),
        ("OSError: [Errno 30] Read-only file system: '/scratch/out'", "input_output"),
        ("slurmstepd: error: container_p_join: open failed /scratch/1/.active: No such file or directory", ""),
        ("slurmstepd: error: couldn't chdir to `/home/u': No such file or directory: going to /tmp instead", ""),
        ("slurmstepd-n1: error: execve(): train.sh: No such file or directory", "not_started"),
        ("slurmstepd: error: execve(): python4: No such file or directory", "not_started"),
        ("slurmstepd-n1: error: container_p_join: open failed /s/.active: No such file or directory", ""),
        ("slurmstepd: error: task/cgroup: unable to open '/sys/fs/cgroup/x': No such file or directory", ""),
        ("slurmstepd: error: Could not open stdout file /x/y.out: No such file or directory", "not_started"),
        ("slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file", "not_started"),
        ("ray.exceptions.RayTaskError(UnpicklingError): ray::f() (pid=7)", ""),
        ("IOError: [Errno 11] Resource temporarily unavailable", ""),
        ("OSError: [Errno 11] Resource temporarily unavailable: '/data/thread_logs/x.lock'", ""),
        ("OSError: [Errno 24] Too many open files: '/data/x.pt'", "too_many"),
        ("-bash: fork: Resource temporarily unavailable", "too_many"),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", "too_many"),
        (
            "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily unavailable",
            "too_many",
        ),
        ("NCCL WARN Cuda failure 711 'peer mapping resources exhausted'", "peer_access"),
        ("NCCL WARN Cuda failure 'peer access is not supported between these two devices'", "peer_access"),
        (
            "watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
            "illegal_address",
        ),
        ("watchdog thread terminated with exception: CUDA error: device-side assert triggered", "device_assert"),
        ("watchdog thread terminated with exception: CUDA error: unspecified launch failure", "illegal"),
        ("Process group watchdog thread terminated with exception: NCCL error: remote process exited", "watchdog"),
        ("slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see https://x", "no_toolkit"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "driver_upgraded"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_upgraded"),
        (
            "submitit WARNING (2026-07-12 04:18:45,881) - Caught signal SIGHUP on n1: this job is preempted.",
            "preempted",
        ),
        (
            "submitit WARNING (2026-07-12 04:18:45,881) - Caught signal SIGUSR2 on n1: this job is timed-out.",
            "time_limit",
        ),
        ("submitit INFO (2026-07-12 04:18:45,912) - Requeued job 60601445 (3 remaining timeouts)", "requeued"),
        ("(TrainController pid=7) \tthe actor's node was preempted: drained", "preempted"),
        ("srun: error: Unable to create step for job 2: Memory required by task is not available", "refused_step"),
        ("srun: error: Unable to create step for job 5: Invalid generic resource (gres) specification", "refused_step"),
        ("srun: error: Unable to create step for job 5: Job/step already completing or completed", "told_to_end"),
        ("gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: bond1", "no_interface_of_gloo"),
        ("gloo/transport/tcp/pair.cc:724] connect [127.0.1.1]:3210: Connection refused", "own_address"),
        ("misc/argcheck.cc:39 NCCL WARN Recv : invalid root 0 (root should be in the 0..0 range)", "wrong_peer"),
        ("bootstrap.cc:190 NCCL WARN Bootstrap Root : mismatch in rank count from procs 6 : 3", "wrong_size"),
        ("[ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = -7", "crashed"),
        ("RuntimeError: Parent directory /data/ckpt/d20 does not exist.", "bad_command"),
        ("KeyboardInterrupt", "interrupted"),
    ],
)
def test_the_first_sign_that_fits_counts(line: str, name: str) -> None:
    sign = causes.sign_of("output", line)
    assert (sign.name if sign else "") == name


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("EvictedDueToPodsReadyTimeout: job-a: Exceeded the PodsReady timeout d/job-a", "stopped_by_kueue"),
        ("EvictedDueToMaximumExecutionTimeExceeded: job-a: exceeding the maximum execution time", "stopped_by_kueue"),
        ("EvictedDueToNodeFailures: job-a: there was no replacement for a failed node: n3", "node_replaced"),
        ("EvictedDueToDeactivatedDueToAdmissionCheck: job-a: Admission check(s) were rejected", "deactivated"),
        ("EvictedDueToDeactivated: job-a: The workload is deactivated", "deactivated"),
        ("EvictedDueToAdmissionCheck: job-a: At least one admission check is false", "deactivated"),
        ("EvictedDueToClusterQueueStopped: job-a: The ClusterQueue is stopped", "deactivated"),
        ("EvictedDueToLocalQueueStopped: job-a: The LocalQueue is stopped", "deactivated"),
        ("EvictedDueToPreempted: job-a: Preempted to accommodate a workload", "preempted_pod"),
        ("job-a-0: WorkloadEvictedDueToPreempted: Preempted to accommodate a higher priority", "preempted_pod"),
        ("job-a-0: WorkloadEvictedDueToPodsReadyTimeout: Exceeded the PodsReady timeout", "stopped_by_kueue"),
        ("job-a-0: StoppedByKueue: Exceeded the PodsReady timeout d/job-a", "stopped_by_kueue"),
        ("Evicted: pod-3: The node was low on resource: memory.", "evicted"),
        ("TaintManagerEviction: pod-3: Marking for deletion Pod d/pod-3", "tainted"),
        ("TaintManagerEviction: pod-3: Cancelling deletion of Pod d/pod-3", ""),
    ],
)
def test_what_kubernetes_says_has_its_sign(line: str, name: str) -> None:
    sign = causes.sign_of("kubernetes", line)
    assert (sign.name if sign else "") == name
