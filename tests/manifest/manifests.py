"""Golden manifests for tests: made from a healthy node, read back as a policy, and compared with other nodes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.manifest.compose import manifest_of, text_of
from clusterproof.plugins.policy import read_policy
from tests.builders.evaluated import probed
from tests.testbed import software
from tests.testbed.healthy import DRIVER, healthy_cpu, healthy_p5
from tests.testbed.image import NodeImage, Service

WITHOUT_GPU = Service("loaded", "inactive", "dead", "enabled")  # enabled, but its condition finds no GPU


@cache
def good() -> NodeEvidence:
    """The report of a p5 known to be good."""
    return probed(healthy_p5())


def build_host() -> NodeImage:
    """The same image on a build machine: no GPU, no EFA, another size."""
    image = healthy_cpu("m5.2xlarge", cpus=8, memory_gib=32)
    services = {"nvidia-fabricmanager": WITHOUT_GPU, "nvidia-dcgm": WITHOUT_GPU}
    services["nvidia-persistenced"] = replace(WITHOUT_GPU, enabled="static")
    p5 = healthy_p5()
    return replace(
        image,
        files=image.files | software.files_of_gpus(DRIVER, software.TOOLKIT_VERSION),
        tools=image.tools | p5.tools | {"nv-fabricmanager": f"#!/bin/sh\necho Fabric Manager version is : {DRIVER}\n"},
        nvml="init = error DRIVER_NOT_LOADED\n",
        services=dict(image.services or {}) | services,
    )


def manifest_text(*machines: NodeEvidence) -> str:
    """The golden manifest of these machines, as written."""
    cluster = Cluster("good", "replay", tuple(Target(evidence.node) for evidence in machines))
    made = manifest_of(list(nodes(cluster, {evidence.node: evidence for evidence in machines}, "ami").values()))
    return text_of(made, "2026-11-21", "replay:good")


def golden(text: str) -> Policy:
    """The policy in a manifest's text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.toml"
        path.write_text(text, encoding="utf-8")
        return read_policy(path)


@cache
def golden_of_good() -> Policy:
    """The golden manifest of that p5."""
    return golden(manifest_text(good()))
