"""The reports of a large run: their cost beside the same results as JSON, their size, and how fast they open."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from bench.figure import Figure
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, load
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports.formats import all_formats
from clusterproof.reports.formats.html import document
from clusterproof.reports.run import Run
from clusterproof.reports.run_folder import PAGE
from tests.testbed.needs import needs_chromium

NODES, CHECKS = 1000, 150
SICK_EVERY = 20  # nodes
ROUNDS = 3
MB = 1_000_000


def large_reports() -> Iterator[Figure]:
    """1000 nodes with a real node's evidence, 150 checks each, one node in twenty with its own failure."""
    run = _run()
    formats = all_formats()
    as_json = _seconds(lambda: "\n".join(json.dumps(result.to_json()) for result in run.results))
    page, all_s = document(run), _seconds(lambda: [each.text(run) for each in formats])
    page_s = _seconds(lambda: document(run))
    items = f"{NODES} nodes x {CHECKS} checks"
    detail = f"{items}: {page_s:.2f} s beside {as_json:.2f} s"
    yield Figure("report_page_vs_results_as_json", round(page_s / as_json, 2), "≤ 3", detail)
    yield Figure(
        "report_forms_vs_results_as_json", round(all_s / as_json, 2), "-", f"all {len(formats)}: {all_s:.2f} s"
    )
    yield Figure("report_page_mb", round(len(page.encode()) / MB, 2), "≤ 3", items)
    yield from _opening(page)


def _run() -> Run:
    healthy = load((DEMO / "nodes" / "gpu001.json").read_bytes())
    names = [f"gpu{number:04d}" for number in range(1, NODES + 1)]
    evidence_by_node = {name: _of_its_own(healthy, name) for name in names}
    cluster = Cluster("bench", "ssh", tuple(Target(name) for name in names))
    nodes_by_name = nodes(cluster, evidence_by_node)
    checks = list(node_checks().values())[:CHECKS]
    results_of_node = [evaluate(check, nodes_by_name[names[0]]) for check in checks]
    results = [
        _failing(result, name) if at % SICK_EVERY == 0 and number == at % CHECKS else replace(result, node=name)
        for at, name in enumerate(names)
        for number, result in enumerate(results_of_node)
    ]
    facts = ClusterFacts(cluster, NodeEvidence(cluster.name), nodes_by_name)
    return Run(facts, results, datetime.now(timezone.utc), 9.0, 1, ("pytest", "--cluster", "bench"), {})


def _of_its_own(healthy: NodeEvidence, name: str) -> NodeEvidence:
    """The evidence under another name and with its own GPUs."""
    driver = healthy.collectors["nvml"]
    gpus = [{**gpu, "uuid": f"{gpu['uuid'][:-7]}{name}"} for gpu in driver.value["gpus"]]
    collectors = {**healthy.collectors, "nvml": replace(driver, value={**driver.value, "gpus": gpus})}
    return replace(healthy, node=name, collectors=collectors)


def _failing(result: Result, name: str) -> Result:
    return replace(result, node=name, verdict=Verdict.FAIL, message=f"GPU 3 of {name} is ill; expected health")


_FILTER = """
const field = document.getElementById("search");
return ["gpu07", "", "memory", "", "gpu0020", "", "gpu07", ""].map((words) => {
  field.value = words;
  const began = performance.now();
  field.dispatchEvent(new Event("input"));
  document.body.offsetHeight;
  return performance.now() - began;
}).slice(2);
"""


def _opening(page: str) -> Iterator[Figure]:
    """How long Chromium takes from the first byte to a drawn page, beside an empty page."""
    if needs_chromium.args[0]:
        for name, bound in (("report_opens_s", "≤ 0.5"), ("report_filters_s", "≤ 0.1")):
            yield Figure(name, None, bound, str(needs_chromium.kwargs["reason"]))
        return
    from tests.testbed.browser import browser

    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        path = Path(folder) / PAGE
        path.write_text(page, encoding="utf-8")
        chromium.run("return 1")  # Chromium's own start does not count
        taken = []
        for _ in range(ROUNDS):
            chromium.open(path)
            taken.append(chromium.run("return performance.getEntriesByType('navigation')[0].duration") / 1000)
        filtered = statistics.median(chromium.run(_FILTER)) / 1000
    yield Figure("report_opens_s", round(statistics.median(taken), 2), "≤ 0.5", "to its load event, grid drawn")
    yield Figure(
        "report_filters_s", round(filtered, 3), "≤ 0.1", "a word typed or taken away, until the page is laid out"
    )


def _seconds(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
