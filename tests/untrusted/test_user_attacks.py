"""Everything an unprivileged user can do on a node, at once on a real kernel: it drains nothing, and hides nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from clusterproof.integrations.slurm.checking import findings_in
from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.verdict import CheckRun, draining
from clusterproof.plugins.agent.process_group import is_starved
from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, from_json, to_json
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.node import DRAINING
from tests.builders.evaluated import results, verdict_of
from tests.builders.probed import PATIENT, probe_node
from tests.builders.user_floods import FAULTS, crashes, in_the_middle
from tests.faults import BY_NAME
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, entered, healthy_p5, with_line

pytestmark = needs_nodes

USER, OTHERS = 65534, Job("42", "1000")
FOREVER = "exec sleep 600"
FORK = """
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 100; i++) if (!fork()) { if (!vfork()) { pause(); _exit(0); } _exit(0); }
    write(1, "done\\n", 5);
    pause();
}
"""
# Each is a user's script that keeps running after it prints `done`.
ATTACKS = {
    "a hundred processes in state D": "exec /usr/bin/vforks",
    "names of daemons": f"""
        for name in slurmd containerd slurmstepd nvidia-cuda-mps nv-hostengine; do
            (ulimit -l 0; echo $name >/proc/self/comm 2>/dev/null; ln -s /bin/sleep /tmp/$name; exec /tmp/$name 600) &
        done; echo done; {FOREVER}""",
    "titles of slurmd's": f"exec -a 'slurmstepd: [42.batch]' sleep 600 & echo done; {FOREVER}",
    "a name that breaks out of its field": "printf 'x) D 1 (\\n1' >/proc/$$/comm; echo done; read -r line </dev/zero",
    "an environment of other users' jobs": f"""
        for job in 41 42 43; do SLURM_JOB_ID=$job SLURMD_NODENAME=gpu001 SLURM_TASK_PID=1 sleep 600 & done
        echo done; {FOREVER}""",
    "an environment of a megabyte": f"export X=$(head -c 100000 /dev/zero | tr '\\0' x); echo done; {FOREVER}",
    "mounts of his own": f"""
        unshare -Urm sh -c 'for at in / /dev/shm /tmp /proc /sys; do mount -t tmpfs -o ro none $at; done; {FOREVER}' &
        echo done; {FOREVER}""",
    "a network of his own": f"unshare -Urn sh -c 'ip link set lo down; {FOREVER}' & echo done; {FOREVER}",
    "process numbers of his own": f"unshare -Urpf --mount-proc sh -c 'sleep 600' & echo done; {FOREVER}",
    "shared memory": f"""
        cd /dev/shm; truncate -s 100T nccl-sparse; ln -s nccl-b nccl-a; ln -s nccl-a nccl-b; mkfifo nccl-pipe
        mkdir nccl-folder; touch "$(printf 'a\\nb')" "$(printf '\\377')"; touch -d @-9000000000 nccl-old
        for number in $(seq 2000); do echo x >nccl-$number; done; ipcmk -M 1048576 >&2; echo done; {FOREVER}""",
    "crashes": f"cd /tmp; ulimit -c unlimited; sh -c 'kill -SEGV $$'; echo done; {FOREVER}",
    "the dead whom nobody waits for": "exec python3 -c 'import os, time\nfor _ in range(500): os.fork() or os._exit(0)"
    '\nprint("done", flush=True); time.sleep(600)\'',
    "processes that are stopped": f"sleep 600 & kill -STOP $!; echo done; {FOREVER}",
}


def output_of(node: Node) -> NodeEvidence:
    return probe_node(node, sorted(collector_names()), PATIENT)


def attacked(image: NodeImage) -> NodeEvidence:
    """A node's report while all attacks are under way."""
    with entered(image, "gpu001") as node:
        subprocess.run(
            ["gcc", "-x", "c", "-", "-o", str(node.root / "usr/bin/vforks")], input=FORK.encode(), check=True
        )
        for name, script in ATTACKS.items():
            process = node.start(["/bin/bash", "-c", script], user=USER, stdout=subprocess.PIPE)
            assert process.stdout
            assert process.stdout.readline() == b"done\n", name
        return output_of(node)


