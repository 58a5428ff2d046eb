"""`-m perf` on Kubernetes nodes: by pods that request the GPUs, with the same verdicts as any other way."""

from __future__ import annotations

import sys
from pathlib import Path

from clusterproof.plugins.benchmarks.load.asking import load
from clusterproof.plugins.benchmarks.load.options import LoadOptions
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.kubernetes.connection import Kubernetes
from clusterproof.plugins.transport.kubernetes.perf import NO_IMAGE_NAMED
from clusterproof.reports.results import read_results
from tests.benchmarks.launchers.launched import cluster_of
from tests.builders.runs import ROOT
from tests.kubernetes.perf import GOOD, GPU, GPUS, NAMES, TOOLS, WRONG, job
from tests.kubernetes.typed import typed
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.load import gpu_node, with_speed
from tests.testbed.needs import needs_cluster, needs_kubernetes, needs_nodes, needs_openmpi
from tests.testbed.node import entered, healthy_p5, with_whole_machine

pytestmark = [needs_kubernetes, needs_cluster, needs_openmpi, needs_nodes]
NODE = NAMES[0]
ONE = f"k8s:bed/kubernetes.io/hostname={NODE}"
TWO = f"k8s:bed/kubernetes.io/hostname in ({','.join(NAMES)})"
BUSBW = ("-k", "node_busbw", "--load-path", TOOLS)
CHECK, STRAGGLER = "gpu.node_busbw", "network.not_a_straggler"


def on_this_node(folder: Path, *speeds: str) -> Verdict:
    """The verdict of a run on the node itself, which has the same programs."""
    image = with_whole_machine(with_speed(gpu_node(healthy_p5(NODE)), *speeds))
    results = folder / "local.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--rootdir={ROOT}",
        "-p",
        "no:cacheprovider",
        "--no-report",
        "-m",
        "perf",
    ]
    with entered(image, NODE) as node:
        ran = node.run(
            [*command, "--cluster", "local", "-k", "node_busbw", "--results", "/tmp/r", str(ROOT / "checks")],
            timeout=600,
        )
        results.write_bytes((node.root / "tmp/r").read_bytes())
    verdicts = [result.verdict for result in read_results(results) if result.check == CHECK]
    assert len(verdicts) == 1, ran.stdout + ran.stderr
    return verdicts[0]


def test_a_node_fails_by_a_pod_as_it_does_by_itself_and_that_which_a_job_has_is_incomplete_and_says_whose(
    perf: Nodes, tmp_path: Path
) -> None:
    both = ("-k", "node_busbw or straggler", "--load-path", TOOLS)
    with job(perf, NAMES[1], 2) as name:
        run = typed(tmp_path, "--cluster", TWO, *both, "--k8s-perf-image", WRONG)
    assert run.verdicts[NODE][CHECK] == on_this_node(tmp_path, "all_reduce wrong 3") == Verdict.FAIL, run.words
    assert {run.verdicts[NAMES[1]][check] for check in (CHECK, STRAGGLER)} == {Verdict.INCOMPLETE}
    reason = f"taken: 2 of {GPUS} {GPU} by {name}; expected all free"
    assert f"busy: {reason}" in run.words
    assert f"no pair of it was measured: {reason}" in run.words
    assert perf.left() == []


def test_a_node_passes_by_a_pod(perf: Nodes, tmp_path: Path) -> None:
    run = typed(tmp_path, "--cluster", ONE, *BUSBW, "--k8s-perf-image", GOOD)
    assert run.verdicts[NODE][CHECK] is Verdict.PASS, run.words


def test_without_an_image_no_node_is_loaded_and_each_says_which_option_names_it() -> None:
    cluster = cluster_of(dict.fromkeys(NAMES, ""), "kubernetes")
    answered = {name: NodeEvidence(name) for name in NAMES}
    evidence: dict[str, NodeEvidence] = {}
    options = LoadOptions()
    load(
        cluster,
        Kubernetes(),
        ["gpu_gemm"],
        options,
        Limits(),
        answered,
        lambda answer: evidence.update({answer.node: answer}),
    )
    assert {
        (answer.collectors["gpu_gemm"].status, answer.collectors["gpu_gemm"].detail) for answer in evidence.values()
    } == {(Status.NOT_ASKED, NO_IMAGE_NAMED)}
    assert set(evidence) == set(NAMES)
