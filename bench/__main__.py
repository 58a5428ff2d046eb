"""Measures what a run costs: prints each figure beside its goal, then one line of JSON.

Arguments select the parts whose names contain them, such as `slurm.prolog`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence

from bench import (
    chaos,
    gate,
    gate_cost,
    kubernetes,
    latency,
    nodes,
    pods,
    replaced,
    reports,
    runs,
    slurm,
    thousand,
    traces,
    watching,
)
from bench.figure import Figure
from scripts.arguments import Arguments


def parts() -> dict[str, Callable[[], Iterator[Figure]]]:
    """All parts by name, ordered so that each leaves the machine quiet for the next."""
    measures: list[Callable[[], Iterator[Figure]]] = [
        runs.start_up,
        slurm.prolog,
        slurm.at_once,
        runs.large_runs,
        runs.prolog_of_many,
        reports.large_reports,
        traces.reading,
        nodes.probe,
        nodes.connections,
        kubernetes.pods,
        gate.in_rest,
        gate.listing,
        gate_cost.of_large_cluster,
        watching.on_the_node,
        watching.who_watches,
        latency.alerts,
        thousand.of_nodes,
        chaos.an_hour,
        replaced.beside_the_script,
        pods.slow_node,
    ]
    return {f"{part.__module__.removeprefix('bench.')}.{part.__name__}": part for part in measures}


def main(arguments: Sequence[str]) -> int:
    """Return 0 if every requested part could be measured."""
    parser = Arguments("scripts/bench", __doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="all parts by default")
    measures = parts()
    option = parser.parse_args(arguments).words or [""]
    names = {name for word in option for name in parser.chosen(word, measures, f"one of {', '.join(measures)}")}
    figures = []
    for name in (name for name in measures if name in names):
        for figure in measures[name]():
            print(figure.words(), flush=True)
            figures.append(figure)
    measured = sum(figure.value is not None for figure in figures)
    print(f"{measured} of {len(figures)} figures of {len(names)} of {len(measures)} parts could be measured")
    print(json.dumps({figure.name: figure.value for figure in figures}))
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
