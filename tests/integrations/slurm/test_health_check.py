"""Slurm's health check, end to end: it drains, resumes its own drains, and knows when to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults import BY_NAME
from tests.integrations.slurm.scripts import Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm_version import IN_TURN

pytestmark = needs_slurm

SICK, LATER_SICK, ADMINISTERED = "gpu001", "gpu002", "gpu003"
XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    """Healthy nodes, one of which may be drained."""
    images = {name: healthy_p5(name) for name in (SICK, LATER_SICK, ADMINISTERED)}
    toml = 'mode = "drain"\n[health_check]\nmax_drained_nodes = 1\nmax_drained_percent = 100\n'
    with scripted(images, lines("health-check"), toml, "HealthCheckInterval=5", version=request.param) as running:
        yield running


def test_it_drains_and_resumes_its_own_and_stops_at_the_limit(bed: Scripted) -> None:
    healthy = healthy_p5()
    lost = BY_NAME["a GPU that is lost"].put(healthy)
    bed.nvml(SICK, lost)
    reason = "clusterproof: gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST; expected an answer"
    assert bed.reason_beginning(SICK, reason)

    bed.nvml(LATER_SICK, lost)
    message = f"NOT DRAINED, as 1 of 3 nodes of partition gpu are already drained by clusterproof: {reason}"
    assert message in bed.once_more(LATER_SICK)
    assert bed.bed.state(LATER_SICK) == "IDLE"
    bed.nvml(LATER_SICK, healthy)

    bed.nvml(SICK, BY_NAME["an ECC counter that cannot be read"].put(healthy))
    assert "stays drained: 0 fail, 1 incomplete" in bed.once_more(SICK)
    assert bed.reason_beginning(SICK, reason)

    bed.nvml(SICK, healthy)
    bed.once_more(SICK)
    assert bed.bed.wait_for(SICK, "IDLE") == "IDLE"


def test_an_xid_drains_once_and_an_administrator_who_resumes_the_node_is_obeyed(bed: Scripted) -> None:
    with (bed.node(LATER_SICK).root / "dev/kmsg").open("a") as log:
        log.write(f"3,9000,90000000000,-;{XID}\n")
    bed.once_more(LATER_SICK)
    assert bed.reason_beginning(LATER_SICK, "clusterproof: gpu.no_xid: Xid 79 (GPU has fallen off the bus)")
    bed.once_more(LATER_SICK)
    assert bed.bed.state(LATER_SICK) == "IDLE+DRAIN"  # the Xid stands: nothing has cleared it
    bed.bed.output_of("scontrol", "update", f"NodeName={LATER_SICK}", "State=RESUME")
    bed.once_more(LATER_SICK)
    assert bed.bed.wait_for(LATER_SICK, "IDLE") == "IDLE"


def test_it_asks_slurm_by_the_slurm_conf_that_slurmd_was_started_with(bed: Scripted) -> None:
    slurmd_started_with(bed, SICK, "/etc/slurm", "/etc/other", "-f /etc/other/slurm.conf")
    try:
        bed.nvml(SICK, BY_NAME["a GPU that is lost"].put(healthy_p5()))
        assert bed.reason_beginning(SICK, "clusterproof: gpu.gpu_answers: ")
    finally:
        slurmd_started_with(bed, SICK, "/etc/other", "/etc/slurm", "")


def slurmd_started_with(bed: Scripted, name: str, lies: str, is_to_lie: str, options: str) -> None:
    """Start a node's slurmd anew, once its configuration lies in another folder."""
    bed.node(name).run(["pkill", "-x", "slurmd"])
    assert eventually(lambda: "" if bed.processes(name, "slurmd -D") else "ended")
    moved = bed.node(name).run(["sh", "-c", f"mkdir -p {is_to_lie} && mv {lies}/*.conf {is_to_lie}/"])
    assert moved.returncode == 0, moved.stderr
    bed.node(name).start(["/bin/sh", "-c", f"exec slurmd -D -N {name} {options}"])


def test_a_drain_of_an_administrators_is_never_touched(bed: Scripted) -> None:
    by_hand = "clusterproof: looked at by hand"
    bed.bed.output_of("scontrol", "update", f"NodeName={ADMINISTERED}", "State=DRAIN", f"Reason={by_hand}")
    bed.once_more(ADMINISTERED)
    bed.nvml(ADMINISTERED, BY_NAME["a GPU that is lost"].put(healthy_p5()))
    bed.once_more(ADMINISTERED)
    assert bed.bed.state(ADMINISTERED) == "IDLE+DRAIN"
    assert bed.bed.reason(ADMINISTERED).startswith(f"{by_hand} [root@")


def test_one_of_three_that_fail_at_the_same_moment_is_drained(bed: Scripted) -> None:
    names = (SICK, LATER_SICK, ADMINISTERED)
    for name in names:
        bed.nvml(name, healthy_p5())
        bed.once_more(name)
        bed.bed.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
        bed.bed.wait_for(name, "IDLE")
        bed.nvml(name, BY_NAME["a GPU that is lost"].put(healthy_p5()))
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(bed.once_more, names))
    assert eventually(lambda: "one" if [bed.bed.state(name) for name in names].count("IDLE+DRAIN") == 1 else "")
    for name in names:
        if bed.bed.state(name) == "IDLE":  # perhaps the last of three saw both others' claims
            assert re.search(r"NOT DRAINED, as [12] of 3 nodes of partition gpu", bed.logged(name)), bed.logged(name)
