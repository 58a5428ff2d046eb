"""What is created in a cluster, and how: pure functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.nodes import ApiNode, node_of
from clusterproof.plugins.transport.kubernetes import RunObjects, image_on, job, on_host, pod

RUN = RunObjects("clusterproof-0123456789", "clusterproof", uid="d9607e19-f88f-11e6-a518-42010a800195")
DIGEST = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/kube-proxy@sha256:" + 64 * "0"


def node(system: str = "Amazon Linux 2023", architecture: str = "amd64", **images: int) -> ApiNode:
    status = {
        "nodeInfo": {"osImage": system, "architecture": architecture},
        "images": [{"names": [name], "sizeBytes": size} for name, size in images.items()],
    }
    return node_of({"metadata": {"name": "ip-10-0-0-1.us-west-2.compute.internal"}, "status": status})


def test_a_pod_is_at_most_2_kb() -> None:
    made = pod(RUN, f"{RUN.name}-12345", node(), DIGEST, 120)
    assert len(json.dumps(made, separators=(",", ":"))) <= 2000


@pytest.mark.parametrize(
    ("system", "architecture", "loader", "libraries"),
    [
        ("Amazon Linux 2023.9.20251014", "amd64", "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64"),
        ("Amazon Linux 2023.9.20251014", "arm64", "usr/lib/ld-linux-aarch64.so.1", "usr/lib64"),
        ("Red Hat Enterprise Linux CoreOS 9.6", "amd64", "usr/lib64/ld-linux-x86-64.so.2", "usr/lib64"),
        ("Ubuntu 24.04.3 LTS", "amd64", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
        ("Ubuntu 22.04.5 LTS", "arm64", "usr/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
        (
            "Debian GNU/Linux 12 (bookworm)",
            "amd64",
            "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
            "usr/lib/x86_64-linux-gnu",
        ),
    ],
)
def test_the_hosts_loader_is_where_its_distribution_has_it(
    system: str, architecture: str, loader: str, libraries: str
) -> None:
    command = on_host(RUN, node(system, architecture), "true")
    assert command[:6] == [
        f"{RUN.root}/{loader}",
        "--library-path",
        f"{RUN.root}/{libraries}",
        f"{RUN.root}/usr/sbin/chroot",
        RUN.root,
        "/usr/bin/env",
    ]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        ({"nvcr.io/nvidia/pytorch:25.09": 9_000, DIGEST: 100, "eks/kube-proxy:v1.34": 100}, "eks/kube-proxy:v1.34"),
        ({"nvcr.io/nvidia/pytorch:25.09": 9_000, "registry.k8s.io/pause:3.10": 1}, "registry.k8s.io/pause:3.10"),
        ({"a:1": 7, "b:1": 3}, "b:1"),
        ({}, ""),
    ],
)
def test_the_image_is_one_that_every_node_runs_else_the_smallest(images: dict[str, int], expected: str) -> None:
    assert image_on(node("Amazon Linux 2023", "amd64", **images)) == expected


def values(node: Any, key: str) -> list[Any]:
    if isinstance(node, dict):
        return [value for name, value in node.items() if name == key] + [
            item for value in node.values() for item in values(value, key)
        ]
    return [item for value in node for item in values(value, key)] if isinstance(node, list) else []


def test_a_pod_takes_no_gpu_pulls_nothing_and_evicts_nobody() -> None:
    made = pod(RUN, "one", node(), "x", 120)
    assert values(made, "imagePullPolicy") == ["Never"]
    assert values(made, "priorityClassName") == values(made, "runtimeClassName") == []
    (resources,) = values(made, "resources")
    assert resources == {"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": "512Mi"}}
    assert values(made, "tolerations") == [[{"operator": "Exists"}]]


def test_no_runtime_gives_a_pod_gpus_which_a_broken_driver_would_stop() -> None:
    (variables,) = values(pod(RUN, "one", node(), "x", 120), "env")
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in variables


def test_the_job_wants_no_pods_and_has_a_time_to_live() -> None:
    spec = job(RUN, 900)["spec"]
    assert (spec["completions"], spec["parallelism"], spec["ttlSecondsAfterFinished"]) == (0, 0, 900)
