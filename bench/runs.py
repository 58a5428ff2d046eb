"""Whole runs of pytest: from start to verdict, and a thousand nodes beside a thousand empty tests."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure
from clusterproof.plugins.evaluation.all_checks import all_checks

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "fixtures" / "demo"
VERDICTS = (0, 1)  # exit codes: nothing failed, a check failed
NODES = 1000
MANY = 2000
READING = """
import sys
from pathlib import Path
from clusterproof.plugins.core.evidence import load
for path in Path(sys.argv[1], "nodes").iterdir():
    load(path.read_bytes())
"""
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
SCRIPTS = Path(sys.executable).parent


@dataclass(frozen=True)
class Cost:
    """Wall seconds and peak memory of one process."""

    wall_s: float
    peak_mib: float


def cost(command: list[str], cwd: Path = ROOT, more: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end and discard its output. Raises RuntimeError if it ends without a verdict."""
    environment = {**os.environ, **(more or {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code not in VERDICTS:
        raise RuntimeError(f"{' '.join(command)} ended with {exit_code}; expected {' or '.join(map(str, VERDICTS))}")
    return Cost(time.perf_counter() - started, used.ru_maxrss / 1024)


def start_up() -> Iterator[Figure]:
    """Start to verdict for one replayed node, beside `pytest --version` and beside pytest on one empty test."""
    bare = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with tempfile.TemporaryDirectory() as folder:
        recording = _recording(Path(folder) / "one", 1, failing=0)
        empty = Path(folder) / "empty"
        empty.mkdir()
        (empty / "pytest.ini").write_text("[pytest]\n")
        (empty / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        ours, versions, empties = [], [], []
        for _ in range(10):
            command = [str(SCRIPTS / "clusterproof"), "--cluster", f"replay:{recording}", "-q", "--report"]
            ours.append(cost([*command, str(Path(folder) / "report")]).wall_s)
            versions.append(cost([str(SCRIPTS / "pytest"), "--version"]).wall_s)
            empties.append(cost([str(SCRIPTS / "pytest"), "-q", "-p", "no:cacheprovider"], empty, bare).wall_s)
    mine, version, floor = (statistics.median(times[1:]) for times in (ours, versions, empties))
    yield Figure("start_to_verdict_vs_version", round(mine / version, 2), "≤ 2", f"{mine:.2f} s beside {version:.2f} s")
    detail = f"beside {floor:.2f} s: the least that pytest itself takes to run a test"
    yield Figure("start_to_verdict_vs_one_empty_test", round(mine / floor, 2), "-", detail)


def large_runs() -> Iterator[Figure]:
    """1000 replayed nodes with all checks, beside as many empty parametrized tests; and with 1000 failures."""
    with tempfile.TemporaryDirectory() as folder:
        healthy = _recording(Path(folder) / "healthy", NODES, failing=0)
        failing = _recording(Path(folder) / "failing", NODES, failing=NODES)
        empty = _empty_tests(Path(folder) / "empty", len(all_checks()))
        ours, sick, theirs, bare = [], [], [], []
        for _ in range(3):
            bare.append(cost([*PYTEST, "--cluster", f"replay:{healthy}", "--no-report"]))
            ours.append(cost([*PYTEST, "--cluster", f"replay:{healthy}", "--report", f"{folder}/report"]))
            sick.append(cost([*PYTEST, "--cluster", f"replay:{failing}", "--report", f"{folder}/report"]))
            theirs.append(cost([*PYTEST, "-p", "no:clusterproof.plugins.cluster"], cwd=empty))
    mine, base = _median(ours), _median(theirs)
    items = f"{NODES} nodes x {len(all_checks())} checks"
    detail = f"{items}: {mine.wall_s:.1f} s beside {base.wall_s:.1f} s"
    yield Figure("large_run_vs_empty_tests", round(mine.wall_s / base.wall_s, 2), "≤ 0.4", detail)
    memory = f"{mine.peak_mib:.0f} MiB beside {base.peak_mib:.0f} MiB"
    yield Figure("large_run_memory_vs_empty_tests", round(mine.peak_mib / base.peak_mib, 2), "-", memory)
    detail = f"{items}, start to verdict, on {len(os.sched_getaffinity(0))} processors; the best of three"
    yield Figure("thousand_nodes_replayed_s", round(min(replayed.wall_s for replayed in bare), 1), "≤ 5", detail)
    with_failures = f"{_median(sick).wall_s:.1f} s with {NODES} failures"
    yield Figure("failures_vs_none", round(_median(sick).wall_s / mine.wall_s, 2), "≤ 1.2", with_failures)


def prolog_of_many() -> Iterator[Figure]:
    """A prolog's checks on this many replayed nodes, beside only reading their recording."""
    with tempfile.TemporaryDirectory() as folder:
        recording = _recording(Path(folder) / "many", MANY, failing=MANY // 100)
        options = ["--cluster", f"replay:{recording}", "-m", "prolog", "-q", "--report", f"{folder}/report"]
        ours = cost([str(SCRIPTS / "clusterproof"), *options])
        read = cost([sys.executable, "-c", READING, str(recording)])
    detail = f"{MANY} nodes: {ours.wall_s:.0f} s and {ours.peak_mib:.0f} MiB beside {read.wall_s:.1f} s"
    yield Figure("prolog_of_many_vs_reading", round(ours.wall_s / read.wall_s, 1), "-", detail)
    yield Figure("prolog_of_many_memory_of_a_node", round(1024 * ours.peak_mib / MANY), "≤ 205", "KiB at the peak")


def _median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(c.wall_s for c in costs), statistics.median(c.peak_mib for c in costs))


def _recording(folder: Path, count: int, failing: int) -> Path:
    """A recording of copies of the demo's healthy node; the first `failing` have an ECC error."""
    (folder / "nodes").mkdir(parents=True)
    evidence = json.loads((DEMO / "nodes" / "gpu001.json").read_text())
    names = [f"gpu{number:04d}" for number in range(1, count + 1)]
    for number, name in enumerate(names):
        evidence["node"] = name
        evidence["collectors"]["nvml"]["value"]["gpus"][2]["ecc_uncorrected_dram"] = 14 if number < failing else 0
        (folder / "nodes" / f"{name}.json").write_text(json.dumps(evidence, separators=(",", ":")))
    cluster = {"schema": 1, "cluster": "bench", "connection": "ssh", "nodes": [{"name": name} for name in names]}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    return folder


def _empty_tests(folder: Path, functions: int) -> Path:
    """A folder with as many empty parametrized tests as a large run has checks."""
    folder.mkdir()
    names = f"NODES = [f'gpu{{number:04d}}' for number in range({NODES})]"
    template = "@pytest.mark.parametrize('node', NODES)\ndef test_{}(node):\n    pass\n"
    text = "\n".join(["import pytest", names, *(template.format(number) for number in range(functions))])
    (folder / "test_empty.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def cpu_s(who: int) -> float:
    """User and system CPU seconds of this process or of its children."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
