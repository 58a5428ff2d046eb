"""The data for the page's script: one block of JSON, without duplicates."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import extra_skill, owner_of
from clusterproof.reports.document.hardware import measured
from clusterproof.reports.document.node import hardware, marks, tables, xids
from clusterproof.reports.document.node_map import places
from clusterproof.reports.findings import shortened
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import to_do

MAX_WORDS = 600  # characters of a check's message on a node
MAX_OF_ALL = 700_000  # characters of all messages, failures first; then of remedies and commands specific to nodes
MAX_OF_EVIDENCE = 1_300_000  # characters of JSON
MAX_OF_COLLECTOR = 40_000
MAX_DETAIL = 300
MAX_NAME = 260  # characters of a node's name
NOT_RUN = " "
NODE_PLACEHOLDER = "\0"  # placeholder in a text for the name of its node
_WORST_FIRST = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN, Verdict.NOT_APPLICABLE)


class ValuePool:
    """JSON texts without duplicates, referenced by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, value: object) -> int:
        """The number of a value."""
        return self.numbers.setdefault(as_json(value), len(self.numbers))

    @property
    def json(self) -> str:
        """All values, as a list."""
        return f"[{','.join(self.numbers)}]"


def as_json(value: object) -> str:
    """Compact JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"))


def data(run: Run) -> str:
    """The block; nothing in it can end its HTML element."""
    names = [*run.nodes]
    nodes = {name: number for number, name in enumerate(names)}
    checks: dict[str, Result] = {}
    for result in run.results:  # whose finding it is, only a finding says
        if result.verdict.is_finding > checks.setdefault(result.check, result).verdict.is_finding:
            checks[result.check] = result
    pool = ValuePool()
    known = [[pool.number(table) for table in tables(node)] for node in run.nodes.values()]
    letters = _letters(run.results, checks, nodes)
    values = ValuePool()
    gpus = measured(run, values.number)
    parts = {
        "cluster": as_json(printable(run.cluster.name, MAX_NAME)),
        "whole": as_json(_whole(run.results)),
        "site": as_json(run.site),
        "nodes": as_json([printable(name, MAX_NAME) for name in names]),
        "checks": as_json([_about(result, nodes) for result in checks.values()]),
        "letters": as_json(letters),
        "further": as_json(_further(run.results, dict(zip(checks, letters, strict=True)), nodes)),
        "words": as_json(_messages(run.results, checks, nodes)),
        "tables": pool.json,
        "known": as_json(known),
        "hardware": as_json([values.number(hardware(node)) for node in run.nodes.values()]),
        "marks": as_json(marks(run, {check: number for number, check in enumerate(checks)}, nodes)),
        "xids": as_json({nodes[name]: codes for name, node in run.nodes.items() if (codes := xids(node))}),
        "actions": as_json(_actions(run, checks, nodes)),
        "places": as_json(places(run)),
        "gpus": as_json(gpus),
        "pool": values.json,
        "evidence": _evidence(run),
    }
    block = f"{{{','.join(f'{as_json(key)}:{value}' for key, value in parts.items())}}}"
    return block.replace("<", "\\u003c")


def _whole(results: Iterable[Result]) -> str:
    """The subject of the row after those of the nodes."""
    kinds = {"run" if result.is_of_run else "cluster" for result in results if result.is_of_run or result.is_of_cluster}
    return "run" if kinds == {"run"} else "cluster"


def _about(result: Result, nodes: Collection[str]) -> list[Any]:
    """What is equal on all nodes, except for their names."""
    evidence, remedy = _by_hand(result, nodes)
    return [
        result.check,
        result.title,
        result.subsystem or "other",
        owner_of(result),
        extra_skill(result),
        evidence,
        result.meaning,
        remedy,
    ]


def _for_any_node(text: str, result: Result, nodes: Collection[str]) -> str:
    """A result's text with OF_NODE in place of its node's name."""
    text = text.replace(NODE_PLACEHOLDER, "\\u0000")
    name = printable(result.node, MAX_NAME)
    return text.replace(name, NODE_PLACEHOLDER) if name and result.node in nodes else text


def _actions(run: Run, checks: dict[str, Result], nodes: dict[str, int]) -> list[list[Any]]:
    """`[action, checks that ask for it, nodes]` in the order of the tiles; a pair counts as its two nodes."""
    numbers = {check: number for number, check in enumerate(checks)}
    by_action: dict[str, tuple[dict[int, None], set[int]]] = {}
    for task in to_do(run.results, run.facts.catalog):
        of_task, node_numbers = by_action.setdefault(task.action, ({}, set()))
        of_task.update((numbers[check], None) for check in task.checks)
        is_of_whole = task.of_what in ("cluster", "run")
        names = [name for node in task.nodes for name in (_of_pair(node) if task.of_what == "pair" else [node])]
        node_numbers.update([len(nodes)] if is_of_whole else (nodes[name] for name in names if name in nodes))
    return [[action, [*of_task], _ranges(places)] for action, (of_task, places) in by_action.items()]


def _letters(results: Iterable[Result], checks: dict[str, Result], nodes: dict[str, int]) -> list[str]:
    """For each check a letter per node, and a last one for cluster or training run; none for checks of pairs."""
    rows = {check: [NOT_RUN] * (len(nodes) + 1) for check in checks}
    ranks = {verdict.letter: verdict.rank for verdict in Verdict} | {NOT_RUN: len(Verdict)}
    for result in results:
        number = _number(result, nodes)
        if number is not None:
            row, letter = rows[result.check], result.verdict.letter
            if ranks[letter] < ranks[row[number]]:
                row[number] = letter
    return ["".join(row) for row in rows.values()]


def _further(results: Iterable[Result], letters: dict[str, str], nodes: dict[str, int]) -> list[tuple[int, str, str]]:
    """`[check, letter, nodes]` of what the letters do not show: findings beside a worse one, and those on pairs."""
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    for result in results:
        for part in result.by_verdict if result.verdict.is_finding else ():
            names = _of_pair(result.node) if result.is_of_pair else []
            number = _number(result, nodes)
            numbers = [nodes[name] for name in names if name in nodes] if number is None else [number]
            shown = letters[result.check]
            places[result.check, part.verdict.letter].update(at for at in numbers if shown[at] != part.verdict.letter)
    numbered = {check: number for number, check in enumerate(letters)}
    return [(numbered[check], letter, _ranges(where)) for (check, letter), where in places.items() if where]


def _of_pair(pair: str) -> list[str]:
    """The names of a pair's nodes."""
    return pair.split("~")


