"""Another system's root folder, in which programs run as on a separate machine; their writes are discarded."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.benchmarks.load.asking import program as load_program
from clusterproof.plugins.benchmarks.load.options import SECONDS
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.transport import Answer, Program
from clusterproof.plugins.transport.gather import evidence_of
from tests.testbed.load import OPTIONS

TIMEOUT_S = 600.0  # on a busy machine
PROBE_OPTIONS = ProbeOptions(collector_s=60.0, mount_s=30.0)

# Standard input and the last arguments are the program's; the first argument names the layers, topmost first.
ENTER = """set -e
layers=$1; shift
mount -t tmpfs -o mode=755 system /mnt
cd /mnt
mkdir upper work root
mount -t overlay -o "lowerdir=$layers,upperdir=upper,workdir=work" system root
mount -t proc proc root/proc
sed "s/^MemAvailable:.*/MemAvailable: 1048576 kB/" /proc/meminfo >meminfo # what loads a node writes a fourth
mount --bind meminfo root/proc/meminfo
mount --rbind /sys root/sys
mount -t tmpfs -o mode=755 dev root/dev
for name in null zero full random urandom; do touch root/dev/$name; mount --bind /dev/$name root/dev/$name; done
mkdir root/dev/shm
mount -t tmpfs -o mode=1777 shm root/dev/shm
exec chroot root env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


@dataclass(frozen=True)
class System:
    """A root folder from debootstrap, and the layers over it."""

    root: Path
    over: tuple[Path, ...] = ()

    def run(self, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a program as root in separate namespaces; words `NAME=value` before it are its environment."""
        layers = ":".join(str(path) for path in (*self.over, self.root))
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "sh", "-c", ENTER, "sh"]
        return subprocess.run([*inside, layers, *command], input=stdin, capture_output=True, timeout=TIMEOUT_S)

    def output_of(self) -> NodeEvidence:
        """Every probe collector's report here."""
        return self._answered(program(collector_names(), PROBE_OPTIONS))

    def output_under_load(self) -> NodeEvidence:
        """The reports of every collector that loads the hardware."""
        return self._answered(load_program(tuple(SECONDS), OPTIONS))

    def _answered(self, to_run: Program) -> NodeEvidence:
        ran = self.run("/bin/sh", "-c", to_run.command, stdin=to_run.stdin)
        return evidence_of(Target("other"), Answer(output=ran.stdout + ran.stderr), to_run.nonce)


def broken(evidence: NodeEvidence) -> dict[str, str]:
    """The collectors that neither reported anything nor found nothing to report, with their messages."""
    whole = (Status.READ, Status.ABSENT)
    return {name: collector.detail for name, collector in evidence.collectors.items() if collector.status not in whole}
