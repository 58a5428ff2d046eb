"""Reaches Kubernetes nodes by a pod on each, or through the agents of a gate.

This module defines what a run creates in a cluster: the program, one pod for each node, and a Job that owns them.
Nothing of a pod's image is used, so it may be any image that the node already has, even a hostile one: the host's own
loader starts the host's own chroot, and the program runs as root on the host. The Job itself runs no pods, so it is
complete at once; when its time to live is over, Kubernetes deletes it with everything it owns, whatever happened to
the run.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from clusterproof.plugins.agent.packing import ARGUMENT
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.kubernetes.nodes import ApiNode, Image

NAMESPACE = "clusterproof"
RUN_LABEL = "clusterproof-run"
CONTAINER = "probe"
KEY = "CLUSTERPROOF"  # the program's key in its ConfigMap, and the variable that passes it to the pod; then KEY_2, …
LONGEST = 1_000_000  # characters: a ConfigMap is at most 1 MiB
TTL_S = 900
MEMORY_LIMIT = "512Mi"
FAMILY = re.compile(r"debian|ubuntu", re.IGNORECASE)  # with libraries in a folder named after the architecture
# By architecture: the loader, Debian's folder, and the loader elsewhere, where libraries are in usr/lib64.
LOADERS = {
    "amd64": ("ld-linux-x86-64.so.2", "x86_64-linux-gnu", "usr/lib64"),
    "arm64": ("ld-linux-aarch64.so.1", "aarch64-linux-gnu", "usr/lib"),
}
# Variables that the host's loader obeys, and that an untrusted image may set; empty, they have no effect.
UNSET = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_DEBUG", "LD_PROFILE", "GLIBC_TUNABLES")
LOCALE = {"name": "LC_ALL", "value": "C"}
ETC = "/etc"  # contains ld.so.preload: covered with an empty folder
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")  # of the program
PREFERRED = ("kube-proxy", "pause", "aws-node", "amazon-k8s-cni", "cilium", "calico")  # on every node, never removed


@record
class RunObjects:
    """The names of one run's objects. `uid` is the Job's, empty until it exists.

    The program is split into `pieces`: Linux limits a variable to the length of an argument.
    """

    name: str
    namespace: str
    image: str = ""  # the user's own, with Python in it; empty: any image on the node
    uid: str = ""
    pieces: int = 1

    def of(self, made: Mapping[str, Any], program: str) -> RunObjects:
        """A copy for the created Job and this program."""
        uid = str((made.get("metadata") or {}).get("uid") or "")
        return replace(self, uid=uid, pieces=len(pieces_of(program)))

    @property
    def keys(self) -> Sequence[str]:
        """The ConfigMap's keys of the program's pieces."""
        return [KEY, *(f"{KEY}_{number}" for number in range(2, self.pieces + 1))]

    @property
    def variables(self) -> list[Mapping[str, Any]]:
        """The variables that pass the program to a pod."""
        return [{"name": key, "valueFrom": {"configMapKeyRef": {"name": self.name, "key": key}}} for key in self.keys]

    @property
    def script(self) -> str:
        """The shell script that runs the program."""
        return f'{self._taken};eval "$p"'

    def on_stdin(self, command: str) -> str:
        """The command whose program is read from standard input: only the program is stored, once for all nodes."""
        return f'{self._taken};printf %s "$p"|{command}'

    @property
    def _taken(self) -> str:
        """Remove the program from the environment, so that no collector sees it."""
        return f"p={''.join(f'${key}' for key in self.keys)};unset {' '.join(self.keys)}"

    @property
    def root(self) -> str:
        """The mount point of the host's files in a pod with any image: random, so that no image volume covers it."""
        return f"/{self.name}"

    @property
    def pods(self) -> str:
        """The API path of the pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def config_maps(self) -> str:
        """The API path of the program's ConfigMap."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def jobs(self) -> str:
        """The API path of the Job."""
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def selector(self) -> str:
        """The label selector of the run's pods."""
        return f"{RUN_LABEL}={self.name}"

    def metadata(self, name: str) -> Mapping[str, Any]:
        """Metadata of an object owned by the Job."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": self.uid}
        labels = {"app.kubernetes.io/name": "clusterproof", RUN_LABEL: self.name}
        return {"name": name, "labels": labels, **({"ownerReferences": [owner]} if self.uid else {})}


def namespace_of(settings: Mapping[str, str]) -> str:
    """The namespace that a run's settings choose."""
    return settings.get("k8s_namespace") or NAMESPACE


