"""Jobs that die on a real Slurm, each of a known cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.case import acts
from tests.case.dying import NODES, STEP, DyingJob
from tests.testbed.image import Content, File, NodeImage
from tests.testbed.node import healthy_cpu
from tests.testbed.slurm import SlurmBed

USER = 1000  # known to the nodes
FILES: dict[str, Content] = {"/etc/slurm/prolog.sh": File("#!/bin/sh\n[ ! -e /run/prolog-fails ]\n", 0o755)}


def images(nodes: Sequence[str] = NODES) -> dict[str, NodeImage]:
    """Healthy nodes with this machine's uptime, so that their kernel logs have true times."""
    image = healthy_cpu()
    return dict.fromkeys(
        nodes, replace(image, proc={name: content for name, content in image.proc.items() if name != "uptime"})
    )


def settings(nodes: Sequence[str] = NODES) -> tuple[str, ...]:
    """The lines of slurm.conf that these jobs need, with `FILES`."""
    partition = f"Nodes={','.join(nodes)} MaxTime=INFINITE State=UP"
    return (
        "PreemptType=preempt/partition_prio",
        "PreemptMode=CANCEL",
        f"PartitionName=low PriorityTier=1 PreemptMode=CANCEL {partition}",
        f"PartitionName=high PriorityTier=9 PreemptMode=OFF {partition}",
        "Prolog=/etc/slurm/prolog.sh",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherParams=OverMemoryKill",
        "JobAcctGatherFrequency=task=1",
        "SelectTypeParameters=CR_CPU_Memory",
        "DefMemPerCPU=4000",
        "NodeName=DEFAULT RealMemory=64000",
    )


OF_ALL = "{this}; code=$?; sleep 1; exit $code"  # srun drops what a step that it kills has not yet sent
OF_RANK_1 = f'if [ "$SLURM_PROCID" = 1 ]; then {OF_ALL}; fi; sleep 20'
ONCE_TOLD = f'if [ "$SLURM_PROCID" = 1 ]; then until [ -e {acts.GO} ]; do sleep 0.2; done; {OF_ALL}; fi; exec sleep 300'
LIMIT = ("-t", "1")

XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=1, name=python, GPU has fallen off the bus."
LOST = "NVRM: Xid (PCI:0000:c5:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
UNCORRECTED = (
    "NVRM: Xid (PCI:0000:c5:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been"
    " detected on GPU in the framebuffer at physical address 0x1f2e3d000 partition 5, subpartition 1."
)
SILENT = (
    "NVRM: Xid (PCI:0000:c5:00): 119, pid=4711, name=python3, Timeout after 6s of waiting for RPC response from GPU0"
    " GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4)."
)
KILLED = (
    "Out of memory: Killed process 4711 (python3) total-vm:1998765432kB, anon-rss:1987654321kB, file-rss:0kB,"
    " shmem-rss:0kB, UID:1000 pgtables:3901234kB oom_score_adj:0"
)
NO_SERVER = (
    "Lustre: fsx-OST0001-osc-ffff: Connection to fsx-OST0001 (at 10.0.0.9@tcp) was lost; in progress operations using"
    " this service will wait for recovery to complete"
)


def _raised(error: str, message: str) -> str:
    """A program that ends as PyTorch does after raising this."""
    return f"python3 -c \"raise type('{error}', (RuntimeError,), {{}})('{message}')\""


def _with_mount(mount: str, program: str) -> str:
    """A program with its own mount."""
    return f'unshare -m sh -c "{mount}; {program}"'


