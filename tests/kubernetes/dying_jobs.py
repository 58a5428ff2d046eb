"""Jobs that die on a real Kubernetes, each of a known cause."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clusterproof.plugins.case.command import case
from clusterproof.plugins.core.record import field, record
from tests.kubernetes.programs import NODE
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.machine import SANDBOX
from tests.testbed.kubernetes.processes import wait_until

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
OF_HOST = ("bin", "lib", "lib64", "usr")  # of this machine, for a shell
RAISES = "exec >&2; echo 'step 1'; echo \"[rank3]: KeyError: 'image'\"; exit 1"  # a runtime does not order two streams
SMALL = {"medium": "Memory", "sizeLimit": "64Ki"}
EATS = """python3 -c "import time; held = b'x' * 300_000_000; time.sleep(60)" """


def spec(script: str, restarts: str = "Never") -> dict[str, Any]:
    """A pod of the real kubelet that runs a script in this machine's shell."""
    volumes: list[dict[str, Any]] = [{"name": name, "hostPath": {"path": f"/{name}"}} for name in OF_HOST]
    mounts: list[dict[str, Any]] = [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in OF_HOST]
    return {
        "nodeName": NODE,
        "hostNetwork": True,
        "restartPolicy": restarts,
        "terminationGracePeriodSeconds": 0,
        "volumes": [*volumes, {"name": "state", "emptyDir": {}}],
        "containers": [
            {
                "name": "train",
                "image": SANDBOX,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", script],
                "securityContext": {"runAsUser": 0},
                "volumeMounts": [*mounts, {"name": "state", "mountPath": "/state"}],
            }
        ],
    }


def conditions(kubernetes: Bed, path: str) -> list[str]:
    conditions = kubernetes.plane.call("GET", path)["status"].get("conditions") or ()
    return [str(condition["type"]) for condition in conditions if condition["status"] == "True"]


def containers(kubernetes: Bed) -> list[dict[str, Any]]:
    return [status for pod in kubernetes.plane.items(PODS) for status in pod["status"].get("containerStatuses") or ()]


@contextlib.contextmanager
def job(kubernetes: Bed, name: str, template: Mapping[str, Any], **more: Any) -> Iterator[str]:
    """Create a Job of one pod; returns its path."""
    restarts = 6 if template["restartPolicy"] == "OnFailure" else 0  # the controller deletes a pod with more restarts
    plan = {"backoffLimit": restarts, "template": {"spec": template}, **more}
    kubernetes.plane.call("POST", JOBS, {"metadata": {"name": name}, "spec": plan})
    try:
        yield f"{JOBS}/{name}"
    finally:
        kubernetes.plane.call("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
        wait_until(lambda: not kubernetes.plane.items(PODS), "gone")


def case_of(named: str, *more: str) -> dict[str, Any]:
    code, text = case([named, "--json", *more])
    assert code == 0, text
    return dict(json.loads(text))


def _nothing(_: Bed) -> None:
    """The job dies by itself."""


def _evict(kubernetes: Bed) -> None:
    """Evict the pod as `kubectl drain` does."""
    wait_until(lambda: any("running" in status["state"] for status in containers(kubernetes)), "running")
    time.sleep(1)
    (pod,) = kubernetes.plane.items(PODS)
    about = {"name": pod["metadata"]["name"], "namespace": "default"}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    kubernetes.plane.call("POST", f"{PODS}/{about['name']}/eviction", body)


@record
class DyingPod:
    """What the job's one pod runs, and what is done to it meanwhile; `cause` is the true cause."""

    name: str
    cause: str
    script: str
    act: Callable[[Bed], None] = _nothing
    volume: Mapping[str, str] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None


DYING = (
    DyingPod("exception", "code", RAISES, rank=3),
    DyingPod("no such module", "code", 'python3 -c "import no_such_module_at_all"'),
    DyingPod("no such program", "code", "exec /no/such/trainer"),
    DyingPod("exit code alone", "unknown", "exit 3"),
    DyingPod("killed", "unknown", "sh -c 'kill -9 $$'; exit $?"),
    DyingPod("disk full", "storage", "dd if=/dev/zero of=/state/a bs=1M count=1", volume=SMALL),
    DyingPod("read-only", "storage", "touch /usr/checkpoint"),
    DyingPod("memory limit", "resources", EATS, container={"resources": {"limits": {"memory": "64Mi"}}}),
    DyingPod("deadline", "stopped", "exec sleep 600", plan={"activeDeadlineSeconds": 5}),
    DyingPod("drained", "unknown", "exec sleep 600", _evict),  # the pod that would show it is gone
)


def died(kubernetes: Bed, dying: DyingPod) -> dict[str, Any]:
    """Run a Job to its end; returns the conclusion of `clusterproof case`."""
    template = spec(dying.script)
    template["volumes"][-1]["emptyDir"] = dict(dying.volume)
    template["containers"][0].update(dying.container)
    with job(kubernetes, "train", template, **dying.plan) as path:
        dying.act(kubernetes)
        wait_until(lambda: "Failed" in conditions(kubernetes, path), "ended")
        return case_of("default/train")
