"""`make bench`: measures, prints each figure beside its goal, and ends with one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

from bench import nodes, replaced, reports, runs, slurm
from bench.figure import Figure


def measure() -> Iterator[Figure]:
    """Every figure, in an order that leaves the machine quiet for the next."""
    measures: list[Callable[[], Iterator[Figure]]] = [
        runs.start_up,
        slurm.prolog,
        runs.large_runs,
        reports.large_reports,
        nodes.probe,
        nodes.connections,
        replaced.beside_the_script,
    ]
    for part in measures:
        for figure in part():
            print(figure.words(), flush=True)
            yield figure


figures = list(measure())
print(json.dumps({figure.name: figure.value for figure in figures}))
sys.exit(0 if figures else 1)
