"""Watches of Kubernetes nodes, and what their samplers leave there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.kubernetes.access import SETTING
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch.controller import WatchSettings
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from tests.builders.runs import ROOT
from tests.testbed.kubernetes.machine import Machine, cgroup_of
from tests.watch.watched_bed import RunningHere, watching

OOM = "Out of memory: Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB"
MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"


def settings(names: Sequence[str], root: str = "/", **of_cluster: str) -> tuple[Cluster, WatchSettings]:
    """A watch of these nodes every second."""
    ours = {SETTING: "context:bed", **of_cluster}
    cluster = Cluster("k8s:bed", "kubernetes", tuple(map(Target, names)), ours)
    limits = Limits(connect_s=60.0, answer_s=60.0, settings=ours)
    return cluster, WatchSettings(SamplerOptions(1.0, root), limits, ProbeOptions(host_root=root, collector_s=10.0))


@contextlib.contextmanager
def watched(
    names: Sequence[str],
    root: Path = Path("/"),
    record: Path | None = None,
    joined: Callable[[], AbstractContextManager[None]] = nullcontext,
    **of_cluster: str,
) -> Iterator[RunningHere]:
    """Watch these nodes during the block, and read their hosts under `root`."""
    with watching(*settings(names, str(root), **of_cluster), record, joined) as running:
        yield running


def with_log(folder: Path) -> Path:
    """This machine under a folder, with a file as its kernel log."""
    (folder / "dev").mkdir()
    (folder / "dev" / "kmsg").write_text("6,0,0,-;Linux version 6.8.0\n")
    for name in ("etc", "proc", "sys"):
        (folder / name).symlink_to(f"/{name}")
    return folder


def log(root: Path, text: str, number: int) -> None:
    """Append to the kernel log."""
    with (root / "dev" / "kmsg").open("a") as file:
        file.write(f"3,{number},{90_000_000_000 + number},-;{text}\n")


def samplers(machine: Machine) -> list[str]:
    """The sampler processes in a node's pods, by command line."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "begin." in arguments and cgroup_of(machine.kubelet_port) in (process / "cgroup").read_text():
                commands.append(arguments[:200])
    return commands


def command(out: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """`clusterproof watch` every second, with its output."""
    with out.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-u", "-c", MAIN, "watch", "--every", "1", "--connect-timeout", "60", *arguments],
            cwd=out.parent,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
