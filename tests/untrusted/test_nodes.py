"""Whatever one node reports affects only that node's checks: recordings with thousands of changes.

Each run of the tests makes the same changes; `HOSTILE_RUNS=50 HOSTILE_SEED=1000 pytest tests/untrusted/test_nodes.py`
continues after them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import to_json
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.recording import recording_file, write_cluster
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports.results import read_results
from tests.builders.evaluated import probed
from tests.builders.runs import ROOT
from tests.faults.infiniband import infiniband
from tests.reports.read_back import findings_in, of_prometheus, of_pytests_junit, of_the_grid, of_the_suites, truth
from tests.testbed.load import loadable_p5, loadable_trn2
from tests.testbed.needs import needs_nodes
from tests.untrusted.mutations import mutated, written

RUNS = int(os.environ.get("HOSTILE_RUNS", "4"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
HOSTILE, CHANGES = 24, 30  # nodes per run, and changes to each
PEERS = [f"gpu{number:03d}" for number in range(1, 6)]
LISTED = ("fail", "concern", "incomplete")
EVERYTHING = "preflight or prolog or epilog or ami or perf"
WAYS = (
    (),
    ("--redact", "--record", "again", "--bundle", "bundle.tar.zst"),
    ("--since", "24h", "--html", "pytest.html", "--self-contained-html"),
    ("-v", "--history=history.sqlite", "--since-last"),
)


@dataclass(frozen=True)
class Run:
    """Files and output of a run over hostile nodes and their healthy peers."""

    folder: Path
    exit: int
    output: str
    results: list[Result]
    alone: list[Result]  # results of the healthy ones alone


@pytest.fixture(scope="module")
def recordings() -> list[dict[str, Any]]:
    """Healthy and sick nodes of several kinds, as recorded."""
    demo = [json.loads((DEMO / "nodes" / f"{name}.json").read_text()) for name in ("gpu001", "gpu003", "gpu012")]
    if needs_nodes.args[0]:
        return demo
    loaded = [to_json(probed(image(), loads=("gpu_gemm", "gpu_bandwidth"))) for image in (loadable_p5,)]
    return [*demo, *loaded, *(to_json(probed(image())) for image in (infiniband, loadable_trn2))]


EACH = [
    pytest.param(seed, marks=() if "HOSTILE_RUNS" in os.environ else pytest.mark.in_turn(f"of two: {seed % 2}"))
    for seed in range(SEED, SEED + RUNS)
]


@pytest.fixture(scope="module", params=EACH, ids=str)
def run(request: pytest.FixtureRequest, recordings: list[dict[str, Any]], tmp_path_factory: Any) -> Run:
    """A run over healthy nodes alone, and one with hostile nodes among them."""
    folder: Path = tmp_path_factory.mktemp(f"hostile{request.param}")
    chance = random.Random(request.param)
    base = recordings[request.param % len(recordings)]
    texts = {name: json.dumps({**base, "node": name}) for name in PEERS}
    way = WAYS[request.param % len(WAYS)]
    alone = validated(folder / "alone", texts, *way)
    assert alone.returncode in (0, 1, 10), alone.stdout
    for number in range(HOSTILE):
        name = f"gpu{100 + number}"
        texts[name] = written(mutated({**base, "node": name}, chance, CHANGES))
    together = validated(folder / "together", texts, *way)
    return Run(
        folder / "together",
        together.returncode,
        together.stdout,
        read_results(folder / "together" / "results.jsonl"),
        read_results(folder / "alone" / "results.jsonl"),
    )


def validated(folder: Path, nodes: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run everything over nodes that returned these texts."""
    (folder / "recording" / "nodes").mkdir(parents=True)
    write_cluster(folder / "recording", Cluster("hostile", "ssh", tuple(Target(name) for name in nodes)))
    for name, text in nodes.items():
        (folder / "recording" / "nodes" / recording_file(name)).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pytest.toml"), "-q", *options]
    command += ["-p", "no:cacheprovider", str(ROOT / "checks"), "--cluster", "replay:recording", "-m", EVERYTHING]
    command += ["-k", "not pairwise", "--report", ".", "--junitxml", "pytest.xml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, errors="replace")


def of_peers(results: list[Result]) -> dict[tuple[str, int], Verdict]:
    """Each check's verdict on each healthy node: these come first, whatever their names."""
    peers = list(dict.fromkeys(result.node for result in results if result.is_of_node))[: len(PEERS)]
    return {(result.check, peers.index(result.node)): result.verdict for result in results if result.node in peers}


def test_no_node_ends_the_run_of_all(run: Run) -> None:
    assert run.exit in (0, 1, 10), run.output[-3000:]
    assert "INTERNALERROR" not in run.output
    assert "no report" not in run.output
    assert "warning:" not in run.output


def test_every_check_has_its_verdict_on_every_node(run: Run) -> None:
    checks = {result.check for result in run.results if result.is_of_node}
    nodes = {result.node for result in run.results if result.is_of_node}
    assert len([result for result in run.results if result.is_of_node]) == len(checks) * len(nodes)
    assert len(nodes) == len(PEERS) + HOSTILE


def test_no_check_breaks(run: Run) -> None:
    assert [result.message for result in run.results if "the check itself broke" in result.message] == []


def test_the_other_nodes_have_the_verdicts_that_they_have_without_it(run: Run) -> None:
    assert of_peers(run.results) == of_peers(run.alone)


def test_every_report_can_be_read_and_says_the_same(run: Run) -> None:
    verdicts = truth(run.folder)
    assert sorted(row for row in of_the_suites(run.folder) if row[2] in LISTED) == findings_in(run.folder, LISTED)
    assert sorted(of_pytests_junit(run.folder)) == verdicts
    assert sorted(of_the_grid(run.folder)) == verdicts
    assert sorted(of_prometheus(run.folder)) == findings_in(run.folder, ("fail", "concern", "incomplete"))


def test_nothing_that_a_node_says_is_part_of_a_page(run: Run) -> None:
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    summary = markdown.render((run.folder / "summary.md").read_text(encoding="utf-8"))
    for text in (page, summary):
        assert "<script>alert" not in text
