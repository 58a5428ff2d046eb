"""Whatever an unprivileged user's processes pretend to be, on a real kernel, it is no fault of the node."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.gpu.facts_parts import GpuProcess
from clusterproof.plugins.evidence.host.collect_services import MAX_FAILED
from clusterproof.plugins.evidence.host.facts_node import JobProcess
from tests.builders.evaluated import results
from tests.builders.probed import PATIENT, probe_node, value
from tests.testbed.image import File
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, entered, healthy_cpu, healthy_p5, with_file, with_nvml, with_service
from tests.testbed.nvml.values import VALUES_PATH
from tests.untrusted.programs import OTHER, SLURM, USER, hold


def renamed(node: Node, name: str) -> int:
    """A process of the user's with this name."""
    return hold(node, f"ulimit -l 0; echo -n {name} >/proc/$$/comm")


def setuid(node: Node, name: str, arguments: str = "60") -> int:
    """A setuid root program that the user starts through a link of that name, with his own limits and arguments."""
    source = '#include <unistd.h>\nint main(void) { write(1, "held\\n", 5); setuid(0); pause(); }'
    subprocess.run(["gcc", "-x", "c", "-", "-o", str(node.root / "usr/bin/held")], input=source.encode(), check=True)
    node.run(["chmod", "4755", "/usr/bin/held"])
    script = f"ulimit -l 0; ln -s /usr/bin/held /tmp/{name}; echo $$; exec -a '{name}: [41.0]' /tmp/{name} {arguments}"
    process = node.start(["/bin/bash", "-c", script], user=USER, stdout=subprocess.PIPE)
    assert process.stdout
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == b"held\n"
    return pid


PRETENDING = (renamed, setuid)


@needs_nodes
@pytest.mark.parametrize("pretend", PRETENDING)
@pytest.mark.parametrize("daemon", ["slurmd", "containerd"])
def test_a_users_process_that_is_called_like_a_daemon_has_not_its_limits(
    daemon: str, pretend: Callable[[Node, str], int]
) -> None:
    image = healthy_cpu()
    others = {name: limit for name, limit in image.daemons.items() if name != daemon}
    with entered(replace(image, daemons=others)) as node:
        pretend(node, daemon)
        limits = probe_node(node, ["limits"], PATIENT).collectors["limits"].value
    assert daemon not in limits["daemons"]


@needs_nodes
@pytest.mark.parametrize("daemon", ["slurmd", "containerd"])
def test_a_process_whose_program_only_root_may_see_has_unknown_limits(daemon: str) -> None:
    image = healthy_cpu()
    others = {name: limit for name, limit in image.daemons.items() if name != daemon}
    with entered(replace(image, daemons=others)) as node:
        setuid(node, daemon)
        evidence = probe_node(node, ["limits"], PATIENT, user=OTHER)
    assert evidence.collectors["limits"].value["daemons"][daemon]["error"] == "EACCES"
    assert results(evidence)["host.ulimits"].verdict is Verdict.INCOMPLETE


@needs_nodes
def test_a_step_of_which_only_root_may_know_leaves_its_jobs_processes_unknown() -> None:
    with entered(healthy_cpu()) as node:
        setuid(node, "slurmstepd")
        pid = hold(node, "", "/usr/bin/env -i /bin/sh")
        group = "0::/slurm/uid_7/job_41/step_0"
        node.run(["sh", "-c", f"echo {group} >/run/group; mount --bind /run/group /proc/{pid}/cgroup"])
        jobs = probe_node(node, ["jobs"], PATIENT, user=OTHER).collectors["jobs"].value
    assert (jobs["left"], jobs["running"]) == ([], [])
    assert jobs["unread"] > 0


@needs_nodes
@pytest.mark.parametrize("user", [0, OTHER], ids=["root", "another user"])
def test_a_users_process_that_is_called_kubelet_names_no_file_to_read(user: int) -> None:
    with entered(healthy_cpu()) as node:
        pid = setuid(node, "kubelet", "--config=/etc/shadow")
        assert node.run(["cat", f"/proc/{pid}/comm"]).stdout.strip() in ("kubelet", b"kubelet")
        answer = probe_node(node, ["kubelet"], PATIENT, user=user).collectors["kubelet"]
    assert answer.status is Status.ABSENT


