"""`pytest --cluster k8s:bed -m perf …` as typed by a user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.builders.runs import ROOT

LINUX = "k8s:bed/kubernetes.io/os=linux"


@dataclass(frozen=True)
class Typed:
    """A run's output in one line, and its verdicts by node (or pair) and check."""

    words: str
    verdicts: Mapping[str, Mapping[str, Verdict]]


def typed(folder: Path, *options: str) -> Typed:
    """Run it in a folder."""
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    arguments = ["-m", "pytest", f"--rootdir={ROOT}", "-p", "no:cacheprovider", "--results", str(results), "-m", "perf"]
    command = [sys.executable, *arguments, "--no-report", *options, str(ROOT / "checks")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    verdicts: dict[str, dict[str, Verdict]] = {}
    for result in read_results(results) if results.exists() else ():
        verdicts.setdefault(result.node, {})[result.check] = result.verdict
    return Typed(" ".join((done.stdout + done.stderr).split()), verdicts)
