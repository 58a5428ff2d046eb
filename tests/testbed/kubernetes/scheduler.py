"""kube-scheduler, where pods are to be placed; without it those that name no node stay pending."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.testbed.kubernetes.control_plane import ControlPlane, program
from tests.testbed.kubernetes.processes import Running, running
from tests.transport.loopback import free_port


@contextlib.contextmanager
def scheduler(plane: ControlPlane) -> Iterator[Running]:
    """Start one, until the end of the block."""
    words = [program("kube-scheduler"), f"--kubeconfig={plane.kubeconfig()}", "--bind-address=127.0.0.1"]
    words += [f"--secure-port={free_port()}", "--leader-elect=false"]
    with running(plane.folder / "scheduler.log", words) as started:
        yield started
