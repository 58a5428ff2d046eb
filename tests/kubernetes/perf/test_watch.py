"""A watch of Kubernetes nodes whose API server, kubelet and pod go away."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import zstandard

from clusterproof.plugins.training_run.sample_columns import HEADER, SUFFIX
from clusterproof.plugins.watch import ChangeKind
from tests.kubernetes.programs import PODS
from tests.kubernetes.watched import OOM, log, samplers, watched, with_log
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_cluster, needs_kubernetes, needs_openmpi

pytestmark = needs_kubernetes
OOM_KILL = "host.no_oom_kill"


def recorded(folder: Path, node: str) -> list[Any]:
    """A node's recorded samples, line by line."""
    packed = zstandard.ZstdDecompressor().stream_reader((folder / f"{node}{SUFFIX}").read_bytes(), True)
    return [json.loads(line) for line in io.TextIOWrapper(packed)]


def gaps(lines: list[Any]) -> list[str]:
    """Why another sampler was started."""
    return [str(line["gap"]["why"]) for line in lines if isinstance(line, dict) and "gap" in line]


@needs_cluster
@needs_openmpi
def test_events_are_said_once_and_no_sample_is_lost_while_api_server_and_kubelet_are_started_anew(
    perf: Nodes, tmp_path: Path
) -> None:
    (first, second, *_), root, kept = perf.machines, with_log(tmp_path), tmp_path / "kept"
    with watched([first, second], root, kept, perf.joined) as watch:
        watch.until_sampled(first, second)
        log(root, OOM, 1)
        for name in (first, second):
            assert "python3" in watch.until_said(OOM_KILL, node=name).message
        perf.plane.restart_apiserver()
        with perf.machines[second].without_kubelet():
            watch.until_sampled(first)
        watch.until_sampled(second)
        (pod,) = [
            str(entry["metadata"]["name"]) for entry in perf.plane.items(PODS) if entry["spec"]["nodeName"] == first
        ]
        perf.plane.call("DELETE", f"{PODS}/{pod}")
        wait_until(lambda: first in nodes_with_pods(perf, but=pod), "another pod")
        watch.until_sampled(first, second)
        for name in (first, second):
            assert [change.kind for change in watch.of(OOM_KILL, name)] == [ChangeKind.OPENED]
    assert perf.left() == []
    for machine in perf.machines.values():
        wait_until(lambda machine=machine: not samplers(machine), "without samplers")  # type: ignore[misc]
    assert gaps(recorded(kept, first)) == ["its pod was deleted meanwhile, by whom is not known"]
    header, *lines = recorded(kept, second)
    assert HEADER in header
    assert all(isinstance(entry, list) for entry in lines if "event" not in entry)  # no gap, and no other sampler
    times = [entry[0] for entry in lines if isinstance(entry, list)]
    assert all(before < after for before, after in pairwise(times))


def nodes_with_pods(perf: Nodes, but: str) -> list[str]:
    pods = [pod for pod in perf.plane.items(PODS) if pod["status"].get("phase") == "Running"]
    return [str(pod["spec"]["nodeName"]) for pod in pods if pod["metadata"]["name"] != but]
