"""The evidence as nodes reported it, as much as a page can hold: what is alike once, the sick nodes' first."""

from __future__ import annotations

import json
from collections.abc import Sequence

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.run import Run

MAX_OF_ALL = 1_300_000  # characters of JSON
MAX_OF_COLLECTOR = 40_000
MAX_DETAIL = 300


def evidence(run: Run) -> str:
    """JSON: the values that were kept, and for each node how its collectors ended and which value each returned.

    A value of which there was no room is -1; a collector too long is a text that says so.
    """
    values: dict[str, int] = {}
    endings: dict[str, int] = {}
    nodes: dict[str, tuple[int, list[int]]] = {}
    known: dict[int, int] = {}  # by the value's identity: large clusters hold once what nodes reported alike
    room = MAX_OF_ALL
    for name in _worst_first(run):
        data = run.nodes[name].evidence
        ending = endings.setdefault(_endings(data), len(endings))
        numbers: list[int] = []
        for collector in data.collectors.values() if room > 0 else ():
            if collector.value is None:
                numbers.append(-1)
                continue
            number = known.get(id(collector.value))
            if number is None:
                text = _as_json(collector)
                if text not in values:
                    room -= len(text)
                    values[text] = len(values)
                number = known[id(collector.value)] = values[text]
            numbers.append(number)
        nodes[name] = ending, numbers
    order = json.dumps([nodes[name] for name in run.nodes], separators=(",", ":"))
    return f'{{"values":[{",".join(values)}],"endings":[{",".join(endings)}],"nodes":{order}}}'


def _worst_first(run: Run) -> Sequence[str]:
    """The nodes that something is wrong with first; else as the inventory has them."""
    ranks = dict.fromkeys(run.nodes, len(Verdict))
    for result in run.results:
        if result.node in ranks and result.is_of_node:
            ranks[result.node] = min(ranks[result.node], result.verdict.rank)
    return sorted(ranks, key=lambda name: ranks[name])


def _endings(data: NodeEvidence) -> str:
    """`[[collector, how it ended, detail], …]`."""
    rows = [
        [name, collector.status.value, printable(collector.detail, MAX_DETAIL)]
        for name, collector in data.collectors.items()
    ]
    return json.dumps(rows, separators=(",", ":"))


def _as_json(collector: Collected) -> str:
    """A collector's value: JSON that a browser reads, whatever the node made of it."""
    try:
        text = json.dumps(collector.value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity, which are no JSON: as text
        text = json.dumps(json.dumps(collector.value)[:MAX_OF_COLLECTOR])
    except RecursionError:
        text = '"nested too deeply to be shown; --record keeps it"'
    if len(text) <= MAX_OF_COLLECTOR:
        return text
    return json.dumps(f"{text[:MAX_OF_COLLECTOR]} … ({len(text)} characters; --record keeps all)")
