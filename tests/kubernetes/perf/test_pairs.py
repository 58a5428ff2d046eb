"""Pairs of nodes by pods: a real mpirun that starts its ranks without ssh."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, rdma_mesh
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import Failure, NodeGroup, Pair, Reading
from clusterproof.plugins.suite.perf.pairs_planning import launcher_for
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.launchers.launched import cluster_of, measured
from tests.benchmarks.rdma.nodes import efas
from tests.kubernetes.perf import GPU, GPUS, GROUP, NAMES, PAIR, RANKS, campaign, job, limits, measurement
from tests.kubernetes.programs import PODS
from tests.kubernetes.typed import LINUX, typed
from tests.testbed.image import Link
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_cluster, needs_fi_pingpong, needs_kubernetes, needs_openmpi

pytestmark = [needs_kubernetes, needs_cluster, needs_openmpi]


@pytest.mark.parametrize("by", ["kubernetes", "agents"])
def test_ranks_of_nccl_tests_are_on_both_nodes(perf: Nodes, by: str) -> None:
    reading = measurement(METERS["nccl-tests"], by, ranks_per_node=2, size_bytes=2**20)
    assert (reading.problem, reading.ranks, sorted(reading.hosts), reading.is_correct) == ("", 4, sorted(NAMES), True)
    assert perf.left() == []


def test_ranks_of_a_group_are_on_all_its_nodes(perf: Nodes) -> None:
    reading = measurement(METERS["nccl-tests"], together=NodeGroup(GROUP), ranks_per_node=2, size_bytes=2**20)
    assert (reading.problem, reading.ranks, sorted(reading.hosts), reading.is_correct) == ("", 6, sorted(GROUP), True)
    assert f"mpirun --host {GROUP[2]}:2,{GROUP[0]}:2,{GROUP[1]}:2 -np 6" in reading.command
    assert perf.left() == []


def test_of_a_group_only_the_node_is_named_that_a_job_has_taken(perf: Nodes) -> None:
    with job(perf, NAMES[0], 1) as name:
        reading = measurement(METERS["nccl-tests"], together=NodeGroup(GROUP), ranks_per_node=1, size_bytes=2**20)
    reason = f"{NAMES[0]} was not reached: by no fault of its own: busy: taken: 1 of {GPUS} {GPU} by {name}"
    assert reading.problem == f"{reason}; expected all free"
    assert (reading.culprit, reading.failure) == ("", Failure.NOT_AT_FAULT)
    assert perf.left() == []


def broken_off(breaks: contextlib.AbstractContextManager[None]) -> Reading:
    """A group whose ranks all run when something breaks."""
    sleep = f"sleep 600.{os.getpid()}"
    sleeping = Meter("sleeping", lambda *_: Reading(problem="it ended"), ranks=lambda _: sleep)
    readings: list[Reading] = []
    group = threading.Thread(
        target=lambda: readings.append(measurement(sleeping, together=NodeGroup(GROUP), run_s=600))
    )
    group.start()
    wait_until(lambda: len(commands(sleep)) == len(GROUP), "running")
    with breaks:
        group.join()
    return readings[0]


def commands(command: str) -> list[Path]:
    """The processes of this machine that are this command."""
    files = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            files += [file] if file.read_bytes() == command.replace(" ", "\0").encode() + b"\0" else []
    return files


@contextlib.contextmanager
def deleted(bed: Nodes, node: str) -> Iterator[None]:
    """Somebody deletes the pod that runs an end there."""
    (pod,) = (candidate for candidate in bed.plane.items(PODS) if candidate["spec"]["nodeName"] == node)
    bed.plane.call("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
    yield


def test_of_a_group_only_the_node_is_named_whose_pod_is_deleted(perf: Nodes) -> None:
    reading = broken_off(deleted(perf, NAMES[1]))
    why = "by no fault of its own: removed: its pod was deleted meanwhile, by whom is not known"
    assert (reading.problem, reading.culprit, reading.failure) == (
        f"{NAMES[1]} did not answer: {why}",
        "",
        Failure.NOT_AT_FAULT,
    )
    wait_until(lambda: not perf.left(), "clean")


@pytest.mark.parametrize("node", [GROUP[0], GROUP[2]], ids=["that serves", "that comes"])
def test_of_a_group_the_node_is_named_that_falls_silent(perf: Nodes, node: str) -> None:
    reading = broken_off(perf.unplugged(node))
    assert reading.problem.startswith(f"{node} did not answer: "), reading.problem
    assert (reading.culprit, reading.failure) == (node, None), reading.problem
    wait_until(lambda: not perf.left(), "clean")


def test_a_node_that_a_job_has_taken_meanwhile_is_not_held_responsible(perf: Nodes) -> None:
    with launcher_for(campaign(METERS["nccl-tests"], ranks_per_node=1, size_bytes=2**20)) as launcher:
        measured(launcher, [PAIR])
        with job(perf, NAMES[1], GPUS) as name:
            reading = measured(launcher, [PAIR])[str(PAIR)]
    reason = f"{NAMES[1]} did not answer: by no fault of its own: busy: taken: {GPUS} of {GPUS} {GPU} by {name}"
    assert reason in reading.problem
    assert (reading.culprit, reading.failure) == ("", Failure.NOT_AT_FAULT)
    assert perf.left() == []


def test_an_interrupted_round_is_ended_by_close(perf: Nodes) -> None:
    sleeping = Meter("sleeping", lambda *_: Reading(), server=lambda *_: "sleep 600", client=lambda *_: "sleep 600")
    launcher = launcher_for(campaign(sleeping, run_s=600.0))
    round_ = threading.Thread(target=lambda: measured(launcher, [PAIR]), daemon=True)
    round_.start()
    wait_until(lambda: len(of_the_round(perf)) == 2, "running")
    launcher.close()
    wait_until(lambda: not perf.left(), "clean")


def of_the_round(bed: Nodes) -> list[str]:
    """The pods that run a pair's ends: each the first of its own, as those that only probe are of one run."""
    names = [pod["metadata"]["name"] for pod in bed.plane.items(PODS) if pod["status"].get("phase") == "Running"]
    return [name for name in names if name.endswith("-0")]