OF_A_STEP = "SLURM_JOB_ID=41 SLURMD_NODENAME=node001"


@needs_nodes
@pytest.mark.parametrize(
    ("environment", "group", "jobs"),
    [
        (OF_A_STEP, "", ["41"]),
        ("SLURM_JOB_ID=41", "", []),  # salloc's shell
        (f"-i {OF_A_STEP}", "/slurm/uid_7/job_41/step_batch", ["41"]),
        ("-i", "/system.slice/slurmstepd.scope/job_41/step_0/user/task_0", ["41"]),
        ("-i SLURM_JOB_ID=42 SLURMD_NODENAME=a", "/slurm/uid_7/job_41/step_0", ["41"]),
        ("-i", "/user.slice/user-7.slice/session-1.scope", []),
        ("-i", "/user.slice/user-7.slice/user@7.service/slurm/uid_7/job_41/step_0", []),  # made by a user
    ],
)
def test_a_process_is_of_the_job_of_its_group_else_of_the_step_that_started_it(
    environment: str, group: str, jobs: list[str]
) -> None:
    with entered(healthy_cpu()) as node:
        pid = hold(node, "", f"/usr/bin/env {environment} /bin/sh")
        if group:
            node.run(["sh", "-c", f"echo 0::{group} >/run/group; mount --bind /run/group /proc/{pid}/cgroup"])
        processes = probe_node(node, ["jobs"], PATIENT).collectors["jobs"].value
    assert [process["job"] for process in processes["left"]] == jobs


STEP = "slurmstepd: [41.0]"


def of_slurm(node: Node, user: int = 0, program: str = "/usr/bin/slurmstepd") -> None:
    """A process with slurmstepd's title."""
    script = f"ln -s {program} /run/slurmstepd; exec -a '{STEP}' /run/slurmstepd 60"
    node.run(["chmod", "777", "/run"])
    node.start(["/bin/bash", "-c", script], user=user)
    node.run(["sh", "-c", "until grep -qx slurmstepd /proc/[0-9]*/comm; do :; done"])


@needs_nodes
@pytest.mark.parametrize(
    ("step", "jobs"),
    [
        (of_slurm, []),
        (partial(of_slurm, program="/usr/bin/slurmstepd-wlm"), []),  # Debian's name for it
        (partial(of_slurm, user=SLURM), []),
        (partial(of_slurm, user=USER), ["41"]),
        (partial(of_slurm, user=SLURM, program="/usr/bin/sleep"), ["41"]),
        (partial(setuid, name="slurmstepd"), ["41"]),
    ],
    ids=["root's", "root's, by another name", "SlurmdUser's", "a user's", "another program's", "a setuid program's"],
)
def test_only_slurmstepd_itself_says_that_a_job_runs(step: Callable[[Node], object], jobs: list[str]) -> None:
    image = with_file(healthy_cpu(), "/etc/slurm/slurm.conf", "SlurmUser=root\n SlurmdUser = slurm # its daemons\n")
    image = with_file(image, "/etc/passwd", f"root:x:0:0::/root:/bin/sh\nslurm:x:{SLURM}:{SLURM}::/:/bin/sh\n")
    for name in ("slurmstepd", "slurmstepd-wlm"):
        image = with_file(image, f"/usr/bin/{name}", File(Path("/bin/sleep").read_bytes(), 0o755))
    with entered(image) as node:
        step(node)
        hold(node, "", f"/usr/bin/env {OF_A_STEP} /bin/sh")
        processes = probe_node(node, ["jobs"], PATIENT).collectors["jobs"].value
    assert [process["job"] for process in processes["left"]] == jobs


@needs_nodes
def test_one_users_many_processes_hide_none_of_another() -> None:
    with entered(healthy_cpu()) as node:
        many = "for number in $(seq 1000 1099); do SLURM_JOB_ID=$number SLURMD_NODENAME=a sleep 600 & done"
        hold(node, many)
        pid = hold(node, "", f"/usr/bin/env {OF_A_STEP} /bin/sh", user=OTHER)
        jobs = probe_node(node, ["jobs"], PATIENT).collectors["jobs"].value
    assert jobs["left_out"] > 0
    assert jobs["left"][1] == {"pid": pid, "name": "sh", "uid": OTHER, "job": "41", "is_sure": False}