def drained_for(evidence: NodeEvidence, occasion: str) -> dict[str, str]:
    """The checks for which a script would drain, with messages, as another user's job begins or ends."""
    findings = tuple(findings_in(results(evidence, occasion=occasion).values(), evidence))
    run = CheckRun("boot", 1.0, 0.1, len(findings), findings, None, None)
    return {result.check: result.message for result in draining(run, OTHERS, is_epilog=occasion == "epilog")}


def test_no_script_drains_for_what_a_user_does() -> None:
    with entered(healthy_p5(), "gpu001") as node:
        calm = output_of(node)
    evidence = attacked(healthy_p5())
    for occasion in DRAINING:
        assert drained_for(calm, occasion) == {}, occasion
        assert drained_for(evidence, occasion) == {}, occasion
    changed = {
        name: collector.detail
        for name, collector in evidence.collectors.items()
        if collector.status != calm.collectors[name].status
    }
    assert changed == {}


def test_no_fault_is_hidden_by_what_a_user_does() -> None:
    image = BY_NAME["a GPU that is lost"].put(BY_NAME["an Xid of the hardware"].put(healthy_p5()))
    assert {"gpu.gpu_answers", "gpu.no_xid"} <= drained_for(attacked(image), "prolog").keys()


def test_no_fault_is_hidden_by_what_users_have_logged() -> None:
    image = BY_NAME["an Xid of the hardware"].put(healthy_p5())
    lines = in_the_middle(crashes(2_100), list(FAULTS))
    logged = "".join(f"6,{9000 + at},{80_100_000_000 + at},-;{line}\n" for at, line in enumerate(lines))
    with entered(with_line(image, "/dev/kmsg", logged.rstrip())) as node:
        evidence = output_of(node)
    assert {"gpu.no_xid", "network.nic_driver_errors", "host.no_oom_kill"} <= drained_for(evidence, "prolog").keys()
    by_check = results(evidence)
    assert [check for check, result in by_check.items() if "kernel log were" in result.message] == []


SPIN = "for number in $(seq 30); do while :; do :; done & echo $!; done; echo done; wait"


@pytest.mark.parametrize(("script", "is_starved_"), [(SPIN, True), ("echo $$; echo done; sleep 600", False)])
def test_a_process_without_a_processor_is_known_from_one_that_waits_for_something(
    script: str, is_starved_: bool
) -> None:
    """Of thirty that share a processor, each gets a thirtieth; one that sleeps needs none."""
    with subprocess.Popen(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), "/bin/bash", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        pids = [int(line) for line in iter(process.stdout.readline, "done\n")]
        time.sleep(1.0)
        starved = [is_starved(pid, 1.0) for pid in pids]
        os.killpg(process.pid, signal.SIGKILL)
    assert all(starved) if is_starved_ else not any(starved)


@pytest.mark.parametrize(("starved", "verdict"), [(True, Verdict.INCOMPLETE), (False, Verdict.FAIL)])
def test_a_driver_that_was_not_asked_in_time_for_want_of_a_processor_is_no_hang(
    starved: bool, verdict: Verdict
) -> None:
    evidence = NodeEvidence(
        "gpu001", {"nvml": Collected(Status.TIMED_OUT, detail="nvmlInit", seconds=15.0, starved=starved)}
    )
    assert results(from_json(to_json(evidence)))["gpu.driver_answers_in_time"].verdict is verdict


@pytest.mark.parametrize(("alive", "verdict"), [("slow", Verdict.INCOMPLETE), ("hung", Verdict.FAIL)])
def test_a_file_system_that_was_not_asked_for_want_of_a_processor_is_no_hang(alive: str, verdict: Verdict) -> None:
    mount = {"path": "/fsx", "type": "lustre", "source": "10.0.0.7@tcp:/x", "options": "rw", "alive": alive}
    assert verdict_of("storage.mounts_alive", mounts={"mounts": [mount], "fstab": []}).verdict is verdict
