"""Measurements on a schedule: what their account may do, what it may not, and that this suffices."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.kubernetes.nodes import node_of
from clusterproof.plugins.transport.kubernetes import RunObjects, config_map, job
from clusterproof.plugins.transport.kubernetes import pod as probe_pod
from clusterproof.plugins.transport.kubernetes.perf import perf_pod
from tests.kubernetes.gate import api_of, rights
from tests.kubernetes.load_account import CONTAINER, RUN, VALUES, granted, pod, refusal, rendered
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
OF_PROBES = RunObjects("clusterproof-0123456789", NAMESPACE)  # an administrator's, whose program is root on nodes
NODE = node_of({"metadata": {"name": "gpu001"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}})
HOST_PROCESS = {"windowsOptions": {"hostProcess": True}}
OF_GATE = {"app.kubernetes.io/name": "clusterproof", "app.kubernetes.io/component": "gate"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "clusterproof-gate-0", "uid": "0", "controller": True}
SECRET = {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def refused_deletion(kubeconfig: Path, path: str, **query: object) -> str:
    """The server's refusal of a deletion by the account; empty if it is accepted."""
    try:
        api_of(kubeconfig).delete(path, dryRun="All", **query)
    except KubernetesError as refused:
        return str(refused)
    return ""


@contextlib.contextmanager
def there(bed: Bed, *created: tuple[str, Mapping[str, Any]]) -> Iterator[None]:
    """Create these as an administrator, by the paths of their kinds."""
    with contextlib.ExitStack() as stack:
        for path, body in created:
            bed.plane.call("POST", path, body)
            name = body["metadata"]["name"]
            stack.callback(bed.plane.call, "DELETE", f"{path}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
        yield


def named(name: str, **metadata: Any) -> dict[str, Any]:
    return {**pod(), "metadata": {**RUN.metadata(name), **metadata}}


def volume(**source: Any) -> dict[str, Any]:
    return pod(volumes=[{"name": "v", **source}])


NOT_ITS_OWN = {
    "privilege": (pod(privileged=True), "no privilege"),
    "a process of a Windows host": (pod({"securityContext": HOST_PROCESS}, hostNetwork=True), "no privilege"),
    "such a pod": (pod(securityContext=HOST_PROCESS, hostNetwork=True), "no privilege"),
    "a capability": (pod({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}), "no privilege"),
    "the host's files": (volume(hostPath={"path": "/"}), "no file and no process"),
    "a secret's file": (volume(secret={"secretName": "s"}), "no file and no process"),
    "a secret's value": (pod({"env": [SECRET]}), "reads no secret"),
    "all of a secret": (pod({"envFrom": [{"secretRef": {"name": "s"}}]}), "reads no secret"),
    "the host's processes": (pod(hostPID=True), "no file and no process"),
    "a token": (pod(automountServiceAccountToken=True), "no file and no process"),
    "a container before it": (pod(initContainers=[{**CONTAINER, "name": "before"}]), "no file and no process"),
    "what runs a probe": (probe_pod(RUN, f"{RUN.name}-0", NODE, "x", 60), "no file and no process"),
    "another's name": (named(f"{OF_PROBES.name}-0"), "named clusterproof-perf-"),
    "the gate's labels": (named(f"{RUN.name}-0", labels=OF_GATE), "no labels and no owner"),
    "another's owner": (named(f"{RUN.name}-0", ownerReferences=[OWNER]), "no labels and no owner"),
}
SETTINGS, POLICY = ({"metadata": {"name": f"clusterproof-{name}"}} for name in ("gate", "policy"))


def test_its_account_creates_what_a_measurement_needs_and_no_pod_that_is_root_on_a_node(kubernetes: Bed) -> None:
    with granted(kubernetes) as kubeconfig:
        refusals = {name: refusal(kubeconfig, RUN.pods, body) for name, (body, _) in NOT_ITS_OWN.items()}
        with_pods = {"template": {"spec": {**pod(privileged=True)["spec"], "restartPolicy": "Never"}}}
        of_job = refusal(kubeconfig, RUN.jobs, {"metadata": RUN.metadata(RUN.name), "spec": with_pods})
        own_pod = perf_pod(replace(RUN, uid="0", pieces=2), f"{RUN.name}-10", NODE, 60)
        own = [refusal(kubeconfig, RUN.pods, own_pod), refusal(kubeconfig, RUN.jobs, job(RUN, 60))]
        own.append(refusal(kubeconfig, RUN.config_maps, config_map(RUN, "true")))
        allowed = rights(kubeconfig, NAMESPACE)
    assert {name: part for name, (_, part) in NOT_ITS_OWN.items() if part not in refusals[name]} == {}, refusals
    assert "a measurement's Job makes no pods" in of_job
    assert own == ["", "", ""]
    assert {verb for verb, resource in allowed if resource in ("secrets", "pods/exec", "nodes/proxy")} == set()
    assert {resource for verb, resource in allowed if verb in ("update", "patch")} == set()


def test_its_account_replaces_and_deletes_nothing_of_the_gate_and_of_other_runs(kubernetes: Bed) -> None:
    waits = pod(nodeSelector={"nowhere": "yes"})
    of_probes = {**waits, "metadata": OF_PROBES.metadata(f"{OF_PROBES.name}-0")}
    others = (
        (RUN.config_maps, SETTINGS),
        (RUN.config_maps, config_map(OF_PROBES, "true")),
        (RUN.jobs, job(OF_PROBES, 60)),
        (RUN.pods, of_probes),
        (RUN.pods, {**waits, "metadata": {"name": "gate", "labels": OF_GATE}}),
    )
    its_own = ((RUN.config_maps, config_map(RUN, "true")), (RUN.jobs, job(RUN, 60)), (RUN.pods, waits))
    with there(kubernetes, *others, *its_own), granted(kubernetes) as kubeconfig:
        refusals = [refused_deletion(kubeconfig, f"{path}/{body['metadata']['name']}") for path, body in others[:3]]
        refusals += [refused_deletion(kubeconfig, RUN.pods, labelSelector=OF_PROBES.selector)]
        refusals += [refused_deletion(kubeconfig, RUN.pods, fieldSelector="metadata.name=gate")]
        refusals += [refused_deletion(kubeconfig, RUN.pods), refusal(kubeconfig, RUN.config_maps, POLICY)]
        own = [refused_deletion(kubeconfig, f"{path}/{RUN.name}") for path, _ in its_own[:2]]
        own += [refused_deletion(kubeconfig, RUN.pods, labelSelector=RUN.selector)]
    assert ["named clusterproof-perf-" in message for message in refusals] == [True] * 7, refusals
    assert own == ["", "", ""]


def test_without_a_schedule_there_is_no_such_account() -> None:
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(rendered(VALUES[0])) if document]
    assert "clusterproof-load" not in names


