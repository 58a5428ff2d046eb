"""Kubernetes nodes: by a pod on each, or by the agents of a gate.

Here: what a run puts into a cluster, which is the program, one pod for each node, and a Job that owns all of it.
Nothing of a pod's image is used, so that it may be any that the node already has, even one of somebody who wants to be
root there: the host's own loader starts the host's own chroot, and the program runs as root on the host. The Job runs
no pods itself, so it is complete at once; when its time to live is over, Kubernetes deletes it with all that it owns,
whatever has become of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from clusterproof.plugins.agent.packing import ARGUMENT
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.kubernetes.nodes import ApiNode, Image

NAMESPACE = "clusterproof"
RUN_LABEL = "clusterproof-run"
CONTAINER = "probe"
KEY = "CLUSTERPROOF"  # of the program in its ConfigMap, and the variable that the pod is given it by; then KEY_2, …
LONGEST = 1_000_000  # characters: a ConfigMap is at most 1 MiB
TTL_S = 900
MEMORY_LIMIT = "512Mi"
FAMILY = re.compile(r"debian|ubuntu", re.IGNORECASE)  # whose libraries lie in a folder of the architecture's name
# By architecture: the loader, Debian's folder, and the loader's elsewhere, where libraries are in usr/lib64.
LOADERS = {
    "amd64": ("ld-linux-x86-64.so.2", "x86_64-linux-gnu", "usr/lib64"),
    "arm64": ("ld-linux-aarch64.so.1", "aarch64-linux-gnu", "usr/lib"),
}
# What the host's loader obeys in the environment of an image, which may be anybody's; empty, it has no effect.
UNSET = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_DEBUG", "LD_PROFILE", "GLIBC_TUNABLES")
LOCALE = {"name": "LC_ALL", "value": "C"}
ETC = "/etc"  # with ld.so.preload: an empty folder
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")  # of the program
PREFERRED = ("kube-proxy", "pause", "aws-node", "amazon-k8s-cni", "cilium", "calico")  # on every node, and kept there


@record
class RunObjects:
    """The names of one run's Kubernetes objects. `uid` is the Job's, empty before it is created.

    The program is in so many `pieces`: Linux takes no variable that is longer than an argument.
    """

    name: str
    namespace: str
    image: str = ""  # the user's own, with a Python in it; empty: one that lies on the node
    uid: str = ""
    pieces: int = 1

    def of(self, made: Mapping[str, Any], program: str) -> RunObjects:
        """It, once there is its Job, with this program."""
        uid = str((made.get("metadata") or {}).get("uid") or "")
        return replace(self, uid=uid, pieces=len(pieces_of(program)))

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the program's pieces."""
        return [KEY, *(f"{KEY}_{number}" for number in range(2, self.pieces + 1))]

    @property
    def variables(self) -> list[Mapping[str, Any]]:
        """The variables by which a pod is given the program."""
        return [{"name": key, "valueFrom": {"configMapKeyRef": {"name": self.name, "key": key}}} for key in self.keys]

    @property
    def script(self) -> str:
        """What runs the program."""
        return f'{self._taken};eval "$p"'

    def on_stdin(self, command: str) -> str:
        """What runs a command whose text comes over its input: what is stored is that text, for all nodes one."""
        return f'{self._taken};printf %s "$p"|{command}'

    @property
    def _taken(self) -> str:
        """No collector sees the program in its environment."""
        return f"p={''.join(f'${key}' for key in self.keys)};unset {' '.join(self.keys)}"

    @property
    def root(self) -> str:
        """Where a pod has the host's files, if its image is anybody's: no image has a volume over a path of chance."""
        return f"/{self.name}"

    @property
    def pods(self) -> str:
        """The path of the pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def config_maps(self) -> str:
        """The path of the program."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def jobs(self) -> str:
        """The path of the Job."""
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def selector(self) -> str:
        """What selects the run's pods."""
        return f"{RUN_LABEL}={self.name}"

    def metadata(self, name: str) -> Mapping[str, Any]:
        """That of an object which the Job owns."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.uid}
        labels = {"app.kubernetes.io/name": "clusterproof", RUN_LABEL: self.name}
        return {"name": name, "labels": labels, **({"ownerReferences": [owner]} if self.uid else {})}


def job(run: RunObjects, ttl_s: int) -> Mapping[str, Any]:
    """The owner of it all; its own template is never used."""
    container = {"name": "none", "image": "none"}
    return {
        "metadata": run.metadata(run.name),
        "spec": {
            "completions": 0,
            "parallelism": 0,
            "ttlSecondsAfterFinished": ttl_s,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def pieces_of(program: str) -> Sequence[str]:
    """A program as its ConfigMap has it."""
    return [program[start : start + ARGUMENT] for start in range(0, len(program), ARGUMENT)] or [""]


def config_map(run: RunObjects, program: str) -> Mapping[str, Any]:
    """The program."""
    pieces = dict(zip(run.keys, pieces_of(program), strict=True))
    return {"metadata": run.metadata(run.name), "immutable": True, "data": pieces}


def pod(run: RunObjects, name: str, node: ApiNode, image: str, deadline_s: int, script: str = "") -> Mapping[str, Any]:
    """The pod for one node: pinned to it, whatever its taints; it requests nothing, as jobs may have requested all."""
    script = script or run.script
    volumes: list[Mapping[str, Any]] = [{"name": "host", "hostPath": {"path": "/"}}]
    mounts = [{"name": "host", "mountPath": HOST if run.image else run.root}]
    variables = [*run.variables, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]  # a broken driver would stop it
    if not run.image:
        volumes.append({"name": "etc", "emptyDir": {}})
        mounts.append({"name": "etc", "mountPath": ETC})
        variables += [{"name": name} for name in UNSET]
        variables.append(LOCALE)
    return {
        "metadata": {
            **run.metadata(name),
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        },
        "spec": {
            "nodeName": node.name,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": deadline_s,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "hostPID": True,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "volumes": volumes,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent" if run.image else "Never",
                    "command": ["/bin/sh", "-c", script] if run.image else on_host(run, node, script),
                    "env": variables,
                    "securityContext": {"privileged": True, "runAsUser": 0},
                    "resources": {"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": MEMORY_LIMIT}},
                    "volumeMounts": mounts,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                }
            ],
        },
    }


def on_host(run: RunObjects, node: ApiNode, script: str) -> list[str]:
    """The command that runs a shell script on the host, with nothing but the host's files.

    No shell reads the image's environment: Kubernetes itself puts the value of a key for `$(KEY)`.
    """
    name, family_folder, folder = LOADERS.get(node.info.get("architecture", ""), LOADERS["amd64"])
    if FAMILY.search(node.info.get("osImage", "")):
        folder = libraries = f"usr/lib/{family_folder}"
    else:
        libraries = "usr/lib64"
    loaded = [f"{run.root}/{folder}/{name}", "--library-path", f"{run.root}/{libraries}"]
    cleaned = ["/usr/bin/env", "-i", *ENVIRONMENT, *(f"{key}=$({key})" for key in run.keys)]
    return [*loaded, f"{run.root}/usr/sbin/chroot", run.root, *cleaned, "/bin/sh", "-c", script]


def image_on(node: ApiNode) -> str:
    """An image that is on the node: one that every node runs, else the smallest; empty where none is reported."""
    named = [image for image in node.images if image.names]
    for word in PREFERRED:
        names = [name for image in named for name in image.names if word in name]
        if names:
            return _shortest(names)
    return _shortest(min(named, key=_size).names) if named else ""


def _size(image: Image) -> int:
    return image.size_bytes


def _shortest(names: Sequence[str]) -> str:
    """By tag where it has one: a digest is longer."""
    return min(names, key=lambda name: (len(name), name))
