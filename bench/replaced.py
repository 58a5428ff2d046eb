"""Compares this suite with the script it replaces on a simulated HyperPod cluster: sessions, nodes and seconds.

The script (`perf-snapshot.sh`) opens a session for each question to its one node; this sends its commands in its order,
one session each, over the same double of Systems Manager. A real session takes a second or more in addition.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figure import Figure
from bench.runs import ROOT
from clusterproof.plugins.inventory import Target
from clusterproof.plugins.transport import Limits, Program, connection_for
from tests.aws.clusters import ID, NAME, instance_id, private_name, with_cluster
from tests.aws.service import environment, moto, service_before
from tests.aws.systems_manager import SystemsManager, install_plugin, systems_manager
from tests.testbed.needs import needs_slurm
from tests.testbed.node import Node, healthy_p5
from tests.testbed.slurm import CONTROLLER, slurm

NODES = 6
PREFIX = f"sagemaker-cluster:{ID}"
CONTROLLERS = "controller-machine"
ITS_COMMANDS = (  # the commands it runs on the node, with the ids of its checks
    "modinfo efa; fi_info -v; nvidia-smi --query-gpu=driver_version --format=csv",  # A2
    "cat /sys/class/infiniband/*/ports/1/state",  # A3
    "fi_info -p efa",  # A4
    "nvidia-smi topo -m",  # A6
    "mount",  # B1
    "df -h /fsx /opt/dlami/nvme /opt/sagemaker; lfs df -h",  # B4
    "sleep 1",  # B5: iostat -c 1 2 samples for a second
    "nvidia-smi --query-gpu=index,temperature.gpu --format=csv",  # G1
    "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",  # G2
    "dmesg -T",  # G3
    "nvidia-smi nvlink -s",  # G4
    "nvidia-smi nvlink -e",  # G4
    "df -k /dev/shm",  # I1
    "df /",  # I2
)


def beside_the_script() -> Iterator[Figure]:
    """One session per node and one for the cluster, beside one session per question."""
    if needs_slurm.args[0]:
        yield Figure("sessions_per_node", None, "1", str(needs_slurm.kwargs["reason"]))
        return
    with _cluster() as (manager, where):
        direct_s, direct = _counted(manager, lambda: _run(where, "nodes"))
        hop_s, hop = _counted(manager, lambda: _run(where, "controller"))
        script_s, script = _counted(manager, _script)
    yield Figure("sessions_per_node", direct / NODES, "1", f"{NODES} of {NODES} nodes; the script: {script} for 1 node")
    yield Figure("sessions_via_controller", hop, "1", f"for all {NODES} nodes, in {hop_s:.1f} s")
    yield Figure(
        "seconds_per_node_vs_script",
        round(direct_s / NODES / script_s, 2),
        "≤ 1",
        f"{direct_s:.1f} s for {NODES} nodes with every check, beside {script_s:.1f} s for one",
    )


@contextmanager
def _cluster() -> Iterator[tuple[SystemsManager, Path]]:
    """A HyperPod cluster of fake nodes with a controller; yields where to run the suite, and sets the environment."""
    names = [private_name(f"workers-{number}").partition(".")[0] for number in range(NODES)]
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(service_before(stack.enter_context(moto())))
        bed = stack.enter_context(slurm({name: healthy_p5(name) for name in names}))
        manager = stack.enter_context(systems_manager(service))
        install_plugin(where)
        inside: dict[str, Node] = {_address("workers", number): bed.node(name) for number, name in enumerate(names)}
        inside[_address(CONTROLLERS, 0)] = bed.node(CONTROLLER)

        def run(target: str, command: object) -> bytes:
            done = inside[target].run(list(command), timeout=60)  # type: ignore[call-overload]
            return bytes(done.stdout + done.stderr)

        manager.run = run
        with_cluster(service, {"workers": ("ml.p5.48xlarge", NODES), CONTROLLERS: ("ml.c5.xlarge", 1)})
        stack.enter_context(_environment({**environment(service), "PATH": f"{where}:{os.environ['PATH']}"}))
        yield manager, where


def _address(group: str, number: int) -> str:
    return f"{PREFIX}_{group}-{instance_id(f'{group}-{number}')}"


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _counted(manager: SystemsManager, act: Callable[[], object]) -> tuple[float, int]:
    """Seconds taken and sessions opened by a call."""
    before, began = len(manager.started), time.perf_counter()
    act()
    return time.perf_counter() - began, len(manager.started) - before


def _run(where: Path, via: str) -> None:
    command_line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-report", f"--rootdir={ROOT}"]
    command_line.append(str(ROOT / "checks"))
    command_line += ["--cluster", NAME, "--region", "us-west-2", "--via", via, "-m", "preflight and not control_plane"]
    done = subprocess.run(command_line, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 10):
        raise RuntimeError(done.stdout + done.stderr)


def _script() -> None:
    """Run the script's sessions one after another on its one node."""
    target = Target("node", _address("workers", 0))
    for command in ITS_COMMANDS:
        limits = Limits(settings={"region": "us-west-2", "ssm_rate": "1000"})
        program = Program(f"/bin/sh -c '{command}; echo done'")
        connection_for("hyperpod").run([target], program, limits, lambda _target, _answer: None)