def line(node: str, verdict: str, message: str = "", check: str = "network.pairwise_correct") -> str:
    return json.dumps({"check": check, "node": node, "verdict": verdict, "message": message}, separators=(",", ":"))


DESCRIBED = '{"schema":3,"describes":"check","check":"gpu.gpu_exact","remedy":"pass"}'
NOTHING = line("pairs", "incomplete", "nothing was measured between nodes")
TAKEN = line("gpu001", "incomplete", "no pair of it was measured: taken: 2 of 8 nvidia.com/gpu by default/train-0")
BUSY = line("gpu002", "incomplete", "gpu_exact: was not requested (busy: taken: 8 of 8 nvidia.com/gpu by default/b)")
ALONE = line("gpu002", "incomplete", "no pair of it was measured: fewer than two of its nodes could be reached")
NO_IMAGE = line("gpu002", "incomplete", "gpu_exact: was not requested (no image: ErrImagePull)")
DENIED = line(
    "gpu002", "incomplete", "gpu_exact: was not requested (api: 403 Forbidden: a measurement's pod has no token)"
)
ENDINGS = {
    "all pass": (0, [line("gpu001", "pass")], 0),
    "a node fails, others are busy": (1, [line("gpu001", "fail"), BUSY], 1),
    "a wrong command line": (4, [], 4),
    "every node is busy": (10, [TAKEN, BUSY, ALONE, NOTHING], 0),
    "some are measured": (10, [line("gpu001", "pass"), NO_IMAGE], 0),
    "some are measured, with a concern": (10, [line("gpu001", "concern"), TAKEN, BUSY], 0),
    "no image": (10, [NO_IMAGE, NOTHING], 10),
    "no image where a node is idle": (10, [TAKEN, NO_IMAGE, NOTHING], 10),
    "pods that are denied": (10, [TAKEN, DENIED, NOTHING], 10),
    "no results": (10, [], 10),
}


@pytest.mark.parametrize(("code", "lines", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_the_job_fails_where_a_node_does_or_is_idle_and_nothing_is_measured(
    tmp_path: Path, code: int, lines: list[str], expected: int
) -> None:
    (made,) = (
        document for document in yaml.safe_load_all(rendered(*VALUES)) if document and document["kind"] == "CronJob"
    )
    (container,) = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    output = "\n".join([DESCRIBED, *lines])
    program = tmp_path / "clusterproof"
    program.write_text(f"#!/bin/sh\nfor results; do :; done\ncat > $results <<'END'\n{output}\nEND\nexit {code}\n")
    program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(container["command"], cwd=tmp_path, env=variables, check=False).returncode == expected