MESH = "network.rdma_mesh"
# What the kernel shows of EFA devices, in a folder: this machine has none. On one node a port is down.
DEVICES = """import json, os, sys
for path, (text, target) in json.loads(sys.argv[1]).items():
    file = os.path.join("/tmp/node/sys", path)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if target:
        os.symlink(target, file)
    else:
        is_down = os.uname().nodename == sys.argv[2] and file.endswith("s0/ports/1/state") and "rdmap96s0" in file
        open(file, "w").write("1: DOWN" if is_down else text)
"""


def over_devices(end: Callable[..., str]) -> Callable[..., str]:
    """The shell command of one end of a mesh, over devices that there are not."""
    tree = {
        path: ("", entry.target) if isinstance(entry, Link) else (str(entry), "")
        for path, entry in efas(79, 96).items()
    }
    make = shlex.join(["/usr/bin/python3", "-c", DEVICES, json.dumps(tree), GROUP[2]])
    return lambda *arguments: f"{make}\n{end(*arguments, root='/tmp/node')}"


@needs_fi_pingpong
def test_devices_exchange_from_pod_to_pod_and_one_that_is_down_is_said(perf: Nodes) -> None:
    server, client = over_devices(rdma_mesh.server), over_devices(rdma_mesh.client)
    meter = replace(rdma_mesh.METER, server=server, client=client)
    over_tcp = replace(campaign(meter), settings=MeterSettings(options="-p tcp"))
    with launcher_for(over_tcp) as launcher:
        of_pair = [
            measured(launcher, [measured_pair])[str(measured_pair)] for measured_pair in (PAIR, Pair(*GROUP[1:]))
        ]
    assert [measured_pair.problem for measured_pair in of_pair] == ["", ""]
    well, down = ([exchange.problem for exchange in measured_pair.exchanges] for measured_pair in of_pair)
    assert (well, down) == (["", ""], ["", f"{GROUP[2]}: rdmap96s0 is 1: DOWN, 5: LinkUp"])
    assert perf.left() == []


def test_a_user_who_types_rdma_mesh_learns_that_pods_see_no_devices(perf: Nodes, tmp_path: Path) -> None:
    run = typed(tmp_path, "--cluster", LINUX, "-k", "rdma_mesh", "--k8s-perf-image", RANKS)
    assert {run.verdicts[name][MESH] for name in GROUP} == {Verdict.INCOMPLETE}, run.words
    assert "no RDMA device on either node: gpu00" in run.words, run.words
    assert "expected 32 EFA devices, as a p5.48xlarge has" in run.words, run.words
    assert perf.left() == []


def test_a_user_who_types_groups_has_all_nodes_measured_together(perf: Nodes, tmp_path: Path) -> None:
    meter = ("--meter", "nccl-tests", "--meter-size", "2M", "--meter-options=-n 3 -w 0", "--ranks-per-node", "1")
    with contextlib.ExitStack() as slow:
        for name in GROUP:  # what busy processors delay is little beside such wires
            slow.enter_context(perf.slow(name, "80mbit"))
        run = typed(
            tmp_path, "--cluster", LINUX, "-k", "pairwise", *meter, "--groups", "all", "--k8s-perf-image", RANKS
        )
    assert "groups: measuring 3 nodes together, gpu[001-003]" in run.words, run.words
    verdicts = {run.verdicts[name]["network.pairwise_groups"] for name in GROUP}
    assert verdicts <= {Verdict.PASS, Verdict.CONCERN}, run.words
    assert "; groups: 3 nodes " in run.words, run.words
    assert perf.left() == []


def test_elsewhere_the_launcher_is_refused() -> None:
    cluster = cluster_of(dict.fromkeys(NAMES, ""), "local")
    with pytest.raises(Unusable, match="the launcher pods is for clusters of Kubernetes"):
        launcher_for(MeterCampaign(METERS["iperf3"], MeterSettings(), cluster, limits()), "pods")
