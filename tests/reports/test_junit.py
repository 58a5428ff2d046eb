"""A run's JUnit file as Jenkins accepts it, whatever the nodes report."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.formats.junit import MAX_LINES, MAX_WORDS, suites
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


def test_a_case_is_a_check_with_its_nodes_folded_by_verdict() -> None:
    root = ET.fromstring(suites(run_of(of_each_verdict())))
    gpu = root[0]
    cases = [(case.get("classname"), case.get("name"), [part.tag for part in case]) for case in gpu.iter("testcase")]
    assert cases == [
        ("clusterproof.gpu", "gpu.ecc", ["failure"]),
    ]
    assert {key: gpu.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "1",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    }
    failure = next(gpu.iter("failure"))
    assert failure.get("message") == "gpu[002-003]: GPU 1: 14 errors; expected 0"
    lines = (failure.text or "").splitlines()
    assert lines[:3] == ["check: gpu.ecc", "verdict: fail", "nodes: gpu[002-003]"]
    assert "do: Do something." in lines
    blocks = [block.splitlines()[1:3] for block in (failure.text or "").split("\n\n")]
    assert blocks == [
        ["verdict: fail", "nodes: gpu[002-003]"],
        ["verdict: incomplete", "nodes: gpu005"],
        ["verdict: concern", "nodes: gpu004"],
    ]


def test_a_case_begins_with_what_was_seen_on_the_nodes_that_it_names() -> None:
    failed = {"gpu002": "GPU 1: 14 errors", "gpu003": "GPU 5: 2 errors", "gpu004": "GPU 1: 14 errors"}
    results = [result("gpu.ecc", name, Verdict.FAIL, seen) for name, seen in failed.items()]
    (failure,) = ET.fromstring(suites(run_of(results))).iter("failure")
    assert failure.get("message") == "gpu[002,004]: GPU 1: 14 errors (+1)"


def test_a_case_has_as_much_of_a_line_whatever_its_nodes_are_called() -> None:
    seen = f"{'word ' * (MAX_WORDS // 5 - 1)}last"
    (failure,) = ET.fromstring(suites(run_of([result("gpu.ecc", "gpu001", Verdict.FAIL, seen)]))).iter("failure")
    assert f"gpu001: {seen}" in (failure.text or "").splitlines()


@pytest.mark.parametrize("by", ["check", "node"])
def test_a_case_says_how_many_lines_it_leaves_out(by: str) -> None:
    lines = "\n".join(f"file {number} was denied" for number in range(MAX_LINES + 2))
    why = {"cause": "may not be looked at"}
    results = [result(check, "n1", Verdict.INCOMPLETE, lines, **why) for check in ("host.word", "software.image_clean")]
    cases = ET.fromstring(suites(run_of(results, junit_cases=by))).iter("testcase")
    texts = [part.text or "" for case in cases for part in case]
    assert texts
    for text in texts:
        assert text.count("was denied") == MAX_LINES
        assert "… and 2 more lines; results.jsonl has all" in text.splitlines()


def test_a_case_without_a_finding_says_where_it_passed_and_where_it_does_not_apply() -> None:
    verdicts = {"gpu001": Verdict.PASS, "gpu002": Verdict.NOT_APPLICABLE}
    root = ET.fromstring(suites(run_of([result("gpu.ecc", name, verdict) for name, verdict in verdicts.items()])))
    (text,) = [part.text or "" for case in root.iter("testcase") for part in case]
    assert [block.splitlines()[1:3] for block in text.split("\n\n")] == [
        ["verdict: pass", "nodes: gpu001"],
        ["verdict: not applicable", "nodes: gpu002"],
    ]


def test_a_case_of_a_node_has_its_findings_check_by_check() -> None:
    ecc = result("gpu.ecc", "gpu001", Verdict.FAIL, "14 errors; expected 0")
    space = result("host.space", "gpu001", Verdict.CONCERN, "91 %; expected 90")
    healthy = [result("gpu.ecc", "gpu002"), result("host.space", "gpu002", Verdict.NOT_APPLICABLE)]
    root = ET.fromstring(suites(run_of([space, *healthy, ecc, result("gpu.xid", "gpu001")], junit_cases="node")))
    assert breaches(root) == []
    sick, well = root.iter("testcase")
    assert [(case.get("classname"), case.get("name")) for case in (sick, well)] == [
        ("clusterproof.nodes", "gpu001"),
        ("clusterproof.nodes", "gpu002"),
    ]
    assert [(part.tag, part.get("message")) for part in sick] == [("failure", "gpu001: 14 errors; expected 0")]
    blocks = [block.splitlines()[:2] for block in (sick[0].text or "").split("\n\n")]
    assert blocks == [["check: gpu.ecc", "verdict: fail"], ["check: host.space", "verdict: concern"]]
    assert [(part.tag, part.text) for part in well] == [("system-out", "pass: 1 check\nnot applicable: 1 check")]


def test_a_case_of_a_check_says_in_which_line_of_which_file_the_check_stands() -> None:
    run = run_of(of_each_verdict(), sources={"gpu.ecc": ("checks/test_ecc.py", 7)})
    cases = {case.get("name"): case for case in ET.fromstring(suites(run)).iter("testcase")}
    assert (cases["gpu.ecc"].get("file"), cases["gpu.ecc"].get("line")) == ("checks/test_ecc.py", "7")
    assert cases["host.word"].keys() == ["classname", "name", "time"]


def test_a_case_of_a_node_says_once_why_many_checks_could_not_be_evaluated() -> None:
    cause = "unreachable: refused"
    gone = [result(f"gpu.c{n}", "gpu005", Verdict.INCOMPLETE, cause, cause=cause) for n in range(150)]
    reach = result("node.reachable", "gpu005", Verdict.FAIL, "refused", cause=cause)
    (case,) = ET.fromstring(suites(run_of([*gone, reach], junit_cases="node"))).iter("testcase")
    text = case[0].text or ""
    assert (case[0].tag, text.count(cause)) == ("failure", 1)
    assert "checks: gpu.c0, gpu.c1, " in text


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE])
def test_a_case_keeps_its_name_whatever_the_verdict(verdict: Verdict) -> None:
    case = next(ET.fromstring(suites(run_of([result("gpu.ecc", "gpu001", verdict, "so")]))).iter("testcase"))
    assert (case.get("classname"), case.get("name")) == ("clusterproof.gpu", "gpu.ecc")


def test_a_node_that_was_not_reached_is_one_failure_and_no_further_error() -> None:
    gone = [result(f"gpu.c{n}", "gpu005", Verdict.INCOMPLETE, cause="unreachable: refused") for n in range(3)]
    reach = result("node.reachable", "gpu005", Verdict.FAIL, "refused", cause="unreachable: refused")
    root = ET.fromstring(suites(run_of([*gone, reach])))
    assert [part.tag for case in root.iter("testcase") for part in case] == ["failure", "skipped", "skipped", "skipped"]


def test_where_no_check_says_that_a_node_was_not_reached_each_is_an_error() -> None:
    gone = [result(f"gpu.c{n}", "gpu005", Verdict.INCOMPLETE, cause="unreachable: refused") for n in range(2)]
    root = ET.fromstring(suites(run_of(gone)))
    assert [part.tag for case in root.iter("testcase") for part in case] == ["error", "error"]


def test_a_suite_says_of_which_cluster_and_nodes_it_is() -> None:
    root = ET.fromstring(suites(run_of(of_each_verdict())))
    properties = {entry.get("name"): entry.get("value") for entry in root[0].iter("property")}
    assert properties["cluster"] == "prod"
    assert properties["nodes"] == "gpu[001-008]"
    assert properties["owners"] == "hyperpod-node-debugger"


def test_the_owners_of_a_suite_are_those_that_its_findings_name() -> None:
    results = [result("gpu.ecc", "n1", Verdict.FAIL, team="hardware"), result("gpu.x", "n1", team="our GPU team")]
    root = ET.fromstring(suites(run_of(results)))
    assert {entry.get("name"): entry.get("value") for entry in root[0].iter("property")}[
        "owners"
    ] == "hardware, our GPU team"


def test_what_was_seen_stands_before_what_the_check_says_of_itself() -> None:
    failure = next(ET.fromstring(suites(run_of(of_each_verdict()))).iter("failure"))
    lines = (failure.text or "").splitlines()
    assert lines[3] == "gpu[002-003]: GPU 1: 14 errors; expected 0"
    assert lines[4].startswith("looks at: ")


@NODES
def test_no_node_breaks_the_suites(name: str) -> None:
    document = suites(
        run_of([result("gpu.ecc", name, Verdict.FAIL, name), result("gpu.x", name, Verdict.INCOMPLETE, name)])
    )
    root = ET.fromstring(document.encode("utf-8", "backslashreplace"))
    assert breaches(root) == []
    assert [case.tag for case in root.iter("testcase")] == ["testcase"] * 2