SERVER, CONTROL = "/usr/bin/nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-control"


def server_of_root(node: Node) -> int:
    """A server that root's daemon has started for a user."""
    return started(node, [CONTROL, "-c", f"setpriv --reuid={USER} {SERVER} 60 & echo $!; wait"])


def server_of_a_user(node: Node) -> int:
    return started(node, [CONTROL, "-c", f"{SERVER} 60 & echo $!; wait"], USER)


def server_of_a_setuid_parent(node: Node) -> int:
    """A user's server with a root parent that is no control daemon."""
    return started(node, ["/bin/sh", "-c", f"setpriv --reuid={USER} {SERVER} 60 & echo $!; wait"])


def control_of_root(node: Node) -> int:
    return started(node, [CONTROL, "-c", "echo $$; read -r line; :"])


def started(node: Node, argv: list[str], user: int = 0) -> int:
    process = node.start(argv, user=user, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    return int(process.stdout.readline())


@needs_nodes
@pytest.mark.parametrize(
    ("holder", "verdict"),
    [
        (control_of_root, Verdict.CONCERN),
        (server_of_root, Verdict.CONCERN),
        (server_of_a_user, Verdict.FAIL),
        (server_of_a_setuid_parent, Verdict.FAIL),
        (partial(renamed, name="nvidia-cuda-mps"), Verdict.FAIL),
        (partial(setuid, name="nvidia-cuda-mps-server"), Verdict.FAIL),
    ],
    ids=["control", "server", "a user's server", "of another parent", "a name", "a setuid program"],
)
def test_only_mps_of_the_nodes_own_may_hold_a_gpu(holder: Callable[[Node], int], verdict: Verdict) -> None:
    image = with_file(healthy_p5(), CONTROL, File(Path("/bin/sh").read_bytes(), 0o755))
    with entered(with_file(image, SERVER, File(Path("/bin/sleep").read_bytes(), 0o755))) as node:
        pid = holder(node)
        node.run(["sh", "-c", f"until grep -q mps /proc/{pid}/comm; do :; done"])
        held_by = with_nvml(image, gpu=2, processes=f"{pid}:900").nvml or ""
        (node.root / VALUES_PATH.lstrip("/")).write_text(held_by)
        evidence = probe_node(node, sorted(collector_names()), PATIENT)
    assert results(evidence, occasion="prolog")["gpu.no_leftover_processes"].verdict is verdict


@pytest.mark.parametrize(
    ("group", "is_of_a_job"),
    [
        ("/slurm/uid_7/job_41/step_0", True),
        ("/kubepods.slice/kubepods-burstable.slice/x", True),
        ("/user.slice/user-7.slice/user@7.service/job_41", False),
        ("/user.slice/user-7.slice/user@7.service/kubepods", False),
        ("", False),
    ],
)
def test_a_control_group_that_a_user_has_made_is_no_jobs(group: str, is_of_a_job: bool) -> None:
    assert GpuProcess({"cgroup": group}).is_of_a_job is is_of_a_job


def test_a_process_that_calls_itself_a_sentence_is_called_by_one_word() -> None:
    names = (JobProcess({"name": "of job 42"}).name, GpuProcess({"name": "GPU 0,\nGPU 1"}).name)
    assert names == ("of_job_42", "GPU_0,_GPU_1")


@needs_nodes
def test_a_failed_service_is_named_among_however_many_units_that_users_have_fail() -> None:
    image = healthy_cpu()
    for number in range(100):
        for unit in (f"run-r{number}.scope", f"app-crash@{number}.service", f"docker-{number}.scope"):
            image = with_service(image, unit, active="failed")
    image = with_service(image, "zzz.service", active="failed")
    failed = value(image, "services")["failed"]
    assert failed[0] == "zzz.service"
    assert len(failed) == MAX_FAILED
