"""`make bench`: measures, prints each figure beside its goal, and ends with one line of JSON.

`scripts/bench WORD…` measures only the parts whose name has one of the words: `slurm.prolog`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence

from bench import chaos, kubernetes, latency, nodes, pods, replaced, reports, runs, slurm, thousand, traces, watching
from bench.figure import Figure


def measure(words: Sequence[str]) -> Iterator[Figure]:
    """Every figure of the parts that are asked for, in an order that leaves the machine quiet for the next."""
    measures: list[Callable[[], Iterator[Figure]]] = [
        runs.start_up,
        slurm.prolog,
        runs.large_runs,
        runs.prolog_of_many,
        reports.large_reports,
        traces.reading,
        nodes.probe,
        nodes.connections,
        kubernetes.pods,
        watching.on_the_node,
        watching.who_watches,
        latency.alerts,
        thousand.of_nodes,
        chaos.an_hour,
        replaced.beside_the_script,
        pods.slow_node,
    ]
    for part in measures:
        name = f"{part.__module__.removeprefix('bench.')}.{part.__name__}"
        if words and not any(word in name for word in words):
            continue
        for figure in part():
            print(figure.words(), flush=True)
            yield figure


if __name__ == "__main__":
    figures = list(measure(sys.argv[1:]))
    print(json.dumps({figure.name: figure.value for figure in figures}))
    sys.exit(0 if figures else 1)
