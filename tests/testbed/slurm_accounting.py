"""Slurm's accounting on a testbed: slurmdbd with MariaDB on the controller, both of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.testbed.image import Content, File, Folder
from tests.testbed.node import Node

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
    """Start both, and wait until slurmdbd answers. Raises RuntimeError, TimeoutError."""
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


def _wait(controller: Node, words: list[str]) -> None:
    until = time.monotonic() + STARTS_S
    while (tried := controller.run(words)).returncode:
        if time.monotonic() > until:
            raise TimeoutError((tried.stdout + tried.stderr).decode(errors="replace"))
        time.sleep(0.2)