BROKEN = _raised("RuntimeError", "CUDA error: unspecified launch failure")
ECC = _raised("RuntimeError", "CUDA error: uncorrectable ECC error encountered")
UNNAMED = _raised("RuntimeError", "CUDA error: unknown error")
GPU_MEMORY = _raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity")
KEY_ERROR = """python3 -c "{}['image']" """
CUT_OFF = "echo 'Traceback (most recent call last):' >&2; exit 1"
NO_MODULE = """python3 -c "import no_such_module_at_all" """
NO_CHECKPOINT = """python3 -c "open('/checkpoints/step-1000/model.pt', 'rb')" """
OVER_LIMIT = """python3 -c "import time; held = b'x' * 300_000_000; time.sleep(60)" """
MEMORY = """ulimit -v 400000; python3 -c "bytearray(10**10)" """
FILES_OPEN = """ulimit -n 20; python3 -c "[open('/dev/null') for _ in range(99)].nothing" """
WRITES = "/usr/bin/python3 -c 'import pathlib; pathlib.Path.cwd().joinpath(str(1)).write_bytes(bytes(10**6))'"
LOADS = "/usr/bin/python3 -c 'import torch; next(iter(torch.utils.data.DataLoader([torch.ones(9**7)], num_workers=1)))'"
FULL = _with_mount("mount -t tmpfs -o size=64k none /mnt; cd /mnt", WRITES)
READ_ONLY = _with_mount("mount -t tmpfs -o ro none /mnt; cd /mnt", WRITES)
SHARED = _with_mount("mount -t tmpfs -o size=64k none /dev/shm", LOADS)
NEVER_ANSWERS = "exec 9<>/dev/fuse; mount -i -t fuse.sshfs -o fd=9,rootmode=40000,user_id=0,group_id=0 fs1:/data /mnt"
HANGING = _with_mount(NEVER_ANSWERS, "ls /mnt")
AGAIN = f'[ "$SLURM_RESTART_COUNT" ] || exec sleep 300; {OF_RANK_1.format(this=KEY_ERROR)}'

JOBS = (
    DyingJob("exception", "code", OF_RANK_1.format(this=KEY_ERROR), rank=1),
    DyingJob("exception cut off", "unknown", OF_RANK_1.format(this=CUT_OFF), rank=1),
    DyingJob("no such module", "code", OF_ALL.format(this=NO_MODULE)),
    DyingJob("no such program", "code", OF_ALL.format(this="/no/such/trainer --lr 1")),
    DyingJob("no checkpoint", "code", OF_RANK_1.format(this=NO_CHECKPOINT), rank=1),
    DyingJob("exit code alone", "unknown", OF_RANK_1.format(this="exit 3")),
    DyingJob("exit code of the batch script", "unknown", "exit 0", batch=f"{STEP}; exit 7"),
    DyingJob("task of an array", "code", OF_RANK_1.format(this=KEY_ERROR), options=("--array=3",), rank=1),
    DyingJob("killed", "unknown", OF_RANK_1.format(this="kill -9 $$"), rank=1),
    DyingJob("killed from outside", "unknown", "exec sleep 300", acts.signalled),
    DyingJob("crashed", "unknown", OF_RANK_1.format(this="kill -SEGV $$"), rank=1),
    DyingJob("disk full", "storage", OF_RANK_1.format(this="dd if=/dev/zero of=/dev/full bs=1k count=1")),
    DyingJob("small disk full", "storage", OF_RANK_1.format(this=FULL), rank=1),
    DyingJob("read-only", "storage", OF_RANK_1.format(this=READ_ONLY), rank=1),
    DyingJob(
        "file system hangs",
        "storage",
        ONCE_TOLD.format(this=HANGING),
        acts.logged(NO_SERVER),
        LIMIT,
        guilty=1,
        asks=True,
    ),
    DyingJob("memory", "resources", OF_RANK_1.format(this=MEMORY), rank=1),
    DyingJob("memory limit of the job", "resources", OF_RANK_1.format(this=OVER_LIMIT), options=("--mem=100M",)),
    DyingJob(
        "memory of the host",
        "resources",
        ONCE_TOLD.format(this="kill -9 $$"),
        acts.logged(KILLED),
        guilty=1,
        rank=1,
        asks=True,
    ),
    DyingJob("memory of a GPU", "resources", OF_RANK_1.format(this=GPU_MEMORY), rank=1),
    DyingJob("shared memory full", "resources", OF_RANK_1.format(this=SHARED), rank=1),
    DyingJob("open files", "resources", OF_RANK_1.format(this=FILES_OPEN), rank=1),
    DyingJob("forged line of the driver", "unknown", OF_RANK_1.format(this=f"echo '{XID}'; exit 1")),
    DyingJob("name of another state", "unknown", OF_RANK_1.format(this="exit 2"), options=("-J", "x JobState=TIMEOUT")),
    DyingJob("cancelled", "stopped", "sleep 300", acts.cancelled),
    DyingJob("cancelled by its user", "stopped", "sleep 300", acts.cancelled_by(USER), user=USER),
    DyingJob("preempted", "stopped", "sleep 300", acts.preempted, ("-p", "low")),
    DyingJob("time limit", "stopped", "sleep 300", options=LIMIT),
    DyingJob("one rank hangs until the limit", "stopped", "echo step 1; sleep 300", options=LIMIT),
    DyingJob("requeued", "code", AGAIN, acts.requeued, ("--requeue", "--open-mode=append"), rank=1),
    DyingJob("prolog failed", "unknown", "exec sleep 300", acts.prolog_failed, ("-H",)),
    DyingJob("node drained", "code", ONCE_TOLD.format(this=KEY_ERROR), acts.drained, rank=1),
    DyingJob("node set down", "unknown", "exec sleep 300", acts.set_down),
    DyingJob("node rebooted", "unknown", "exec sleep 300", acts.rebooted),
    DyingJob("node failed", "unknown", "sleep 900", acts.slurmd_killed, suspects=(1,)),
    DyingJob("node frozen", "unknown", "exec sleep 900", acts.frozen, suspects=(1,)),
    DyingJob("GPU lost", "hardware", ONCE_TOLD.format(this=BROKEN), acts.logged(LOST), guilty=1, rank=1, asks=True),
    DyingJob("ECC", "hardware", ONCE_TOLD.format(this=ECC), acts.logged(UNCORRECTED), guilty=1, rank=1, asks=True),
    DyingJob("GSP", "hardware", ONCE_TOLD.format(this=UNNAMED), acts.logged(SILENT), guilty=1, rank=1, asks=True),
    DyingJob(
        "GPU lost, hung until the limit",
        "unknown",
        ONCE_TOLD.format(this="exec sleep 300"),
        acts.logged(LOST),
        ("-t", "2"),
        suspects=(1,),
        asks=True,
    ),
    DyingJob(
        "GPU lost of a node without ranks",
        "unknown",
        ONCE_TOLD.format(this="exit 3"),
        acts.logged(LOST, node=2),
        ("-N2", "--ntasks=2", "-w", "{0},{1}"),
        asks=True,
    ),
    DyingJob(
        "GPU lost long before", "unknown", ONCE_TOLD.format(this="exit 3"), acts.logged(LOST, ago_s=7200), asks=True
    ),
)


