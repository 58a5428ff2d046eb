"""`pytest --cluster X -m perf -k rdma_mesh` as typed: real sshds, Slurm and fi_pingpong, each rail its own network."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.pairwise.journal import read
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.benchmarks.pairwise.typed import ROOT, Run, run
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.image import File, NodeImage
from tests.testbed.needs import needs_cluster, needs_fi_pingpong, needs_slurm
from tests.testbed.node import healthy_cpu
from tests.testbed.pingpong import FI_PINGPONG, with_fi_pingpong
from tests.testbed.slurm import CONTROLLER, slurm
from tests.testbed.sysfs import efa_device
from tests.testbed.wires import ip

NAMES = ("n1", "n2", "n3", "n4")
BUSES = (0x4F, 0x60, 0x90)  # a node's devices, by rail
PROGRAM = "/opt/rails/fi_pingpong"
# libfabric's TCP provider treats a domain as a hint; this one keeps to the device's interface.
KEEPS_TO_ITS_RAIL = f"""#!/bin/sh
options="$*"; domain=${{options##*-d }}
export FI_TCP_IFACE=${{domain%% *}}
exec {FI_PINGPONG} "$@"
"""
OPTIONS = ("--meter-program", PROGRAM, "--meter-options=-p tcp", "--pairs-seed", "1")
CHECK = str(ROOT / "checks" / "perf" / "test_pairwise_mesh.py")


def with_rails(image: NodeImage) -> NodeImage:
    """A node with three EFA devices, and a program for them."""
    tree = {path: entry for rail, bus in enumerate(BUSES) for path, entry in efa_device(rail, bus, "efa2").items()}
    made = with_fi_pingpong(image)
    return replace(made, sys=made.sys | tree, files={**made.files, PROGRAM: File(KEEPS_TO_ITS_RAIL, 0o755)})


def interface(rail: int) -> str:
    """The interface that represents a device, named like its domain."""
    return f"rdmap{BUSES[rail]}s0-rdm"


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with testbed(dict.fromkeys(NAMES, with_rails(healthy_cpu()))) as running:
        connect_rails(running)
        yield running


def connect_rails(bed: Testbed) -> None:
    """Each rail has a switch, and each node a port of it."""
    switch = switch_of(bed)
    for rail in range(len(BUSES)):
        ip(switch, [f"link add rail{rail} type bridge", f"link set rail{rail} up"])
        for number, name in enumerate(NAMES, start=1):
            node, port = bed.nodes[name].pid, f"r{rail}{name}"
            ip(switch, [f"link add {port} type veth peer name {interface(rail)} netns {node}"])
            ip(switch, [f"link set {port} master rail{rail} up"])
            ip(node, [f"addr add 10.77.{rail}.{number}/24 dev {interface(rail)}", f"link set {interface(rail)} up"])


def switch_of(bed: Testbed) -> int:
    return int(bed.network.parts[2])


@contextlib.contextmanager
def down(bed: Testbed, pid: int, interfaces: Sequence[str]) -> Iterator[None]:
    """Set these links of a network down."""
    ip(pid, [f"link set {name} down" for name in interfaces])
    try:
        yield
    finally:
        ip(pid, [f"link set {name} up" for name in interfaces])


def results(ran: Run) -> dict[str, Result]:
    return {result.node: result for result in ran.results if result.check == "network.rdma_mesh"}


def verdicts(ran: Run) -> dict[str, Verdict]:
    return {node: result.verdict for node, result in results(ran).items()}


@needs_cluster
@needs_fi_pingpong
class TestRails:
    def test_every_device_reaches_its_partners_and_a_recording_says_the_same(
        self, bed: Testbed, tmp_path: Path
    ) -> None:
        ran = run(bed, tmp_path, "--cluster", "ssh:n[1-4]", *OPTIONS, "-k", "rdma_mesh", CHECK)
        assert verdicts(ran) == dict.fromkeys(NAMES, Verdict.PASS), ran.output
        journal = read(ran.recording / "pairwise.jsonl")
        assert {len(measurement.reading.exchanges) for measurement in journal.measurements} == {len(BUSES)}
        assert "exchanges between RDMA devices arrived, on 3 rails" in ran.output
        again = run(bed, tmp_path, "--cluster", f"replay:{ran.recording}", CHECK)
        assert verdicts(again) == verdicts(ran)

    def test_a_device_and_a_rail_that_are_dead_are_told_apart(self, bed: Testbed, tmp_path: Path) -> None:
        node, switch = bed.nodes["n3"].pid, switch_of(bed)
        with down(bed, node, [interface(1)]), down(bed, switch, ["rail2"]):
            ran = run(bed, tmp_path, "--cluster", "ssh:n[1-4]", "--meter", "rdma_mesh", *OPTIONS, CHECK)
        by_node = results(ran)
        assert {name for name, result in by_node.items() if "reaches none of" in result.message} == {"n3"}, ran.output
        assert {result.verdict for result in by_node.values()} == {Verdict.INCOMPLETE}
        assert "rdmap96s0 (rail 1) reaches none of n[1-2,4], 3 of which reach others on it: " in by_node["n3"].message
        for result in by_node.values():
            assert "rail 2: 0 of 6 pairs of nodes reach each other, 9 of 12 on the others" in result.message

    def test_a_node_none_of_whose_devices_reaches_anybody_is_named(self, bed: Testbed, tmp_path: Path) -> None:
        with down(bed, bed.nodes["n2"].pid, [interface(rail) for rail in range(len(BUSES))]):
            ran = run(bed, tmp_path, "--cluster", "ssh:n[1-4]", "--meter", "rdma_mesh", *OPTIONS, CHECK)
        well = dict.fromkeys(NAMES, Verdict.PASS)
        assert verdicts(ran) == {**well, "n2": Verdict.CONCERN}, ran.output
        assert (
            "none of its RDMA devices on rails 0-2 reaches any of n[1,3-4], 3 of which reach"
            in results(ran)["n2"].message
        )


@needs_slurm
@needs_fi_pingpong
def test_steps_of_one_slurm_job_tell_a_device_and_a_rail_apart_and_name_a_node_that_dies(tmp_path: Path) -> None:
    where = ("--cluster", "slurm:gpu", "--via", f"ssh:{CONTROLLER}", "--slurm-wait", "5")
    with slurm(dict.fromkeys(NAMES, with_rails(healthy_cpu()))) as running:
        connect_rails(running.bed)
        node, switch = running.node("n3").pid, switch_of(running.bed)
        with down(running.bed, node, [interface(1)]), down(running.bed, switch, ["rail2"]):
            ran = run(running.bed, tmp_path, *where, "-k", "rdma_mesh", *OPTIONS, CHECK)
        recording = tmp_path / "dies"
        dies = threading.Thread(target=stopped_once_measured, args=(running.bed, "n4", recording / "pairwise.jsonl"))
        dies.start()
        died = run(running.bed, tmp_path, *where, "-k", "rdma_mesh", *OPTIONS, "--record", str(recording), CHECK)
        dies.join()
        left = running.output_of("squeue", "-h", "-t", "PD,R", "-o", "%A").split()
    by_node = results(ran)
    assert "rdmap96s0 (rail 1) reaches none of n[1-2,4], 3 of which reach others on it: " in by_node["n3"].message
    assert {name for name, result in by_node.items() if "reaches none of" in result.message} == {"n3"}, ran.output
    assert all("rail 2: 0 of 6 pairs of nodes reach each other" in result.message for result in by_node.values()), (
        ran.output
    )
    assert {name for name, verdict in verdicts(died).items() if verdict is Verdict.INCOMPLETE} == {"n4"}, died.output
    again = re.compile("once on rails? .*, and did when it was tried again: .*: it did not end in its time")
    late = {result.node for result in results(died).values() if again.search(result.message)}
    others = {name: Verdict.CONCERN if name in late else Verdict.PASS for name in NAMES[:3]}  # late on a busy machine
    assert {name: verdicts(died)[name] for name in others} == others, died.output
    (named,) = (finding.message for finding in results(died)["n4"].findings if finding.verdict is Verdict.CONCERN)
    assert re.match(r"[23] of [34] runs failed and named it: n4 did not answer: srun: ", named), died.output
    assert left == []


def stopped_once_measured(bed: Testbed, name: str, journal: Path) -> None:
    """A node dies once a pair is measured."""
    until = time.monotonic() + 600
    while time.monotonic() < until and not (journal.exists() and journal.read_text().count("\n") > 1):
        time.sleep(0.1)
    bed.stop(name)
