"""A real Slurm over fake nodes: munge and slurmctld on a controller, munge and slurmd on every other node."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.testbed import slurm_version
from tests.testbed.archive import with_limits
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.healthy import healthy_cpu
from tests.testbed.image import Content, Device, File, Folder, NodeImage
from tests.testbed.node import Node
from tests.testbed.slurm_version import OWN, SlurmVersion

CONTROLLER = "controller"
START_S = 600.0
POLL_S = 0.2  # each look is a command of Slurm's, which costs 0.01 s of processor time
GPUS = 8
CPUS = 4

# Settings that Debian's Slurm needs on this machine: no accounting, no cgroups (the nodes' /sys is not the kernel's),
# and nodes taken to have the configured processors.
SLURM_CONF = """ClusterName=testbed
SlurmctldHost={controller}
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
ReturnToService=2
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.real.pid
SlurmdSpoolDir=/var/spool/slurmd
StateSaveLocation=/var/spool/slurmctld
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdTimeout=60
BatchStartTimeout=60
UnkillableStepTimeout=600
KillWait=1
MessageTimeout=10
RebootProgram=/bin/false
{settings}
{nodes}
PartitionName=gpu Nodes={members} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(slots=True)
class SlurmBed:
    """A running Slurm. Its commands run on `controller`."""

    __test__ = False

    bed: Testbed
    names: tuple[str, ...]
    version: SlurmVersion

    @property
    def controller(self) -> Node:
        return self.bed.nodes[CONTROLLER]

    def node(self, name: str) -> Node:
        return self.bed.nodes[name]

    def run(self, *arguments: str, user: int = 0, timeout: float = 600.0) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the controller, where Slurm's are."""
        return self.controller.run(arguments, user=user, timeout=timeout)

    def output_of(self, *arguments: str, user: int = 0) -> str:
        """The output of a command, which must succeed."""
        done = self.run(*arguments, user=user)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {(done.stdout + done.stderr).decode(errors='replace')}")
        return done.stdout.decode()

    def state(self, name: str) -> str:
        """A node's state as Slurm writes it: `IDLE`, `MIXED+DRAIN`, …"""
        return self._of_node(name, "State=")

    def reason(self, name: str) -> str:
        """Why a node is drained or down, with who set it and when; empty if it is neither."""
        return self._of_node(name, "Reason=")

    def wait_for(self, name: str, *states: str, timeout_s: float = START_S) -> str:
        """Wait until a node is in one of these states. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while (state := self.state(name)) not in states:
            if time.monotonic() > until:
                raise TimeoutError(f"{name} is {state}; expected {' or '.join(states)}: {self.log(name)}")
            time.sleep(POLL_S)
        return state

    def log(self, name: str) -> str:
        """The end of the log of a node's slurmd, or of slurmctld."""
        return self.whole_log(name)[-2000:]

    def whole_log(self, name: str) -> str:
        """The whole log of a node's slurmd, or of slurmctld."""
        file = "slurmctld.log" if name == CONTROLLER else "slurmd.log"
        return (self.node(name).root / "run" / file).read_text(errors="replace")

    def start_slurmd(self, name: str) -> subprocess.Popen[bytes]:
        """Start a node's slurmd with the image's limits, whatever this machine permits."""
        image = self.bed.images[name]
        limits = with_limits("slurmd", {**image.limits, "memlock": image.memlock})
        return self.node(name).start(["/bin/sh", "-c", f"{limits}\nexec slurmd -D -N {name}"])

    def _of_node(self, name: str, key: str) -> str:
        for line in self.output_of("scontrol", "show", "node", name).splitlines():
            if line.strip().startswith(key):
                value = line.strip().removeprefix(key)
                return value if key == "Reason=" else value.split()[0]
        return ""


@contextlib.contextmanager
def slurm(
    images: Mapping[str, NodeImage],
    *,
    settings: Sequence[str] = (),
    files: Mapping[str, Content] | None = None,
    cpus: int = CPUS,
    user: str = "root",
    version: SlurmVersion = OWN,
    is_accounted: bool = False,
) -> Iterator[SlurmBed]:
    """Run a Slurm of these nodes for the block.

    `settings` are further lines of slurm.conf, or replace those of SLURM_CONF; `files` are on every node for use in
    these lines; `version` is the Slurm that all run; `is_accounted` starts slurmdbd beside slurmctld.
    """
    if is_accounted:
        settings, files = (*slurm_version.SETTINGS, *settings), {**slurm_version.FILES, **(files or {})}
    own = _files(tuple(images), settings, cpus)
    whole = {CONTROLLER: version.on(_member(healthy_cpu(), {**own, **(files or {})}))}
    for name, image in images.items():
        whole[name] = version.on(_member(image, {**own, **_gpus(image), **(files or {})}))
    with testbed(whole, user=user) as bed:
        for node in bed.nodes.values():
            _hosts(bed, node)
        running = SlurmBed(bed, tuple(images), version)
        for node in bed.nodes.values():
            node.run(["/usr/sbin/munged", "--force"])
        if is_accounted:
            slurm_version.start(bed.nodes[CONTROLLER])
        bed.nodes[CONTROLLER].start(["/usr/sbin/slurmctld", "-D"])
        for name in images:
            running.start_slurmd(name)
        for name in images:
            running.wait_for(name, "IDLE")
        yield running


def _member(image: NodeImage, files: Mapping[str, Content]) -> NodeImage:
    """The image with Slurm's programs and files, and without the stand-in for slurmd."""
    daemons = {name: limit for name, limit in image.daemons.items() if name != "slurmd"}
    return replace(image, files={**image.files, **files}, daemons=daemons, whole_machine=True)


def _files(names: tuple[str, ...], settings: Sequence[str], cpus: int) -> dict[str, Content]:
    nodes = "\n".join(f"NodeName={name} CPUs={cpus} Gres=gpu:{GPUS} State=UNKNOWN" for name in names)
    conf = SLURM_CONF.format(controller=CONTROLLER, settings="\n".join(settings), nodes=nodes, members=",".join(names))
    set_anew = {f"{line.partition('=')[0]}=" for line in settings} - {"PartitionName=", "NodeName="}
    own = [line for line in conf.splitlines() if line in settings or not line.startswith(tuple(set_anew))]
    return {
        "/etc/slurm/slurm.conf": "".join(f"{line}\n" for line in own),
        "/etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
        "/etc/slurm/gres.conf": "",
        "/etc/munge/munge.key": File("0123456789abcdef" * 8, 0o400),
        "/run/munge": Folder(),
        "/var/lib/munge": Folder(0o700),
        "/var/log/munge": Folder(0o700),
        "/var/spool/slurmd": Folder(),
        "/var/spool/slurmctld": Folder(),
    }


def _gpus(image: NodeImage) -> dict[str, Content]:
    """GRES devices that Slurm can allocate; nothing is behind them."""
    devices: dict[str, Content] = {f"/dev/nvidia{number}": Device(195, number) for number in range(GPUS)}
    return {**devices, "/etc/slurm/gres.conf": f"Name=gpu File=/dev/nvidia[0-{GPUS - 1}]\n"}


def _hosts(bed: Testbed, node: Node) -> None:
    lines = [f"{address} {name}" for name, address in bed.addresses.items()]
    (node.root / "etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{line}\n" for line in lines))
