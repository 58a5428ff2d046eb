"""JUnit of a run, as Jenkins takes it, whatever the nodes say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.suites import suites
from tests.reports.jenkins import breaches
from tests.reports.reported import HOSTILE, HUGE, of_each_verdict, result, run_of

NODES = pytest.mark.parametrize("name", [*HOSTILE, HUGE], ids=[*map(ascii, HOSTILE), "a megabyte"])


def test_jenkins_takes_the_suites() -> None:
    root = ET.fromstring(suites(run_of(of_each_verdict())))
    assert breaches(root) == []
    assert [suite.get("name") for suite in root] == [
        "clusterproof.gpu",
        "clusterproof.host",
        "clusterproof.control_plane",
    ]


def test_a_case_is_a_check_and_verdict_with_its_nodes_folded() -> None:
    root = ET.fromstring(suites(run_of(of_each_verdict())))
    gpu = root[0]
    cases = [(case.get("classname"), case.get("name"), [part.tag for part in case]) for case in gpu.iter("testcase")]
    assert cases == [
        ("clusterproof.gpu.ecc", "Title of ecc [gpu[002-003]]", ["failure"]),
        ("clusterproof.gpu.ecc", "Title of ecc [gpu005]", ["error"]),
        ("clusterproof.gpu.ecc", "Title of ecc [gpu004]", ["system-out"]),
        ("clusterproof.gpu.ecc", "Title of ecc [gpu[001,007-008]]", ["system-out"]),
        ("clusterproof.gpu.ecc", "Title of ecc [gpu006]", ["skipped"]),
    ]
    assert {key: gpu.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    failure = next(gpu.iter("failure"))
    assert failure.get("message") == "gpu[002-003]: GPU 1: 14 errors; expected 0"
    data = (failure.text or "").splitlines()
    assert data[:3] == ["check: gpu.ecc", "verdict: fail", "nodes: gpu[002-003]"]
    assert "do: Do something." in data


def test_a_suite_says_of_which_cluster_and_nodes_it_is() -> None:
    root = ET.fromstring(suites(run_of(of_each_verdict())))
    data = {entry.get("name"): entry.get("value") for entry in root[0].iter("property")}
    assert data["cluster"] == "prod"
    assert data["nodes"] == "gpu[001-008]"
    assert data["owners"] == "hyperpod-node-debugger"


@NODES
def test_no_node_breaks_the_suites(name: str) -> None:
    data = suites(
        run_of([result("gpu.ecc", name, Verdict.FAIL, name), result("gpu.x", name, Verdict.INCOMPLETE, name)])
    )
    root = ET.fromstring(data.encode("utf-8", "backslashreplace"))
    assert breaches(root) == []
    assert [case.tag for case in root.iter("testcase")] == ["testcase"] * 2
