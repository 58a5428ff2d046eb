"""Messages that a job survived, and events of other jobs and processes: neither hides a cause nor makes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.case.advice import KEEP, TEST, opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.folder import read_folder
from clusterproof.plugins.case.report import OUTLIVED, rows
from tests.case.files import BROKEN_GPU, CUDA_OF_3, SACCT, STEPS, WATCHDOG_OF_1, XID_79, case_of


def test_what_the_job_outlived_is_shown_and_is_not_the_cause(tmp_path: Path) -> None:
    own = "2026-03-01 07:59:30,000 [rank5] torch.OutOfMemoryError: CUDA out of memory.\n"
    case = case_of(tmp_path, {"rank_5.log": own + STEPS, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.first) == ("unknown", None)
    assert any("after which the job went on" in reason for reason in case.verdict.against)
    assert [(row.mark, row.where) for row in rows(case)] == [(OUTLIVED, "rank 5")]


OF_SLURM = "slurmstepd: error: *** STEP 77.0 ON gpu001 CANCELLED AT 2026-03-01T08:10:30 DUE TO TIME LIMIT ***\n"


def test_the_end_of_a_step_of_slurms_is_no_step_that_the_job_made(tmp_path: Path) -> None:
    lost = "{time} Lustre: fsx-OST0001-osc-ffff: Connection to fsx-OST0001 (at 10.0.0.9@tcp) was lost;\n"
    log = lost.format(time="2026-03-01T08:00:00,000000+00:00")
    ended = OF_SLURM + "srun: Job step 77.0 aborted before step completely launched.\nsrun: Job step aborted: Waiting\n"
    record = SACCT.format(state="TIMEOUT")
    case = case_of(tmp_path, {"slurm.out": ended, "sacct.txt": record, "gpu003-dmesg.txt": log})
    assert (case.verdict.cause, case.verdict.nodes, case.collected.progress) == ("storage", ("gpu003",), None)


MISSING = "{time} FileNotFoundError: [Errno 2] No such file or directory: 'cache.json'\n"


@pytest.mark.parametrize(("time", "standing"), [("05:00:00,000", "established"), ("07:59:49,000", "supported")])
def test_words_of_before_do_not_hide_what_a_node_says_of_the_end(tmp_path: Path, time: str, standing: str) -> None:
    early = MISSING.format(time=f"2026-03-01 {time}")
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": f"{early}2026-03-01 {time} INFO\n{CUDA_OF_3}"})
    assert (case.verdict.cause, case.verdict.standing) == ("hardware", standing)
    assert any("after which the job went on" in reason for reason in case.verdict.against) == (
        standing == "established"
    )


def test_who_waited_as_long_as_ranks_tell_had_not_gone_on(tmp_path: Path) -> None:
    early = MISSING.format(time="2026-03-01 07:59:50,000")
    late = "2026-03-01 08:15:30,000 torch.OutOfMemoryError: CUDA out of memory.\n"
    files = {"rank_0.log": f"{early}2026-03-01 07:59:50,000 INFO\n", "rank_2.log": late}
    assert case_of(tmp_path / "alone", files).verdict.cause == "resources"
    assert case_of(tmp_path / "waited", {**files, "rank_1.log": WATCHDOG_OF_1}).verdict.cause == "code"


def test_a_limit_that_ends_a_job_which_had_fallen_silent_hides_no_exception(tmp_path: Path) -> None:
    early = MISSING.format(time="2026-03-01 07:10:00,000") + "2026-03-01 07:10:00,000 INFO\n"
    ended = {"sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path / "silent", {"rank_0.log": early, **ended}).verdict.cause == "code"
    talks = f"{early}2026-03-01 08:10:00,000 INFO heartbeat\n"
    assert case_of(tmp_path / "no step", {"rank_0.log": talks, **ended}).verdict.cause == "code"
    stopped_at = "".join(f"2026-03-01 07:0{minute}:00,000 iteration {minute}/90000\n" for minute in range(1, 6))
    assert case_of(tmp_path / "no step since", {"rank_0.log": stopped_at + talks, **ended}).verdict.cause == "code"
    went_on = f"{early}2026-03-01 08:10:00,000 iteration 4000/90000\n"
    assert case_of(tmp_path / "went on", {"rank_0.log": went_on, **ended}).verdict.cause == "stopped"


def test_a_node_whose_gpu_broke_is_tested_whatever_ended_the_job(tmp_path: Path) -> None:
    own = "2026-03-01 08:00:00,100 [rank3] KeyError: 'image'\n"
    old = XID_79.format(time="01:00:00").replace("2026-03-01", "2026-02-27")
    later = {"gpu003-dmesg.txt": XID_79.format(time="08:00:21"), "gpu001-dmesg.txt": old}
    case = case_of(tmp_path, {"rank_3.log": STEPS + own, "sacct.txt": SACCT.format(state="FAILED"), **later})
    assert (case.verdict.cause, case.advice.nodes["gpu003"], case.advice.nodes["gpu001"]) == ("code", TEST, KEEP)
    assert case.advice.commands == ("clusterproof check ssh:gpu003 -k no_xid",)


@pytest.mark.parametrize("stamp", ["[ 5000.000001] ", "2026-03-01T06:23:00,000000+00:00 "])
def test_a_broken_gpu_of_an_unknown_or_earlier_time_is_said_and_its_node_tested(tmp_path: Path, stamp: str) -> None:
    log = {"gpu003-dmesg.txt": stamp + XID_79.partition(" ")[2]}
    case = case_of(tmp_path, {"rank_0.log": STEPS, "sacct.txt": SACCT.format(state="FAILED"), **log})
    assert (case.verdict.cause, case.advice.nodes["gpu003"]) == ("unknown", TEST)
    assert "gpu003 says Xid 79" in case.verdict.why


OOM_OF = (
    "2026-03-01T08:00:00,000000+00:00 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg={group},task_memcg={group}/step_0,task=python3,pid=4444,uid=7\n"
    "2026-03-01T08:00:00,000000+00:00 Memory cgroup out of memory: Killed process 4444 (python3) total-vm:9kB, "
    "anon-rss:9kB, file-rss:0kB, shmem-rss:0kB, UID:7 pgtables:9kB oom_score_adj:0\n"
)


@pytest.mark.parametrize(
    ("group", "cause"),
    [
        ("/slurm/uid_7/job_77", "resources"),
        ("/slurm_gpu003/uid_7/job_77", "resources"),
        ("/system.slice/slurmstepd.scope/job_77", "resources"),
        ("/system.slice/gpu003_slurmstepd.scope/job_77", "resources"),
        ("/slurm/uid_7/job_770", "unknown"),
        ("/system.slice/slurmstepd.scope/job_99", "unknown"),
        ("/system.slice/slurmstepd.scope/job_99/step_0/user/task_0/job_77", "unknown"),
    ],
)
def test_the_memory_limit_of_another_group_killed_no_process_of_this_job(
    tmp_path: Path, group: str, cause: str
) -> None:
    own = "2026-03-01 08:00:01,000 srun: error: gpu003: task 3: Killed\n"
    log = OOM_OF.format(group=group)
    case = case_of(tmp_path, {"slurm-77.out": own, "sacct.txt": SACCT.format(state="FAILED"), "gpu003-dmesg.txt": log})
    assert (case.verdict.cause, case.verdict.nodes) == (cause, ("gpu003",) if cause == "resources" else ())


@pytest.mark.parametrize(("components", "cause"), [(("77",), "unknown"), (("77+0", "77+1"), "resources")])
def test_a_component_of_a_job_has_a_control_group_of_its_own(
    components: tuple[str, ...], cause: str, tmp_path: Path
) -> None:
    row = "|FAILED|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu[001-004]\n"
    record = "JobID|State|ExitCode|Start|End|NodeList\n" + "".join(f"{name}{row}" for name in components)
    own = "2026-03-01 08:00:01,000 srun: error: gpu003: task 3: Killed\n"
    log = OOM_OF.format(group="/system.slice/slurmstepd.scope/job_78")
    files = {"slurm-77.out": own, "sacct.txt": record, "gpu003-dmesg.txt": log}
    assert case_of(tmp_path, files).verdict.cause == cause
    (tmp_path / "sacct.txt").write_text(f"{record}90+0{row}90+1{row}", encoding="utf-8")
    read_folder(tmp_path, among_others := CaseBuilder(), 0.0, "77")
    assert opened_case(joined("job 77", among_others)).verdict.cause == cause


@pytest.mark.parametrize(
    ("group", "cause"),
    [
        ("/slurm/uid_7/job_77", "resources"),
        ("/user.slice/user-7.slice/user@7.service/job_77", "unknown"),
        ("/kubepods.slice/kubepods-pod1.slice/slurm/uid_7/job_77", "unknown"),
        ("/system.slice/docker-1.scope/system.slice/slurmstepd.scope/job_77", "unknown"),
    ],
)
def test_a_group_that_any_user_may_make_is_no_jobs_own(tmp_path: Path, group: str, cause: str) -> None:
    """Of a job that says nothing of being killed, only the limit of its own group counts."""
    files = {"slurm-77.out": STEPS, "sacct.txt": SACCT.format(state="FAILED")}
    case = case_of(tmp_path, {**files, "gpu003-dmesg.txt": OOM_OF.format(group=group)})
    assert case.verdict.cause == cause


CRASH = "2026-03-01T08:00:00,000000+00:00 {name}[{pid}]: segfault at 0 ip 0 sp 0 error 4 in libxul.so[7f0+1000]\n"


@pytest.mark.parametrize(("pid", "cause"), [(10, "code"), (9999, "unknown")])
def test_a_process_that_is_no_rank_explains_the_crash_of_none(tmp_path: Path, pid: int, cause: str) -> None:
    joined = "gpu003:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1\n"
    own = "2026-03-01 08:00:01,000 srun: error: gpu003: task 3: Segmentation fault\n"
    log = {"gpu003-dmesg.txt": CRASH.format(name="firefox", pid=pid)}
    assert case_of(tmp_path, {"slurm-77.out": joined + own, **log}).verdict.cause == cause


def _event(reason: str, message: str, at: str) -> str:
    about = {"involvedObject": {"name": "train-worker-1"}, "lastTimestamp": f"2026-03-01T{at}Z"}
    return json.dumps({"kind": "List", "items": [{"kind": "Event", "reason": reason, "message": message, **about}]})


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("FailedMount", "MountVolume.SetUp failed for volume fsx: timed out", "storage"),
        ("Failed", 'Failed to pull image "train:v9": not found', "code"),
        ("FailedMount", 'MountVolume.SetUp failed: object "default"/"kube-root-ca.crt" not registered', "unknown"),
    ],
)
def test_what_keeps_a_pod_from_its_start_is_over_once_the_job_makes_steps(
    reason: str, message: str, cause: str, tmp_path: Path
) -> None:
    event = {"kubectl.json": _event(reason, message, "07:00:00")}
    assert case_of(tmp_path / "waits", {"rank_1.log": WATCHDOG_OF_1, **event}).verdict.cause == cause
    assert case_of(tmp_path / "went on", {"rank_1.log": STEPS + WATCHDOG_OF_1, **event}).verdict.cause == "unknown"


@pytest.mark.parametrize(("reason", "cause"), [("ImagePullBackOff", "code"), ("ContainerCreating", "unknown")])
def test_a_container_that_waits_says_for_what(reason: str, cause: str, tmp_path: Path) -> None:
    waits = {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": "Back-off"}}}]}
    pod = {"kind": "Pod", "metadata": {"name": "train-1"}, "spec": {"nodeName": "n2"}, "status": waits}
    assert case_of(tmp_path, {"pods.json": json.dumps(pod), "rank_1.log": WATCHDOG_OF_1}).verdict.cause == cause


CONTAINED = "2026-03-01T08:00:01,000000+00:00 NVRM: Xid (PCI:0000:00:08): 94, pid='<unknown>', Contained: SM (0x1).\n"


@pytest.mark.parametrize(("message", "cause"), [("uncorrectable ECC error encountered", "hardware"), ("x", "unknown")])
def test_a_contained_memory_error_counts_where_a_rank_of_its_node_met_one(
    message: str, cause: str, tmp_path: Path
) -> None:
    own = CUDA_OF_3.replace("unspecified launch failure", message)
    files = {"rank_3.log": STEPS + own, "gpu003-dmesg.txt": CONTAINED, "sacct.txt": SACCT.format(state="FAILED")}
    case = case_of(tmp_path, files)
    assert (case.verdict.cause, case.advice.nodes["gpu003"]) == (cause, TEST if cause == "hardware" else KEEP)


EVALUATES = "".join(f"2026-03-01 07:{minute:02d}:00,000 INFO evaluating shard {minute}\n" for minute in range(60))
REMOVED = "rm: cannot remove '/tmp/cache': No such file or directory\n"


@pytest.mark.parametrize("early", [REMOVED, f"2026-03-01 07:00:00,000 start\n{REMOVED}"])
@pytest.mark.parametrize(
    ("ended", "cause", "words"),
    [
        (WATCHDOG_OF_1, "unknown", "ranks waited for others in vain"),
        ("/spool/slurm_script: line 9: 555 Killed     python train.py\n", "unknown", "a process got SIGKILL"),
        ("KeyError: 'duration'\n", "code", "the job's own code raised an exception: KeyError"),
        ("python: can't open file '/home/u/eval.py': [Errno 2]\n", "code", "a program or a file that the job names is"),
    ],
)
def test_a_job_without_steps_outlived_what_it_wrote_long_after(
    early: str, ended: str, cause: str, words: str, tmp_path: Path
) -> None:
    files = {"slurm-77.out": early + EVALUATES + ended, "sacct.txt": SACCT.format(state="FAILED")}
    verdict = case_of(tmp_path, files).verdict
    assert (verdict.cause, verdict.why[: len(words)]) == (cause, words)
    assert not verdict.why.endswith(REMOVED.strip())


def test_an_early_error_that_a_job_without_steps_outlived_hides_no_broken_gpu(tmp_path: Path) -> None:
    log = XID_79.format(time="07:59:30")
    files = {"slurm-77.out": REMOVED + EVALUATES + WATCHDOG_OF_1, "gpu003-dmesg.txt": log}
    case = case_of(tmp_path, {**files, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.nodes) == ("hardware", ("gpu003",))


def test_what_others_wrote_while_they_waited_does_not_say_that_the_job_went_on(tmp_path: Path) -> None:
    failed = "2026-03-01 07:00:00,000 INFO\nKeyError: 'duration'\n"
    waited = "2026-03-01 07:30:00,000 RuntimeError: Timed out waiting 1800000ms for recv operation\n"
    after = "2026-03-01 07:50:00,000 INFO atexit\n"
    assert case_of(tmp_path, {"train.log": failed + waited + after}).verdict.cause == "code"


@pytest.mark.parametrize(("pid", "cause"), [(10, "resources"), (9999, "unknown")])
def test_a_rank_that_the_kernel_killed_need_not_say_so(tmp_path: Path, pid: int, cause: str) -> None:
    joined = "gpu003:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1\n"
    log = f"2026-03-01T08:00:00,000000+00:00 Out of memory: Killed process {pid} (python) total-vm:9kB, anon-rss:9kB\n"
    files = {"rank_1.log": STEPS + WATCHDOG_OF_1, "rank_3.log": STEPS + joined, "gpu003-dmesg.txt": log}
    verdict = case_of(tmp_path, {**files, "sacct.txt": SACCT.format(state="FAILED")}).verdict
    assert (verdict.cause, verdict.rank if cause == "resources" else 3) == (cause, 3)


HEARTBEATS = "".join(f"2026-03-01 07:{minute:02d}:30,000 INFO prefetched shard {minute}\n" for minute in range(30))
BY_NCCL = WATCHDOG_OF_1.replace("08:10", "07:30").replace("600020 milli", "1800020 milli")
BY_GLOO = "2026-03-01 07:30:10,000 RuntimeError: Timed out waiting 1800000ms for recv operation\n"


@pytest.mark.parametrize("waited", [BY_NCCL, BY_GLOO])
def test_heartbeats_of_ranks_that_wait_do_not_say_that_the_job_went_on(waited: str, tmp_path: Path) -> None:
    failed = "2026-03-01 07:00:00,000 INFO\nKeyError: 'duration'\n"
    files = {"train.log": failed + HEARTBEATS + waited, "sacct.txt": SACCT.format(state="FAILED")}
    assert case_of(tmp_path, files).verdict.cause == "code"
