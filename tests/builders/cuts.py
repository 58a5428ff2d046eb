"""Cuts real runs after a chosen result, and reads how many nodes each of their reports then calls fit.

`cuts(command, ways, folder)` yields one per way, for laws over many runs; `cut_run` makes a single one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import PROVEN
from clusterproof.reports import worst_of
from clusterproof.reports.document.trend import counts
from clusterproof.reports.history.past import clusters, read_past
from clusterproof.reports.results import PART, read_results
from tests.builders import cutting
from tests.builders.wheel import ROOT

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
FULL_DISK, WORKER, MAX_FAIL = "full disk", "worker", "--maxfail"
PYTEST = (sys.executable, "-m", "pytest", "-p", "clusterproof.plugins.cluster", "-p", "no:cacheprovider")
TEXTS = ("report.html", "summary.md", "summary.txt", "junit.xml", "metrics.prom")


@dataclass(frozen=True)
class Cut:
    """How a run is cut, and after which result (for `--maxfail`: which failure)."""

    by: str
    after: int
    is_large: bool = False  # takes the code paths of a run with thousands of results


@dataclass(frozen=True)
class Ran:
    """A run that was cut. `fit`: how many nodes each report calls fit; `proven`: how many are."""

    cut: Cut
    code: int
    output: str
    folder: Path
    ended: tuple[Result, ...]
    proven: int
    fit: Mapping[str, int]
    says_so: Mapping[str, bool]  # whether each report says that the run was cut

    @property
    def called_fit(self) -> int:
        """The most nodes that any report calls fit although their chosen checks did not all end."""
        return max(0, *(fit - self.proven for fit in self.fit.values()))


def cuts(command: Sequence[str], ways: Iterable[Cut], folder: Path, cwd: Path | None = None) -> Iterator[Ran]:
    """Run once to the end and once cut in each of these ways; `command` is what follows `pytest`."""
    whole, _ = _run(command, None, folder / "whole", cwd)
    chosen = read_results(whole / "results.jsonl")
    for number, cut in enumerate(ways):
        yield cut_run(command, cut, chosen, folder / f"cut{number}", cwd)


def cut_run(command: Sequence[str], cut: Cut, chosen: Sequence[Result], folder: Path, cwd: Path | None = None) -> Ran:
    """Run and cut once; `chosen` are the results of the whole run."""
    return _ran(cut, chosen, *_run(command, cut, folder, cwd))


def _run(
    command: Sequence[str], cut: Cut | None, folder: Path, cwd: Path | None
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder.mkdir(parents=True)
    report = folder / "report"
    more = [f"--report={report}", f"--history={folder / 'history.sqlite'}", f"--junitxml={folder / 'pytest.xml'}"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if cut:
        more += ["-p", cutting.__name__]
        more += [f"--maxfail={cut.after}"] if cut.by == MAX_FAIL else ["-n2"] if cut.by == WORKER else []
        variables |= {cutting.BY: cut.by, cutting.AFTER: str(cut.after), cutting.DISK: str(report / "results.jsonl")}
        variables |= {cutting.LARGE: "yes"} if cut.is_large else {}
    ran = subprocess.run([*PYTEST, *command, *more], cwd=cwd, env=variables, capture_output=True, text=True)
    return report, ran


def _ran(cut: Cut, chosen: Sequence[Result], report: Path, ran: subprocess.CompletedProcess[str]) -> Ran:
    output = ran.stdout + ran.stderr
    path = report / "results.jsonl"
    part = path.with_name(f"{path.name}{PART}")
    results = read_results(path) if path.exists() else []
    ended = [result for result in results if result.is_evaluated]
    texts = {name: (report / name).read_text(encoding="utf-8") for name in TEXTS if (report / name).exists()}
    texts |= {"terminal": output}
    pytests = report.parent / "pytest.xml"
    fit = {name: max(map(int, _FIT.findall(text)), default=0) for name, text in texts.items()}
    if "metrics.prom" in texts:
        fit["metrics.prom"] = sum(map(int, _FIT_METRIC.findall(texts["metrics.prom"])))
    fit["results.jsonl"] = _fit(results)
    says_so = {name: _SAYS_SO.search(text) is not None for name, text in texts.items()}
    says_so["results.jsonl"] = len(ended) < len(results) or part.exists()
    says_so["pytest.xml"] = pytests.exists() and "INTERRUPTED" in pytests.read_text(encoding="utf-8")
    history = report.parent / "history.sqlite"
    kept = clusters(history) if history.exists() else []
    if kept:
        past = read_past(history, kept[0], 10)
        fit["history"], says_so["history"] = counts(past)[-1][2], past.runs[-1].unevaluated > 0
    proven = _fit(chosen) if part.exists() else _proven(chosen, ended)
    return Ran(cut, ran.returncode, output, report, tuple(ended), proven, fit, says_so)


def _proven(chosen: Iterable[Result], ended: Sequence[Result]) -> int:
    """How many nodes are fit by every check chosen for them."""
    of_node = Counter(result.node for result in chosen if result.is_of_node)
    done = Counter(result.node for result in ended if result.is_of_node)
    return _fit(result for result in ended if done[result.node] == of_node[result.node])


def _fit(results: Iterable[Result]) -> int:
    return sum(verdict in PROVEN for verdict in worst_of(result for result in results if result.is_of_node).values())


_FIT = re.compile(r"\b(\d+)(?:</strong> <b>| )fit\b")
_FIT_METRIC = re.compile(r'clusterproof_nodes\{[^}]*verdict="(?:pass|concern)"\} (\d+)')
_SAYS_SO = re.compile(r"INTERRUPTED|clusterproof_run_checks_unevaluated\{[^}]*\} [1-9]")
