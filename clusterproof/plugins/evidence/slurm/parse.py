"""What Slurm says of its nodes: `scontrol show node`, with and without -o, and the tables of `sinfo`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence.parsing import Form, objects
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON, OUT_OF_USE, states_of
from clusterproof.plugins.evidence.slurm.parse_scontrol import is_scontrol, node_of, read_scontrol, records_in
from clusterproof.plugins.evidence.slurm.parse_sinfo import (
    begins_sinfo,
    is_sinfo,
    of_node,
    read_sinfo,
    table_in,
    unclear_rows,
    without_titles,
)

MAX_TABLES = 64  # of sinfo in one text: in a loop of it each has all nodes

FORMS = (
    Form("scontrol show node", is_scontrol, read_scontrol),
    Form("sinfo", is_sinfo, read_sinfo, 30, begins_sinfo, unclear_rows, MAX_TABLES),
)


@dataclass(frozen=True, slots=True)
class Listed:
    """What one output of Slurm's says of each node, lines on what in it is not understood, and all other lines."""

    by_node: Mapping[str, list[str]]
    unclear: list[str] = field(default_factory=list)
    rest: str = ""


def listed_in(text: str) -> Listed:
    """What of an output is of which node; of its records the last."""
    records, rest = records_in(text)
    by_node = {str(node_of(record).get("name", "")): [record] for record in records}
    by_node.pop("", None)
    table = table_in(rest)
    for name, row in table.by_node.items():
        by_node.setdefault(name, []).append(of_node(row, name))
    unclear = [f"sinfo: {table.refused}"] if table.refused else table.unclear
    return Listed(by_node, unclear, "\n".join(table.rest))


def unlisted_in(text: str) -> str:
    """An output without what makes it one of Slurm's: records of nodes, and titles of tables."""
    return without_titles(records_in(text)[1])


def latest(ranked: Iterable[tuple[int, object]]) -> object:
    """The nodes of all outputs, each once: what a later one of the same rank says of it, or one of a higher rank."""
    nodes: dict[object, dict[str, Any]] = {}
    for _, value in sorted(ranked, key=lambda entry: entry[0]):
        for entry in objects(value["nodes"] if isinstance(value, dict) else None):
            known = nodes.get(entry.get("name"), {})
            is_out = entry.get("state") == LISTED_WITH_REASON and states_of(known.get("state", "")) & OUT_OF_USE
            nodes[entry.get("name")] = known | entry | ({"state": known["state"]} if is_out else {})
    return {"nodes": list(nodes.values())}
