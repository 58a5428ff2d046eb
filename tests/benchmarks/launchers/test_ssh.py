"""A server on one node and a client on the other, over real sshds on a real network, and on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.launchers.client_server import ssh
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.launchers.launched import (
    PATIENT,
    SLOW_GB_PER_S,
    SLOW_WIRE,
    are_soon_quiet,
    cluster_of,
    measured,
    of_run,
    over_ssh,
    sending,
    wait_for,
)
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_iperf3
from tests.testbed.node import healthy_cpu, with_whole_machine

NAMES = [f"gpu-{number}" for number in range(1, 9)]
ROUND = [Pair(NAMES[n], NAMES[n + 1]) for n in range(0, 8, 2)]
BROKEN = Meter(
    "broken",
    lambda _, outputs: Reading(problem=f"client {outputs[0].exit}, server {outputs[1].exit}"),
    server=lambda *_: "exit 127",
    client=lambda *_: "exit 1",
)
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with testbed(dict.fromkeys(NAMES, with_whole_machine(healthy_cpu())), silent=["gone"]) as running:
        yield running


def campaign(bed: Testbed, meter: Meter, run_s: float = 600.0) -> MeterCampaign:
    return over_ssh(bed, meter, run_s, MeterSettings(environment={"WORD": "a word"}))


@pytest.mark.long
def test_on_one_machine_a_client_meets_its_server() -> None:
    cluster = cluster_of({"a": "", "b": ""}, "local")
    with ssh(MeterCampaign(sending(), MeterSettings(), cluster, PATIENT)) as launcher:
        reading = measured(launcher, [Pair("a", "b")])["a~b"]
    assert (reading.problem, reading.size_bytes) == ("", 1_000_000)
    assert reading.seconds > 0


def test_a_meter_of_ranks_is_refused_with_the_way_out() -> None:
    ranks = Meter("all_reduce", lambda *_: Reading(), ranks=lambda _: "true")
    with pytest.raises(Unusable, match="all_reduce needs ranks; expected the launcher mpirun or srun for it"):
        ssh(MeterCampaign(ranks, MeterSettings(), cluster_of({}, "local"), PATIENT))


@pytest.mark.long
def test_a_reader_that_fails_costs_one_reading() -> None:
    def read(settings: object, outputs: object) -> Reading:
        raise ValueError("no such column")

    meter = Meter("odd", read, server=sending().server, client=sending().client)
    with ssh(MeterCampaign(meter, MeterSettings(), cluster_of({"a": "", "b": ""}, "local"), PATIENT)) as launcher:
        assert measured(launcher, [Pair("a", "b")])["a~b"].problem == "ValueError: no such column"


@pytest.mark.long
def test_an_end_that_cannot_be_started_is_at_fault() -> None:
    with ssh(MeterCampaign(BROKEN, MeterSettings(), cluster_of({"a": "", "b": ""}, "local"), PATIENT)) as launcher:
        reading = measured(launcher, [Pair("a", "b")])["a~b"]
    assert (reading.problem, reading.culprit) == ("client 1, server 127", "a")


@needs_cluster
def test_a_round_of_eight_nodes_that_only_ssh_config_has_names_for(bed: Testbed) -> None:
    with bed.joined(), ssh(campaign(bed, sending())) as launcher:
        readings = measured(launcher, ROUND)
        again = measured(launcher, [Pair("gpu-1", "gpu-8"), Pair("gpu-2", "gpu-7")])
    assert {pair: reading.problem for pair, reading in {**readings, **again}.items() if reading.problem} == {}
    assert {reading.network for reading in readings.values()} == {"net:eth0"}
    assert are_soon_quiet(*bed.nodes.values())


@needs_cluster
def test_the_settings_environment_is_that_of_both_ends(bed: Testbed) -> None:
    asks = '[ "$WORD" = "a word" ] || exit 9'
    with bed.joined(), ssh(campaign(bed, sending(server=asks, client=asks))) as launcher:
        assert measured(launcher, ROUND[:1])["gpu-1~gpu-2"].problem == ""


@needs_iperf3
@needs_cluster
def test_iperf3_measures_a_slow_node(bed: Testbed) -> None:
    def read(settings: MeterSettings, outputs: object) -> Reading:
        import json

        report = json.loads(outputs[0].text)  # type: ignore[index]
        return Reading(busbw_gb_per_s=report["end"]["sum_received"]["bits_per_second"] / 8e9)

    meter = Meter(
        "iperf3",
        read,
        server=lambda _, port: f"iperf3 -s -1 -p {port}",
        client=lambda _, address, port: f"iperf3 -c {address} -p {port} -n 2M -J",
    )
    with bed.slow_node("gpu-3", SLOW_WIRE), bed.joined(), ssh(campaign(bed, meter)) as launcher:
        readings = measured(launcher, ROUND[:2])
    slow, fast = (readings[pair].busbw_gb_per_s for pair in ("gpu-3~gpu-4", "gpu-1~gpu-2"))
    assert slow is not None
    assert fast is not None
    assert slow < SLOW_GB_PER_S < fast


@needs_cluster
@pytest.mark.parametrize("end", ["server", "client"])
def test_at_the_deadline_the_pair_fails_and_nothing_is_left_on_either_node(bed: Testbed, end: str) -> None:
    stuck = sending(server="setsid sleep 1000 & sleep 1000" if end == "server" else "")
    stuck = stuck if end == "server" else sending(client="setsid sleep 1000 & sleep 1000")
    with bed.joined(), ssh(campaign(bed, stuck, run_s=4.0)) as launcher:
        reading = measured(launcher, ROUND[:1])["gpu-1~gpu-2"]
        assert reading.busbw_gb_per_s is None
        assert reading.problem
        assert [command for name in ("gpu-1", "gpu-2") for command in of_run(bed.nodes[name].root)] == []


@needs_cluster
def test_a_node_that_is_not_there_is_at_fault_and_the_others_are_measured(bed: Testbed) -> None:
    impatient = campaign(bed, sending())
    impatient = MeterCampaign(
        impatient.meter,
        impatient.settings,
        impatient.cluster,
        type(PATIENT)(connect_s=1.0, answer_s=30.0, settings=dict(impatient.cluster.settings)),
    )
    with bed.joined(), ssh(impatient) as launcher:
        readings = measured(launcher, [Pair("gone", "gpu-3"), ROUND[0]])
    assert readings["gone~gpu-3"].culprit == "gone"
    assert readings["gone~gpu-3"].problem.startswith("gone was not reached: timed out")
    assert readings["gpu-1~gpu-2"].problem == ""


@needs_cluster
@pytest.mark.parametrize("victim", ["a", "b"], ids=["the server's", "the client's"])
def test_a_node_that_dies_in_mid_round_is_at_fault_and_the_others_are_measured(victim: str) -> None:
    with testbed(dict.fromkeys(NAMES[:4], healthy_cpu())) as bed:
        slow = sending(client="touch /tmp/began; [ $(hostname) = gpu-2 ] && sleep 1000")
        readings: dict[str, Reading] = {}
        with bed.joined(), ssh(campaign(bed, slow, run_s=30.0)) as launcher:
            round_ = threading.Thread(target=lambda: readings.update(measured(launcher, ROUND[:2])))
            round_.start()
            wait_for(bed.nodes["gpu-2"].root / "tmp/began")
            bed.stop({"a": "gpu-1", "b": "gpu-2"}[victim])
            round_.join()
        other = {"a": "gpu-2", "b": "gpu-1"}[victim]
        assert readings["gpu-1~gpu-2"].culprit == {"a": "gpu-1", "b": "gpu-2"}[victim]
        assert readings["gpu-3~gpu-4"].problem == ""
        assert are_soon_quiet(*(bed.nodes[name] for name in (other, "gpu-3", "gpu-4")))


CONTROLLER = """
import sys
from clusterproof.plugins.benchmarks.launchers.client_server import ssh
from clusterproof.plugins.evidence.pairs import Pair
from tests.benchmarks.launchers.launched import measured, over_ssh, sending
from types import SimpleNamespace
from pathlib import Path
bed = SimpleNamespace(addresses={"gpu-1": "", "gpu-2": ""}, ssh_config=Path(sys.argv[1]))
meter = sending(server="touch /tmp/serves; setsid sleep 1000 & sleep 1000")
measured(ssh(over_ssh(bed, meter, 600)), [Pair("gpu-1", "gpu-2")])
"""


@needs_cluster
def test_when_the_controller_is_killed_in_mid_round_nothing_is_left_on_the_nodes(bed: Testbed) -> None:
    command = bed.command([sys.executable, "-c", CONTROLLER, str(bed.ssh_config)])
    controller = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for(bed.nodes["gpu-1"].root / "tmp/serves")
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait()
    assert are_soon_quiet(*(bed.nodes[name] for name in ("gpu-1", "gpu-2")))


@needs_cluster
def test_an_interrupted_round_is_ended_by_close(bed: Testbed) -> None:
    launcher = ssh(campaign(bed, sending(client="touch /tmp/came; setsid sleep 1000 & sleep 1000"), run_s=600.0))
    with bed.joined():
        threading.Thread(target=lambda: measured(launcher, [Pair("gpu-5", "gpu-6")]), daemon=True).start()
        wait_for(bed.nodes["gpu-6"].root / "tmp/came")
        launcher.close()
        launcher.close()
    assert are_soon_quiet(*(bed.nodes[name] for name in ("gpu-5", "gpu-6")))
