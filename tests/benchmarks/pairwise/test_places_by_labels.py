"""The node positions that the pairwise test and the report use in a Kubernetes cluster."""

from __future__ import annotations

from dataclasses import replace

from clusterproof.plugins.suite.perf.pairs_planning import places_of
from clusterproof.reports.formats.html import document
from clusterproof.reports.topology import lines, section, topology
from tests.checks.control_plane.kubernetes_cluster import NAMES, Words, healthy
from tests.reports.reported import result, run_of


def spread() -> Words:
    """Two nodes under each of two network nodes."""
    reports = healthy()
    for number, node in enumerate(reports.nodes):
        node["layers"] = ["nn-1", "nn-2", f"nn-3{'ab'[number // 2]}"]
    return reports


def places(reports: Words) -> dict[str, str]:
    facts = reports.facts()
    return places_of(facts, facts.cluster.targets)


def test_labels_of_the_network_are_places_of_pairs() -> None:
    assert places(spread()) == dict(zip(NAMES, ("nn-3a", "nn-3a", "nn-3b", "nn-3b"), strict=True))


def test_a_label_of_an_ultraserver_goes_before_those_of_the_network() -> None:
    reports = spread()
    for number, node in enumerate(reports.nodes):
        node["ultraserver"] = f"us-{number % 2}"
    assert places(reports) == dict(zip(NAMES, ("us-0", "us-1", "us-0", "us-1"), strict=True))


def test_labels_of_zones_are_what_is_left() -> None:
    reports = healthy()
    for number, node in enumerate(reports.nodes):
        node.update(layers=[], zone=f"us-west-2{'ab'[number // 2]}")
    assert places(reports) == dict(zip(NAMES, ("us-west-2a", "us-west-2a", "us-west-2b", "us-west-2b"), strict=True))


def test_the_report_says_where_nodes_stand() -> None:
    report = topology(spread().facts())
    assert report
    assert list(lines(report)) == ["topology    workers in 2 network nodes: 2 in nn-3a, 2 in nn-3b"]
    assert "<td>nn-3a</td>" in section(report)
    assert "<td>us-west-2a</td>" in section(report)


def test_the_page_has_the_places_that_the_terminal_names() -> None:
    facts = spread().facts()
    assert "<td>nn-3a</td>" in document(replace(run_of([result("gpu.ecc", name) for name in NAMES]), facts=facts))


def test_where_no_label_is_set_the_report_says_nothing() -> None:
    reports = healthy()
    for node in reports.nodes:
        node.update(layers=[], zone="", ultraserver="")
    assert topology(reports.facts()) is None
