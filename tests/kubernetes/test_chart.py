"""The chart from installation to removal, with helm and a real API server."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.gate import CONDITION, TAINT, GateSettings
from clusterproof.plugins.kubernetes.gate.write import write
from tests.builders.runs import ROOT
from tests.counterparts import installed
from tests.kubernetes.gate import ACCOUNT, FIT, UNFIT, api_of, kubectl, rights
from tests.testbed.kubernetes.bed import RBAC, Bed
from tests.testbed.kubernetes.control_plane import RefusedError
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
CHART = ROOT / "integrations" / "kubernetes" / "chart"
NAMESPACE, REMOVER = "charted", "clusterproof-remove"
HERE = f"/api/v1/namespaces/{NAMESPACE}"
IMAGE = "image=registry.example.com/clusterproof:0.1.0"
MAIN = "from clusterproof.plugins.command_line.main import main; raise SystemExit(main())"
LATER = 4_000_000_000.0  # nodes of tests are young
SUCCEEDED = {"phase": "Succeeded"}


def command(bed: Bed, *arguments: object) -> list[str]:
    own = [installed.folder("kubernetes") / "helm", "--kubeconfig", bed.plane.kubeconfig(), "--namespace", NAMESPACE]
    return [str(word) for word in (*own, *arguments)]


def helm(bed: Bed, *arguments: object) -> str:
    done = subprocess.run(command(bed, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ours(bed: Bed) -> set[str]:
    """Every object in the cluster with our name, of all kinds but events."""
    kinds = kubectl(bed, "api-resources", "--verbs=list", "--output=name").split()
    every = ",".join(kind for kind in kinds if not kind.startswith("events"))
    names = kubectl(bed, "get", every, "--all-namespaces", "--output=name", "--ignore-not-found").split()
    return {name for name in names if "clusterproof" in name.partition("/")[2]}


@contextlib.contextmanager
def released(bed: Bed, *values: str) -> Iterator[None]:
    """Install the chart with these values until the block ends."""
    settings = [word for value in (IMAGE, *values) for word in ("--set", value)]
    helm(bed, "install", "clusterproof", CHART, "--create-namespace", *settings)
    try:
        yield
    finally:
        subprocess.run(command(bed, "uninstall", "clusterproof", "--no-hooks", "--ignore-not-found"), check=False)
        bed.plane.call("DELETE", HERE)
        wait_until(lambda: not _is_there(bed), "gone")


def _is_there(bed: Bed) -> bool:
    try:
        return bool(bed.plane.call("GET", HERE))
    except RefusedError:
        return False


def options(bed: Bed) -> str:
    return str(bed.plane.call("GET", f"{HERE}/configmaps/{ACCOUNT}")["data"]["OPTIONS"])


def may_taint(bed: Bed) -> bool:
    return "clusterproof-gate-taints" in [role["metadata"]["name"] for role in bed.plane.items(f"{RBAC}/clusterroles")]


def test_it_is_upgraded_and_rolled_back(kubernetes: Bed) -> None:
    with released(kubernetes):
        as_installed = (options(kubernetes), may_taint(kubernetes))
        new = ("--reuse-values", "--set", "startupTaint=clusterproof.dev/unproven")
        helm(kubernetes, "upgrade", "clusterproof", CHART, *new)
        as_upgraded = (options(kubernetes), may_taint(kubernetes))
        helm(kubernetes, "rollback", "clusterproof", "1")
        assert (options(kubernetes), may_taint(kubernetes)) == as_installed
    assert as_installed == ("", False)
    assert as_upgraded == ("--k8s-startup-taint=clusterproof.dev/unproven", True)


def test_uninstalling_leaves_nothing_neither_objects_nor_conditions_nor_taints(kubernetes: Bed) -> None:
    left = written(kubernetes)  # by an earlier test
    before = ours(kubernetes)
    with kubernetes.node("gpu801"), kubernetes.node("gpu802"), released(kubernetes, "mode=taint"):
        token = kubectl(kubernetes, "create", "token", ACCOUNT, "--namespace", NAMESPACE).strip()
        healths = {"gpu801": UNFIT, "gpu802": FIT}
        write(api_of(kubernetes.plane.kubeconfig(token)), GateSettings(TAINT, "5"), healths, LATER, LATER)
        assert sorted({*written(kubernetes)} - {*left}) == ["gpu801", "gpu802"]
        with subprocess.Popen(command(kubernetes, "uninstall", "clusterproof"), stdout=subprocess.PIPE) as uninstall:
            output = run_as_its_pod(kubernetes)
            assert uninstall.wait() == 0
        assert "gpu801: lost the condition" in output
        assert written(kubernetes) == []
        wait_until(lambda: ours(kubernetes) <= before, "gone")


def written(bed: Bed) -> list[str]:
    """Nodes with our condition or taint."""
    return [
        node["metadata"]["name"]
        for node in bed.plane.items("/api/v1/nodes")
        if any(condition["type"] == CONDITION for condition in node["status"]["conditions"])
        or any("clusterproof" in taint["key"] for taint in node["spec"].get("taints", ()))
    ]


def run_as_its_pod(bed: Bed) -> str:
    """Run what the hook's pod would run, with its account, and end the pod, whose image does not exist."""
    wait_until(lambda: bool(_hooks(bed)), "begun")
    (pod,) = _hooks(bed)
    (container,) = pod["spec"]["containers"]
    program, *arguments = container["command"]
    assert (program, arguments[-1], pod["spec"]["serviceAccountName"]) == ("clusterproof", "k8s:in-cluster", REMOVER)
    token = kubectl(bed, "create", "token", REMOVER, "--namespace", NAMESPACE).strip()
    environment = {"KUBECONFIG": str(bed.plane.kubeconfig(token)), "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments[:-1], "k8s:bed"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    bed.plane.patch(f"{HERE}/pods/{pod['metadata']['name']}/status", {"status": SUCCEEDED})
    return done.stdout


def _hooks(bed: Bed) -> list[dict[str, Any]]:
    return bed.plane.items(f"{HERE}/pods?labelSelector=job-name%3D{REMOVER}")


def test_every_object_of_it_is_what_the_server_knows(kubernetes: Bed) -> None:
    evidence = "evidence.volume.persistentVolumeClaim.claimName=kept"
    load = ("load.schedule=0 3 * * *", "load.image=x")
    with released(kubernetes, "mode=taint", "policy=a = 1", "wait.namespaces={team-a}", evidence, *load):
        assert options(kubernetes) == "--k8s-evidence=/evidence"
        manifest = helm(kubernetes, "get", "manifest", "clusterproof")
        path = kubernetes.plane.folder / "manifest.yaml"
        path.write_text(manifest)
        output = kubectl(kubernetes, "apply", "--dry-run=server", "--validate=strict", "--filename", path)
    assert len(output.splitlines()) == manifest.count("\nkind: ")


def test_pods_of_the_namespaces_that_are_named_may_read_nodes_and_no_more(kubernetes: Bed) -> None:
    call, account = kubernetes.plane.call, "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = call("POST", account, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    as_pod = kubernetes.plane.kubeconfig(str(token))
    with released(kubernetes):
        assert rights(as_pod, "default") == set()
    with released(kubernetes, "wait.namespaces={default,team-b}"):
        wait_until(lambda: bool(rights(as_pod, "default")), "granted")
        assert rights(as_pod, "default") == rights(as_pod, NAMESPACE) == {("get", "nodes")}


@pytest.mark.parametrize("name", ["agent.yaml", "gate.yaml", "held-job.yaml", "watch.yaml"])
def test_without_the_name_of_an_image_the_server_takes_no_pods(kubernetes: Bed, name: str) -> None:
    path = ROOT / "integrations" / "kubernetes" / name
    arguments = ["apply", "--dry-run=server", "--validate=strict", "--filename", path]
    own = [installed.folder("kubectl") / "newest" / "bin" / "kubectl", "--kubeconfig", kubernetes.plane.kubeconfig()]
    done = subprocess.run(list(map(str, [*own, *arguments])), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ontainers[0].image: Required value" in done.stderr