TRAINING = Path(__file__).with_name("gloo_training.py")
EIGHT = ("--ntasks=8",)


def _training(fault: str, rank: int) -> str:
    """What each of eight ranks runs: a training with this fault in one of them."""
    return OF_ALL.format(this=f"/usr/bin/python3 {TRAINING} '{fault}' {rank}")


TRAININGS = (
    DyingJob("training, exception", "code", _training("exception", 5), options=EIGHT, rank=5),
    DyingJob("training, other collective", "code", _training("other collective", 4), options=EIGHT),
    DyingJob("training, killed", "unknown", f"exec /usr/bin/python3 {TRAINING} killed 6", options=EIGHT, rank=6),
    DyingJob("training, disk full", "storage", _training("disk full", 2), options=EIGHT, rank=2),
    DyingJob("training, not a number", "unknown", _training("nan", 3), options=EIGHT, rank=3),
    DyingJob("training, loader killed", "unknown", _training("loader killed", 1), options=EIGHT, rank=1),
    DyingJob("training, cut off", "unknown", _training("cut off", 0), acts.cut_off, EIGHT, suspects=(1,)),
    DyingJob("training, hung", "unknown", _training("hung", 7), options=EIGHT),
)


def kept_of_rank_1(bed: SlurmBed, shared: Path) -> str:
    """What remains of rank 1 of a step that is killed at once, if each rank's errors go to a separate file."""
    script = shared / "kept.sh"
    script.write_text(f'#!/bin/sh\nif [ "$SLURM_PROCID" = 1 ]; then exec {KEY_ERROR}; fi; sleep 300\n')
    script.chmod(0o755)
    file = "/root/task-%t.err"
    command = ("srun", "-N3", "--ntasks=3", "-p", "gpu", "-l", "--kill-on-bad-exit=1", f"--error={file}", str(script))
    bed.run(*command)
    return (bed.node("gpu002").root / file.replace("%t", "1").lstrip("/")).read_text()
