"""Slowed ports of the testbed's switch: a node, a link, a group; the rest stays as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.launchers.client_server import ssh
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output
from clusterproof.plugins.evidence.pairs import Pair, Reading, pair
from tests.benchmarks.launchers.launched import PATIENT, SLOW_GB_PER_S, SLOW_WIRE, cluster_of, measured
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.needs import needs_cluster, needs_iperf3
from tests.testbed.node import healthy_cpu, with_whole_machine

pytestmark = [needs_cluster, needs_iperf3]
NAMES = ("n1", "n2", "n3", "n4")
ROUNDS = (("n1 n2", "n3 n4"), ("n1 n3", "n2 n4"), ("n1 n4", "n2 n3"))


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with testbed(dict.fromkeys(NAMES, with_whole_machine(healthy_cpu()))) as running:
        yield running


def slow_pairs(bed: Testbed, *options: str) -> set[str]:
    """The pairs between which iperf3 measures at most the slow rate."""

    def read(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
        fields = [line.split() for line in outputs[0].text.splitlines() if line.endswith("receiver")]
        return Reading(
            float(fields[0][fields[0].index("Gbits/sec") - 1]) / 8, problem="" if fields else outputs[0].text
        )

    meter = Meter(
        "iperf3",
        read,
        server=lambda _, port: f"iperf3 -s -1 -p {port}",
        client=lambda _, address, port: f"iperf3 -c {address} -p {port} -n 2M -f g {' '.join(options)}",
    )
    cluster = cluster_of(dict.fromkeys(NAMES, ""), "ssh", config=str(bed.ssh_config))
    limits = type(PATIENT)(connect_s=10.0, answer_s=30.0, settings=dict(cluster.settings))
    readings: dict[str, Reading] = {}
    with bed.joined(), ssh(MeterCampaign(meter, MeterSettings(), cluster, limits, 40.0)) as launcher:
        for round_ in ROUNDS:
            readings |= measured(launcher, [pair(*fields.split()) for fields in round_])
    assert {reading.problem for reading in readings.values()} == {""}
    return {name for name, reading in readings.items() if (reading.busbw_gb_per_s or 0) < SLOW_GB_PER_S}


@pytest.mark.parametrize("options", [(), ("-R",)], ids=["sending", "being sent"])
def test_a_slow_node_is_slow_with_everybody(bed: Testbed, options: tuple[str, ...]) -> None:
    with bed.slow_node("n3", SLOW_WIRE):
        assert slow_pairs(bed, *options) == {"n1~n3", "n2~n3", "n3~n4"}


@pytest.mark.parametrize("options", [(), ("-R",)], ids=["sending", "being sent"])
def test_a_slow_link_is_slow_between_its_two_nodes_only(bed: Testbed, options: tuple[str, ...]) -> None:
    with bed.slow_link("n1", "n4", SLOW_WIRE):
        assert slow_pairs(bed, *options) == {str(Pair("n1", "n4"))}


def test_every_node_of_a_slow_group_is_slow(bed: Testbed) -> None:
    with bed.slow_group(["n3", "n4"], SLOW_WIRE):
        assert slow_pairs(bed) == {"n1~n3", "n1~n4", "n2~n3", "n2~n4", "n3~n4"}


def test_afterwards_nothing_is_slow(bed: Testbed) -> None:
    with bed.slow_node("n1", SLOW_WIRE):
        pass
    assert slow_pairs(bed) == set()
