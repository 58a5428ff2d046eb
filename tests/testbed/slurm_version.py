"""The Slurm versions that a testbed can run, this machine's and those in a folder, and their accounting."""

from __future__ import annotations

import functools
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.counterparts import installed
from tests.testbed.image import Content, File, Folder, Link, NodeImage
from tests.testbed.needs import SYSTEM_PATH
from tests.testbed.node import Node

AT = "/usr/lib/testbed/slurm"  # the folder's path on a node
SHARED = ("usr/bin", "usr/sbin", "usr/lib64", "usr/lib/x86_64-linux-gnu")  # from packages, unchanged
ALONE = ("etc/openmpi", "usr/share/openmpi", "usr/share/prte")


@dataclass(frozen=True, slots=True)
class SlurmVersion:
    """A Slurm release (`24.11`); `root` has its programs and libraries: None if this machine lacks them."""

    name: str
    root: Path | None = None

    @property
    def keeps_reason(self) -> bool:
        """Whether a node's reason is still shown after RESUME."""
        return tuple(map(int, self.name.split("."))) >= (24, 11)

    def on(self, image: NodeImage) -> NodeImage:
        """The image with this Slurm instead of this machine's."""
        if not self.root:
            return image
        return replace(image, files={**image.files, **_links(self.root)}, bound={**image.bound, AT: str(self.root)})


def _own() -> str:
    program = shutil.which("slurmctld", path=SYSTEM_PATH)
    if not program:
        return "none"
    version = subprocess.run([program, "-V"], capture_output=True, text=True, check=False).stdout  # slurm-wlm 22.05.8
    return ".".join(version.split()[-1].split(".")[:2]) if version else "none"


@functools.cache
def _links(root: Path) -> Mapping[str, Content]:
    """Links at the paths where its programs look for them."""
    shared = (f"{folder}/{path.name}" for folder in SHARED for path in (root / folder).iterdir())
    return {AT: Folder(), **{f"/{path}": Link(f"{AT}/{path}") for path in (*shared, *ALONE)}}


OWN = SlurmVersion(_own())
TRIXIE = SlurmVersion("24.11", installed.folder("slurm_24_11") / "root")
NEEDS: dict[SlurmVersion, list[pytest.MarkDecorator]] = {OWN: [], TRIXIE: [installed.needs("slurm_24_11")]}
VERSIONS = [pytest.param(version, id=version.name, marks=marks) for version, marks in NEEDS.items()]
IN_TURN = [  # where Slurm is not the subject: each file with one; with `--all`, both
    pytest.param(version, id=version.name, marks=[*marks, pytest.mark.in_turn(version.name)])
    for version, marks in NEEDS.items()
]


SOCKET = "/run/mysqld/mysqld.sock"
DATA = "/var/lib/testbed-mysql"
STARTS_S = 300.0
SETTINGS = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=controller",
    "AccountingStorageTRES=gres/gpu",
)
FILES: Mapping[str, Content] = {
    "/etc/slurm/slurmdbd.conf": File(
        "DbdHost=controller\nSlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=localhost\n"
        "StorageUser=root\nStorageLoc=slurm_acct_db\nPidFile=/run/slurmdbd.pid\nLogFile=/run/slurmdbd.log\n",
        0o600,
    ),
    "/run/mysqld": Folder(),
    DATA: Folder(),
}


def start(controller: Node) -> None:
    """Start both, and wait until slurmdbd answers. Raises RuntimeError or TimeoutError."""
    made = controller.run(
        ["mariadb-install-db", f"--datadir={DATA}", "--user=root", "--auth-root-authentication-method=normal"]
    )
    if made.returncode:
        raise RuntimeError((made.stdout + made.stderr).decode(errors="replace"))
    controller.start(
        [
            "/usr/sbin/mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={DATA}",
            f"--socket={SOCKET}",
            "--skip-networking",
        ]
    )
    _wait(controller, ["sh", "-c", f"test -S {SOCKET}"])
    controller.start(["/usr/sbin/slurmdbd", "-D"])
    _wait(controller, ["sacctmgr", "-n", "show", "cluster"])


def _wait(controller: Node, command: list[str]) -> None:
    until = time.monotonic() + STARTS_S
    while (tried := controller.run(command)).returncode:
        if time.monotonic() > until:
            raise TimeoutError((tried.stdout + tried.stderr).decode(errors="replace"))
        time.sleep(0.2)
