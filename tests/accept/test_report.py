"""The report: each node and line of it, the page without a script, and the same without names."""

from __future__ import annotations

import json

import pytest

from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.redacted import redacted
from clusterproof.plugins.accept.report import Report, report, text
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.simulated import STAGES, Nodes, acceptance, cluster_of

BOUGHT = f'{STAGES}[bought]\nnodes = 9\ntype = "p5.48xlarge"\n'


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of eight nodes, one of which is slow, one wrongly configured, one not proven, and one with a hostile serial."""
    nodes = Nodes(
        speed=lambda node, _run: 0.9 if node == "n3" else 1.0,
        verdicts={("inventory", "n5"): Verdict.FAIL, ("exact", "n6"): Verdict.INCOMPLETE},
        serials={"n3": "<script>x</script>"},
    )
    made = acceptance(tmp_path_factory.mktemp("accepted"), nodes, BOUGHT)
    made.go_on((), lambda _words: None)
    return report(made.state, made.ended, made.named, "")


def test_what_was_bought_stands_beside_what_is_there(data: Report) -> None:
    lines = {one["what"]: (one["bought"], one["there"], one["is_met"], one["not_on"]) for one in data["bought"]}
    assert lines["nodes"] == ("9", "8 answered", False, "")
    assert lines["nodes that are fit"] == ("9", "5 accepted", False, "n[3,5-6]")
    assert lines["type"] == ("p5.48xlarge", "8 × p5.48xlarge", True, "")


def test_a_screen_says_who_is_not_accepted_and_why(data: Report) -> None:
    said = text(data)
    assert said.splitlines()[0] == "ssh:n[1-8]: 5 accepted, 1 rejected, 1 to be fixed, 1 open"
    assert "rejected    n3 (<script>x</script>): gpu.gpu_gemm: GPU compute speed" in said
    assert "to be fixed n5 (S-n5): host.memlock: something; expected nothing (runs/0001-inventory)" in said
    assert "open        n6 (S-n6): gpu.gpu_exact: incomplete: something; expected nothing" in said


def test_every_run_has_its_command_and_the_digest_of_its_evidence(data: Report) -> None:
    assert all(
        len(one["evidence"]) == 64 and one["command"][:3] == ["clusterproof", "check", "ssh:n[1-8]"]
        for one in data["runs"]
    )
    assert [one["runs"] for one in data["stages"]][:2] == [1, 3]


def test_what_is_not_proven_is_said(data: Report) -> None:
    assert "Pairs of nodes: the plan leaves it out" in data["not_covered"]
    assert "file system: measured on no node" in data["not_covered"]
    assert any("HPL" in line for line in data["not_covered"])


def test_the_page_has_no_script_and_no_address(data: Report) -> None:
    said = page(data)
    assert "<script" not in said
    assert "http" not in said.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "&lt;script&gt;x&lt;/script&gt;" in said
    assert "not accepted as a whole" in said
    assert '<svg class="strip"' in said


def test_redacted_nothing_names_a_node_or_a_serial(data: Report) -> None:
    said = json.dumps(redacted(data, cluster_of()))
    assert [word for word in ("S-n", "n[1-8]", '"n3"', "<script>") if word in said] == []
    assert '"node-3"' in said
    assert "Acceptance of X" in page(redacted(data, cluster_of()))
