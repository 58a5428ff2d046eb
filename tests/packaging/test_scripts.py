"""The scripts that the wheel installs, named in slurm.conf and in a unit as documented, on fake nodes."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.builders.runs import ROOT
from tests.builders.wheel import Installed
from tests.faults import BY_NAME
from tests.integrations.slurm.scripts import NAMES, eventually, scripted
from tests.testbed.image import Link, NodeImage
from tests.testbed.needs import needs_nodes, needs_slurm
from tests.testbed.node import Node, entered, healthy_p5, with_file, with_whole_machine

BIN = "/opt/clusterproof/bin"
IDLE = "integrations/systemd/clusterproof-idle"
SICK, HEALTHY = "gpu001", "gpu002"
REASON = "clusterproof: gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST; expected an answer"


def lost(name: str) -> NodeImage:
    """A node with a lost GPU."""
    return BY_NAME["a GPU that is lost"].put(healthy_p5(name))


@needs_slurm
def test_slurm_runs_the_prolog_the_epilog_and_the_health_check(installed: Installed) -> None:
    named = [f"{keyword}={BIN}/clusterproof-{name}" for keyword, name in NAMES.items()]
    more = [*named, "HealthCheckInterval=3600", "SchedulerParameters=nohold_on_prolog_fail"]
    images = {name: healthy_p5(name) for name in (SICK, HEALTHY)}
    toml = 'mode = "drain"\ndeadline_s = 8\n[health_check]\nmax_drained_nodes = 2\nmax_drained_percent = 100\n'
    with scripted(images, {}, toml, *more, home=installed.environment) as bed:
        bed.nvml(SICK, lost(SICK))
        job = bed.submit(SICK, HEALTHY)
        assert bed.reason_beginning(SICK, REASON)
        assert bed.ran_on(job) == HEALTHY
        assert eventually(lambda: "checked" if bed.probes(HEALTHY, "epilog") else "")
        assert bed.probes(HEALTHY, "prolog") == 1
        bed.nvml(HEALTHY, lost(HEALTHY))
        bed.node(HEALTHY).run([f"{BIN}/clusterproof-health-check"], env={"SLURMD_NODENAME": HEALTHY})
        assert bed.reason_beginning(HEALTHY, REASON)
        assert "no verdict" not in bed.logged(SICK) + bed.logged(HEALTHY)


def wake(node: Node) -> str:
    """Run what the timer runs; returns the journal's lines."""
    ran = node.run([f"{BIN}/clusterproof-idle"], env={"LOGS_DIRECTORY": "/var/log/clusterproof"}, timeout=600)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode().strip()


@needs_nodes
def test_an_idle_node_is_checked_by_what_lies_beside_the_script(installed: Installed) -> None:
    output_of = {}
    for name, image in ((SICK, lost(SICK)), (HEALTHY, healthy_p5(HEALTHY))):
        image = with_whole_machine(with_file(image, "/opt/clusterproof", Link(str(installed.environment))))
        with entered(image, name) as node:
            output_of[name] = wake(node)
            kept = {path.name for path in (node.root / "var/log/clusterproof").iterdir()}
            assert kept >= {"idle.jsonl", "idle.exit", "report", "history.sqlite"}
    assert output_of[SICK].startswith("FAILED: ")
    assert "GPU responsiveness" in output_of[SICK]
    assert not output_of[HEALTHY].startswith(("FAILED", "not checked")), output_of[HEALTHY]


def woken_alone(folder: Path, before: str = "", **env: str) -> str:
    """Run the script beside a stand-in for clusterproof, where it sees no other process; returns its lines."""
    folder.chmod(0o755)
    script = f"{before}\nsh {ROOT}/clusterproof/{IDLE}"
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c", script]
    env = {
        "CLUSTERPROOF_HOME": str(folder),
        "LOGS_DIRECTORY": f"{folder}/logs",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        **env,
    }
    ran = subprocess.run(alone, env=env, capture_output=True, text=True, timeout=600, check=True)
    return ran.stdout.strip()


def program(path: Path, script: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


STARTED = """setpriv --reuid={user} --clear-groups {folder}/slurmstepd 600 >/dev/null &
until [ "$(cat /proc/$!/comm)" = slurmstepd ]; do sleep 0.01; done"""


@needs_nodes
@pytest.mark.parametrize(("user", "is_busy"), [(0, True), (65534, False)], ids=["root", "a user"])
def test_only_slurms_own_process_keeps_a_node_from_being_checked(user: int, is_busy: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy("/bin/sleep", folder / "slurmstepd")
        program(folder / "clusterproof", "")
        woken = woken_alone(folder, STARTED.format(user=user, folder=folder))
    assert woken == ("not checked: a job of Slurm's runs" if is_busy else "fit")


@needs_nodes
def test_a_change_of_an_idle_node_of_which_nobody_could_be_notified_is_notified_in_the_next_hour(
    tmp_path: Path,
) -> None:
    program(tmp_path / "clusterproof", "echo 'FAIL  gpu.no_xid'; exit 1")
    for status in (1, 0, 1):
        program(tmp_path / "notify", f'echo "$1" >>{tmp_path}/notified; exit {status}')
        woken = woken_alone(tmp_path, NOTIFY=f"{tmp_path}/notify")
        assert woken.startswith("FAILED: FAIL gpu.no_xid")
    assert len((tmp_path / "notified").read_text().splitlines()) == 2


@needs_nodes
@pytest.mark.parametrize(
    ("titles", "words"),
    [
        (["Xid errors"], "FAIL Xid errors"),
        (["Xid errors", "Mounts", "Limits"], "FAIL Xid errors; and 2 more: see {log}"),
    ],
    ids=["one", "several"],
)
def test_of_several_failures_of_an_idle_node_it_is_said_how_many(tmp_path: Path, titles: list[str], words: str) -> None:
    lines = "".join(f"FAIL        {title}\n            do: FAIL it\n" for title in titles)
    program(tmp_path / "clusterproof", f"printf '{lines}'; exit 1")
    assert woken_alone(tmp_path) == f"FAILED: {words.format(log=f'{tmp_path}/logs/idle.log')}"


@needs_nodes
def test_results_of_a_check_that_was_killed_are_not_taken_for_those_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "idle.jsonl.new").write_text('{"check":"gpu.no_xid","verdict":"pa')
    program(tmp_path / "clusterproof", "exit 4")  # as for a policy that is not valid
    assert woken_alone(tmp_path).startswith("not checked: clusterproof ended with 4")
    assert not (tmp_path / "logs" / "idle.jsonl").exists()


FAILED = "FAILED: FAIL Driver response time"


@needs_nodes
@pytest.mark.parametrize(
    ("nvidia_smi", "words"),
    [
        ("echo 4711; echo 4712", "not checked: process 4711 uses a GPU"),
        ("echo No devices were found; exit 6", FAILED),
        ("trap '' TERM; setsid /bin/sleep infinity & exec /bin/sleep infinity", FAILED),  # nothing ends its output
    ],
    ids=["in use", "no answer", "never ends"],
)
def test_a_node_whose_driver_never_answers_is_checked_as_one_that_is_idle(
    tmp_path: Path, nvidia_smi: str, words: str
) -> None:
    program(tmp_path / "clusterproof", "echo 'FAIL  Driver response time'; exit 1")
    program(tmp_path / "nvidia-smi", nvidia_smi)
    program(tmp_path / "sleep", "exec /bin/sleep 0.01")
    assert woken_alone(tmp_path, PATH=f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin") == words
