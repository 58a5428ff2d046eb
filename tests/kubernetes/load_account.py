"""The account of measurements on a schedule, as the chart makes it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.transport.kubernetes import RunObjects
from clusterproof.plugins.transport.kubernetes.connection import PerfPods
from tests.counterparts import installed
from tests.kubernetes.gate import MANIFESTS, api_of, kubectl
from tests.kubernetes.perf import RANKS
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until

VALUES = ("image=registry.example.com/clusterproof:0.1.0", "load.schedule=0 3 * * *", f"load.image={RANKS}")
RUN = RunObjects(f"{PerfPods.prefix}-0123456789", NAMESPACE, RANKS)
CONTAINER = {"name": "probe", "image": "x"}


def rendered(*values: str) -> str:
    """The chart as helm renders it."""
    command = [
        f"{installed.folder('kubernetes')}/helm",
        "template",
        "x",
        f"{MANIFESTS}/chart",
        "--namespace",
        NAMESPACE,
    ]
    command += [word for value in values for word in ("--set", value)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextlib.contextmanager
def granted(bed: Bed | Nodes) -> Iterator[Path]:
    """A kubeconfig of the account."""
    every = [
        entry for entry in yaml.safe_load_all(rendered(*VALUES)) if entry["metadata"]["name"] == "clusterproof-load"
    ]
    file = bed.plane.folder / "load.yaml"
    file.write_text(yaml.safe_dump_all(every))
    kubectl(bed, "apply", "--filename", file)
    try:
        token = kubectl(bed, "create", "token", "clusterproof-load", "--namespace", NAMESPACE).strip()
        kubeconfig = bed.plane.kubeconfig(token)
        wait_until(lambda: "no privilege" in refusal(kubeconfig, RUN.pods, pod(privileged=True)), "confined")
        yield kubeconfig
    finally:
        kubectl(bed, "delete", "--filename", file)


def refusal(kubeconfig: Path, path: str, body: object) -> str:
    """The server's refusal of an object that the account would create; empty if it is accepted."""
    try:
        api_of(kubeconfig).create(f"{path}?dryRun=All", body)
    except KubernetesError as refused:
        return str(refused)
    return ""


def pod(container: Mapping[str, Any] | None = None, privileged: bool = False, **spec: Any) -> dict[str, Any]:
    probe = {**CONTAINER, **(container or {}), **({"securityContext": {"privileged": True}} if privileged else {})}
    spec = {"automountServiceAccountToken": False, "containers": [probe], **spec}
    return {"metadata": RUN.metadata(f"{RUN.name}-0"), "spec": spec}
