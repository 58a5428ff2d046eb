"""Errors of programs and settings that look like those of a file system, a network or a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.case.files import BROKEN_GPU, CUDA_OF_3, SACCT, case_of

RAISED = 'Traceback (most recent call last):\n  File "/x/train.py", line 41, in main\n    {called}\n{exception}\n'


@pytest.mark.parametrize(
    ("called", "exception", "cause"),
    [
        ("os.makedirs(where, exist_ok=True)", "OSError: [Errno 30] Read-only file system: '/media'", "unknown"),
        ("mkdir(name, mode)", "OSError: [Errno 30] Read-only file system: '/data'", "unknown"),
        ("torch.save(state, where)", "OSError: [Errno 30] Read-only file system: '/scratch/last.pt'", "storage"),
        ("self.pid = os.fork()", "BlockingIOError: [Errno 11] Resource temporarily unavailable", "resources"),
        ("self.pid = _fork_exec(", "BlockingIOError: [Errno 11] Resource temporarily unavailable", "resources"),
        ("out = process.stderr.read(4096)", "IOError: [Errno 11] Resource temporarily unavailable", "unknown"),
        ("os.makedirs(where)", "KeyError: 'where'", "code"),
    ],
)
@pytest.mark.parametrize("label", ["", "[rank3]: ", "3: "])
def test_the_call_that_failed_says_what_its_error_means(
    called: str, exception: str, cause: str, label: str, tmp_path: Path
) -> None:
    raised = RAISED.format(called=called, exception=exception)
    output = "".join(f"{label}{line}\n" for line in raised.splitlines())
    assert case_of(tmp_path, {"slurm-77.out": output}).verdict.cause == cause


OF_TWO = "".join(
    f"n{rank + 1}:33:44 [0] NCCL INFO ncclCommInitRank comm 0x55 rank {rank} nranks 2 cudaDev 0\n" for rank in (0, 1)
)


@pytest.mark.parametrize(
    "message", ["'peer mapping resources exhausted'", "'unhandled cuda error'", "'invalid argument'"]
)
def test_a_node_is_left_out_of_a_restart_by_no_words_of_a_job(message: str, tmp_path: Path) -> None:
    output = f"{OF_TWO}n1:33:44 [0] allocator.cc:79 NCCL WARN Cuda failure {message}\n"
    case = case_of(
        tmp_path, {"run.log": output, "sacct.txt": SACCT.format(state="FAILED").replace("gpu[001-004]", "n[1-2]")}
    )
    assert case.advice.exclude == ()
    assert case.verdict.cause == ("code" if "peer" in message else "unknown")


def test_an_address_out_of_bounds_does_not_say_that_a_restart_is_in_vain(tmp_path: Path) -> None:
    output = "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    case = case_of(tmp_path, {"train.log": output})
    assert (case.verdict.cause, case.advice.restart) == ("code", "unknown")


def test_a_child_that_reads_of_a_parent_that_has_ended_says_nothing_of_a_file(tmp_path: Path) -> None:
    output = (
        "terminate called after throwing an instance of 'std::system_error'\n  what():  Transport endpoint is not "
        'connected\nTraceback (most recent call last):\n  File "spawn.py", line 115, in _main\n'
        "    self = reduction.pickle.load(from_parent)\n_pickle.UnpicklingError: pickle data was truncated\n"
    )
    case = case_of(tmp_path, {"train.log": output})
    assert (case.verdict.cause, case.verdict.why.partition(":")[0]) == ("unknown", "a connection was gone")


@pytest.mark.parametrize("error", ["an illegal memory access was encountered", "device-side assert triggered"])
def test_the_rank_that_crashed_is_told_from_those_that_waited_for_it(error: str, tmp_path: Path) -> None:
    crashed = (
        f"[rank1]:[E606 15:20:10.319952 pg.cpp:1595] watchdog thread terminated with exception: CUDA error: {error}\n"
    )
    waited = (
        "[rank0]:[E606 15:30:10.319952 pg.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL ran for 600080 milliseconds before timing out.\n"
    )
    verdict = case_of(tmp_path, {"train.log": crashed + waited}).verdict
    assert (verdict.cause, verdict.rank) == ("code", 1)


POD = {
    "kind": "Pod",
    "metadata": {"name": "job-a-0"},
    "spec": {"nodeName": "n1"},
    "status": {
        "phase": "Failed",
        "containerStatuses": [{"state": {"terminated": {"exitCode": 143, "reason": "Error"}}}],
    },
}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("PodsReadyTimeout", "stopped"),
        ("Deactivated", "stopped"),
        ("ClusterQueueStopped", "stopped"),
        ("Preempted", "stopped"),
        ("NodeFailures", "unknown"),
    ],
)
@pytest.mark.parametrize("is_condition", [True, False])
def test_an_eviction_by_kueue_is_no_want_of_memory(reason: str, cause: str, is_condition: bool, tmp_path: Path) -> None:
    when, message = "2026-03-01T08:10:30Z", "Exceeded the PodsReady timeout d/job-a"
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": f"WorkloadEvictedDueTo{reason}",
        "message": message,
        "lastTransitionTime": when,
    }
    status = {**POD["status"], "conditions": [condition] if is_condition else []}  # type: ignore[dict-item]
    event = {
        "kind": "Event",
        "reason": f"EvictedDueTo{reason}",
        "message": message,
        "lastTimestamp": when,
        "involvedObject": {"name": "job-a"},
    }
    items = [{**POD, "status": status}, *([] if is_condition else [event])]
    case = case_of(tmp_path, {"kubectl.json": json.dumps({"kind": "List", "items": items})})
    assert case.verdict.cause == cause


SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
TOO_FEW = "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 0, capacity: 7"


@pytest.mark.parametrize(
    ("status", "reason", "message", "cause", "suspects"),
    [
        ("Terminated", "TerminationByKubelet", SHUTDOWN, "stopped", ()),
        ("NodeShutdown", "", "Pod was rejected as the node is shutting down.", "stopped", ()),
        ("Evicted", "TerminationByKubelet", "The node was low on resource: memory.", "resources", ()),
        ("Preempting", "TerminationByKubelet", "Preempted in order to admit critical pod", "stopped", ()),
        ("", "DeletionByPodGC", "PodGC: node no longer exists", "unknown", ("n1",)),
        ("OutOfnvidia.com/gpu", "", TOO_FEW, "unknown", ("n1",)),
        ("OutOfcpu", "", "Pod was rejected: Node didn't have enough resource: cpu", "unknown", ()),
    ],
)
def test_what_a_kubelet_ends_is_told_from_want_of_memory_and_from_preemption(
    status: str, reason: str, message: str, cause: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    told = {"phase": "Failed", "reason": status, "message": message, "conditions": [condition] if reason else []}
    verdict = case_of(tmp_path, {"kubectl.json": json.dumps({**POD, "status": told})}).verdict
    assert (verdict.cause, verdict.suspects) == (cause, suspects)


@pytest.mark.parametrize(("reason", "message"), [("PreemptionByScheduler", ""), ("TerminationByKubelet", SHUTDOWN)])
@pytest.mark.parametrize(("at", "cause"), [("2026-03-01 08:10:29,500 ", "stopped"), ("", "unknown")])
def test_what_a_pod_says_as_it_is_ended_is_not_its_cause(
    reason: str, message: str, at: str, cause: str, tmp_path: Path
) -> None:
    when = "2026-03-01T08:10:30Z"
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    told = {"phase": "Failed", "conditions": [{**condition, "lastTransitionTime": when}]}
    files = {"kubectl.json": json.dumps({**POD, "status": told}), "rank_1.log": f"{at}[rank1] KeyError: 'a'\n"}
    assert case_of(tmp_path, files).verdict.cause == cause


@pytest.mark.parametrize(
    ("reason", "suspects"), [("StartError", ("n1",)), ("ContainerCannotRun", ("n1",)), ("Error", ())]
)
def test_a_container_without_its_gpus_is_known_by_the_words_of_its_runtime(
    reason: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    message = "OCI runtime create failed: nvidia-container-cli: detection error: nvml error: gpu is lost: unknown"
    ended = {"exitCode": 128, "reason": reason, "message": message}
    told = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
    verdict = case_of(tmp_path, {"kubectl.json": json.dumps({**POD, "status": told})}).verdict
    assert (verdict.cause, verdict.nodes, verdict.suspects) == ("unknown", (), suspects)


JOINED = CUDA_OF_3.splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    "said",
    [
        "08:00:00,100 [rank3] ucp_mm.c:76   UCX  ERROR failed to register address 0x7f (cuda) on md[4]: Bad address\n",
        "08:00:02,100 [rank3] RuntimeError: CUDA error: peer access is not supported between these two devices\n",
    ],
)
def test_what_a_lost_gpu_makes_a_rank_say_does_not_contest_it(said: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": f"{JOINED}2026-03-01 {said}"})
    assert (case.verdict.cause, case.verdict.nodes) == ("hardware", ("gpu003",))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 5] Input/output error: '/fsx/hifi_gan/s1.tar'", "storage"),
        ("OSError: [Errno 5] Input/output error: '/fsx/UCXtests/ibv_logs/fi_1'", "storage"),
        ("[node1:77] sock.c:325  UCX  ERROR send() returned error: Input/output error", "unknown"),
        ("NET/OFI Couldn't complete fi_readmsg(): Input/output error", "unknown"),
        ("RuntimeError: ibv_modify_qp failed: Input/output error", "unknown"),
    ],
)
def test_an_error_of_input_or_output_is_of_a_file_system_where_no_library_of_networks_says_it(
    line: str, cause: str, tmp_path: Path
) -> None:
    assert case_of(tmp_path, {"train.log": f"{line}\n"}).verdict.cause == cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("n1:33:44 [0] misc/argcheck.cc:39 NCCL WARN Broadcast : invalid root 9 (root should be in the 0..8)", "code"),
        ("xml parser: invalid root element", "unknown"),
    ],
)
def test_an_invalid_root_is_one_of_nccl(line: str, cause: str, tmp_path: Path) -> None:
    assert case_of(tmp_path, {"train.log": f"{line}\n"}).verdict.cause == cause


def test_words_of_a_stop_are_quoted_where_they_say_more(tmp_path: Path) -> None:
    event = {
        "kind": "Event",
        "reason": "EvictedDueToClusterQueueStopped",
        "message": "The ClusterQueue is stopped",
        "lastTimestamp": "2026-03-01T08:10:30Z",
        "involvedObject": {"name": "job-a"},
    }
    case = case_of(tmp_path, {"kubectl.json": json.dumps({"kind": "List", "items": [POD, event]})})
    assert "The ClusterQueue is stopped" in case.verdict.why


@pytest.mark.parametrize(
    "said",
    [
        "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device",
        "unable to create cgroup '/sys/fs/cgroup/memory/slurm/uid_8' : No space left on device",
        "unable to create cgroup '/sys/fs/cgroup/memory/slurm/uid_8' : Cannot allocate memory",
        "error: write value '399' to '/sys/fs/cgroup/cpuset/slurm/job_6/cgroup.procs' failed: No space left on device",
        'docker: caused "mkdir /sys/fs/cgroup/memory/docker/55d7db61: no space left on device": unknown.',
        "docker: container init caused: join session keyring: create session key: disk quota exceeded: unknown.",
        "Failed to set 'cpuset.cpus' attribute on '/system.slice/slurmd.service' to '': No space left on device",
        "OSError: [Errno 28] No space left on device: semget failed",
        "OSError: [Errno 28] No space left on device: '/sys/fs/cgroup/cpuset/slurm/job_6/cgroup.procs'",
        "OSError: [Errno 28] inotify watch limit reached",
        "inotify_add_watch(7, /data/train): No space left on device",
        "fsnotify: inotify.AddWatch: no space left on device",
        "inotify: No space left on device",
        "shmget error: No space left on device",
        "semget: No space left on device",
        "No space left on device. Failed system call was shmget(key=5432001, size=56, 03600).",
    ],
)
def test_what_a_kernel_has_no_more_of_is_no_full_disk(said: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"slurm-77.out": f"{said}\n"})
    assert (case.verdict.cause, case.advice.restart) == ("resources", "after")
    assert case.verdict.why.startswith("a node's kernel had no more control groups")


def test_a_semaphore_that_finds_no_room_is_of_shared_memory(tmp_path: Path) -> None:
    raised = RAISED.format(
        called="sl = self._semlock = _multiprocessing.SemLock(", exception="OSError: [Errno 28] No space left on device"
    )
    verdict = case_of(tmp_path, {"rank_0.log": raised}).verdict
    assert (verdict.cause, verdict.why.partition(":")[0]) == ("resources", "shared memory (/dev/shm) was full")


@pytest.mark.parametrize(
    "line",
    [
        "write /var/lib/docker/tmp/x: no space left on device",
        "cp: '/home/u/cgroups.pt': Disk quota exceeded",
        "OSError: [Errno 28] No space left on device: '/data/inotify_logs/x.pt'",
        "OSError: [Errno 122] Disk quota exceeded: '/data/inotify/x.pt'",
        "tar: /data/inotify: No space left on device",
        "cp: error writing '/data/semget/x.pt': No space left on device",
        "OSError: [Errno 28] No space left on device: '/data/shmget_and_msgget.pt'",
    ],
)
def test_a_full_disk_is_one_in_the_words_of_other_programs(line: str, tmp_path: Path) -> None:
    assert case_of(tmp_path, {"slurm-77.out": f"{line}\n"}).verdict.cause == "storage"


@pytest.mark.parametrize(
    "event", ["Got async event : local catastrophic error", "Got async event: local catastrophic error"]
)
def test_an_adapter_that_stopped_is_not_said_to_be_a_peer_that_ended(event: str, tmp_path: Path) -> None:
    output = f"gpu003:815:864 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : {event}\n"
    verdict = case_of(tmp_path, {"train.log": output}).verdict
    assert verdict.cause == "network"
    assert verdict.why.startswith("a network adapter of this process's node stopped with an error of its own")


@pytest.mark.parametrize(
    "event", ["client reregistration", "port active", "SM change", "LID change", "GID table change"]
)
def test_what_a_subnet_manager_tells_every_node_is_no_error_of_one(event: str, tmp_path: Path) -> None:
    told = f"gpu003:815:864 [0] transport/net_ib.cc:80 NCCL WARN NET/IB : mlx5_4:1 Got async event : {event}\n"
    case = case_of(tmp_path / "waits", {"train.log": told})
    assert (case.collected.events, case.verdict.suspects) == ((), ())
    own = "2026-03-01 08:00:00,100 KeyError: 'duration'\n"
    assert case_of(tmp_path / "raises", {"rank_3.log": told + own}).verdict.cause == "code"