def new_run(settings: Mapping[str, str], prefix: str = "clusterproof", image_setting: str = "k8s_image") -> RunObjects:
    """Objects with names of their own, for the chosen namespace and image."""
    return RunObjects(f"{prefix}-{secrets.token_hex(5)}", namespace_of(settings), settings.get(image_setting, ""))


def job(run: RunObjects, ttl_s: int) -> Mapping[str, Any]:
    """The Job that owns everything; its own pod template is never used."""
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
    """Split a program for its ConfigMap."""
    return [program[start : start + ARGUMENT] for start in range(0, len(program), ARGUMENT)] or [""]


def config_map(run: RunObjects, program: str) -> Mapping[str, Any]:
    """The ConfigMap with the program."""
    pieces = dict(zip(run.keys, pieces_of(program), strict=True))
    return {"metadata": run.metadata(run.name), "immutable": True, "data": pieces}


def pod(run: RunObjects, name: str, node: ApiNode, image: str, deadline_s: int, script: str = "") -> Mapping[str, Any]:
    """The pod for one node: pinned to it despite taints; it requests nothing, because jobs may have requested all."""
    script = script or run.script
    volumes: list[Mapping[str, Any]] = [{"name": "host", "hostPath": {"path": "/"}}]
    mounts = [{"name": "host", "mountPath": HOST if run.image else run.root}]
    variables = [*run.variables, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]  # a broken driver would stop it
    if not run.image:
        volumes.append({"name": "etc", "emptyDir": {}})
        mounts.append({"name": "etc", "mountPath": ETC})
        variables += [{"name": name} for name in UNSET]
        variables.append(LOCALE)
    container = {
        "image": image,
        "imagePullPolicy": "IfNotPresent" if run.image else "Never",
        "command": ["/bin/sh", "-c", script] if run.image else on_host(run, node, script),
        "env": variables,
        "securityContext": {"privileged": True, "runAsUser": 0},
        "resources": {"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": MEMORY_LIMIT}},
        "volumeMounts": mounts,
    }
    return pod_with(run, name, deadline_s, container, {"nodeName": node.name, "hostPID": True, "volumes": volumes})


def pod_with(
    run: RunObjects, name: str, deadline_s: int, container: Mapping[str, Any], spec: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A pod with this container: it ends by itself, ignores taints, and gets no account of the cluster's."""
    return {
        "metadata": {
            **run.metadata(name),
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        },
        "spec": {
            **spec,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": deadline_s,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{"name": CONTAINER, "terminationMessagePolicy": "FallbackToLogsOnError", **container}],
        },
    }


def on_host(run: RunObjects, node: ApiNode, script: str) -> list[str]:
    """The command that runs a shell script on the host, using only the host's files.

    No shell reads the image's environment: Kubernetes itself substitutes `$(KEY)`.
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
    """An image that is on the node: one that every node runs, else the smallest; empty if none is reported."""
    named = [image for image in node.images if image.names]
    for word in PREFERRED:
        names = [name for image in named for name in image.names if word in name]
        if names:
            return _shortest(names)
    return _shortest(min(named, key=_size).names) if named else ""


def _size(image: Image) -> int:
    return image.size_bytes


def _shortest(names: Sequence[str]) -> str:
    """The shortest name: a tag if there is one, because digests are longer."""
    return min(names, key=lambda name: (len(name), name))
