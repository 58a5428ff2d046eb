"""Clusters given without AWS: what their nodes report of themselves, and runs over them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite import gatherer
from tests.aws.storage import LUSTRE_MOUNT, mounting
from tests.builders.recordings import boot, node
from tests.builders.runs import ROOT, Runs

PASS, FAIL, CONCERN = Verdict.PASS, Verdict.FAIL, Verdict.CONCERN
INCOMPLETE, NA = Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
SSH = "ssh:n[1-3]"
CHECKS = (str(ROOT / "checks" / "control_plane"), str(ROOT / "checks" / "storage" / "test_fsx.py"))
OF_NODES = ("-k", "not slurm")
OF_ANOTHER = re.compile("is not a (HyperPod|Kubernetes|Slurm) cluster$")
FSX = {"fsx_throughput", "fsx_utilization", "fsx_capacity"}
NETWORK = {"security_group_self_reference", "subnet_private", "vpc_endpoints"}
PLACES = {"single_az", "network_layers", "ultraserver_block"}
ALL = FSX | NETWORK | PLACES | {"image_uniform", "service_quotas"}
NOWHERE = "no node of it is an EC2 instance"


def on_ec2(name: str, instance: str, zone: str = "us-west-2a", **collectors: object) -> NodeEvidence:
    """A node that reports which instance it is."""
    identity = {"instance_id": instance, "instance_type": "p5.48xlarge", "availability_zone": zone}
    usual: dict[str, object] = {
        "boot": boot(hostname=name),
        "platform": {"vendor": "Amazon EC2", "product": "p5.48xlarge"},
        "imds": {"identity": {**identity, "region": "us-west-2", "image_id": "ami-12345678"}},
        "mounts": mounting(LUSTRE_MOUNT),
    }
    return node(name, **usual | collectors)


def answering(monkeypatch: pytest.MonkeyPatch, *nodes: NodeEvidence) -> None:
    """Have the nodes of an ssh cluster answer with this."""

    def answer(_cluster: Cluster, *arguments: Any) -> None:
        for evidence in nodes:
            arguments[4](evidence)

    monkeypatch.setattr(gatherer, "gather", answer)


def ran(runs: Runs, *arguments: str, cluster: str = SSH) -> dict[str, tuple[Verdict, str]]:
    """Verdict and message of each check that asks EC2 or FSx, by name."""
    runs.run("--cluster", cluster, "--results", str(runs.results_file), *CHECKS, *OF_NODES, *arguments)
    by_check = {result.check.partition(".")[2]: (result.verdict, result.message) for result in runs.results}
    return {name: outcome for name, outcome in by_check.items() if not OF_ANOTHER.search(outcome[1])}


def verdicts(by_check: dict[str, tuple[Verdict, str]]) -> dict[str, Verdict]:
    return {name: verdict for name, (verdict, _) in by_check.items()}
