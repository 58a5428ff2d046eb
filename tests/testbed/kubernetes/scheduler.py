"""kube-scheduler, where pods are to be placed; without it those that name no node stay pending."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.testbed.kubernetes.control_plane import ControlPlane, program
from tests.testbed.kubernetes.processes import Running, running
from tests.transport.loopback import free_port


@contextlib.contextmanager
def scheduler(plane: ControlPlane) -> Iterator[Running]:
    """Start one, until the end of the block."""
    words: list[str | Path] = [program("kube-scheduler"), f"--kubeconfig={plane.kubeconfig()}"]
    words += ["--bind-address=127.0.0.1", f"--secure-port={free_port()}", "--leader-elect=false"]
    with running(plane.folder / "scheduler.log", words) as started:
        yield started