def _messages(results: Sequence[Result], checks: dict[str, Result], nodes: dict[str, int]) -> list[list[Any]]:
    """`[check, letter, message, nodes]` for each message; nodes are ranges of their numbers.

    If they differ from the check's, the command to reproduce it and the remedy follow: an empty text means the check's
    own, None that there was no room.
    """
    numbers = {check: number for number, check in enumerate(checks)}
    by_hand = {check: _by_hand(result, nodes) for check, result in checks.items()}
    nodes_by_message: dict[tuple[Verdict, str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    for result in results:
        number = _number(result, nodes)
        if result.message and result.verdict is not Verdict.PASS and number is not None:
            both = zip(_by_hand(result, nodes), by_hand[result.check], strict=True)
            own = tuple("" if text == of_check else text for text, of_check in both)
            message = _for_any_node(result.message, result, nodes)
            nodes_by_message[result.verdict, result.check, message, own if any(own) else ()].append(number)
    worst_first = sorted(nodes_by_message.items(), key=lambda entry: _WORST_FIRST.index(entry[0][0]))
    left_chars = MAX_OF_ALL
    raw: list[list[Any]] = []
    for (verdict, check, message, _), where in worst_first:
        text = shortened(message, MAX_WORDS)
        left_chars -= len(text)
        raw.append([numbers[check], verdict.letter, text if left_chars > 0 else "", _ranges(where)])
    for row, ((*_, own), _) in zip(raw, worst_first, strict=True):
        left_chars -= sum(map(len, own))
        row += own if left_chars > 0 else [text and None for text in own]
    return raw


def _by_hand(result: Result, nodes: Collection[str]) -> tuple[str, str]:
    return _for_any_node(result.evidence, result, nodes), _for_any_node(result.remedy, result, nodes)


def _number(result: Result, nodes: dict[str, int]) -> int | None:
    """The number of the result's node, or the one after; None for a pair, which has no row in the grid."""
    if result.is_of_pair:
        return None
    return len(nodes) if result.is_of_cluster or result.is_of_run else nodes.get(result.node)


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3,7`."""
    runs = groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in run] for _, run in runs]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges)


def _evidence(run: Run) -> str:
    """JSON: the values, and for each node how its collectors ended and the number of the value of each.

    A value without room is -1; a collector that is too large has a text saying so.
    """
    values: dict[str, int] = {}
    endings: dict[str, int] = {}
    nodes: dict[str, tuple[int, list[int]]] = {}
    known: dict[int, int] = {}  # by identity: for large clusters, equal values are the same object
    left_chars = MAX_OF_EVIDENCE
    for name in _worst_first(run):
        answer = run.nodes[name].evidence
        ending = endings.setdefault(_endings(answer), len(endings))
        numbers: list[int] = []
        for collector in answer.collectors.values() if left_chars > 0 else ():
            if collector.value is None:
                numbers.append(-1)
                continue
            number = known.get(id(collector.value))
            if number is None:
                text = _as_shown(collector)
                if text not in values:
                    left_chars -= len(text)
                    values[text] = len(values)
                number = known[id(collector.value)] = values[text]
            numbers.append(number)
        nodes[name] = ending, numbers
    order = json.dumps([nodes[name] for name in run.nodes], separators=(",", ":"))
    return f'{{"values":[{",".join(values)}],"endings":[{",".join(endings)}],"nodes":{order}}}'


def _worst_first(run: Run) -> Sequence[str]:
    """The nodes with findings first; otherwise in inventory order."""
    ranks = dict.fromkeys(run.nodes, len(Verdict))
    for result in run.results:
        if result.node in ranks and result.is_of_node:
            ranks[result.node] = min(ranks[result.node], result.verdict.rank)
    return sorted(ranks, key=lambda name: ranks[name])


def _endings(answer: NodeEvidence) -> str:
    """`[[collector, how it ended, detail], …]`."""
    rows = [
        [name, collector.status.value, printable(collector.detail, MAX_DETAIL)]
        for name, collector in answer.collectors.items()
    ]
    return json.dumps(rows, separators=(",", ":"))


def _as_shown(collector: Collected) -> str:
    """A collector's value as JSON that a browser can parse, whatever the node sent."""
    try:
        text = json.dumps(collector.value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity are no JSON: as text
        text = json.dumps(json.dumps(collector.value)[:MAX_OF_COLLECTOR])
    except RecursionError:
        text = '"nested too deeply to be shown; --record keeps it"'
    if len(text) <= MAX_OF_COLLECTOR:
        return text
    return json.dumps(f"{text[:MAX_OF_COLLECTOR]} … ({len(text)} characters; --record keeps all)")
