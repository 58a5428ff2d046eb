"""Parses Slurm's data on nodes: `scontrol show node`, with and without -o, and tables of `sinfo`.

A record begins with NodeName= and has a key that slurm.conf does not have. A row stands below sinfo's titles. If one
file has several outputs, the last one gives a node's state; an output with less detail counts only if its state is
worse. Of several files the worst state counts. A single record is taken as the capture's own node, unless it names
another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence.parsing import Form, objects
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON, OUT_OF_USE, POWERED_DOWN, STATES, SlurmNode
from clusterproof.plugins.evidence.slurm.parse_scontrol import (
    is_scontrol,
    node_of,
    read_scontrol,
    records_in,
    without_state,
)
from clusterproof.plugins.evidence.slurm.parse_sinfo import (
    MAX_NAMED,
    begins_sinfo,
    is_sinfo,
    nodes_named,
    read_sinfo,
    record_of,
    table_in,
    unclear_rows,
    without_titles,
)

FORMS = (
    Form("scontrol show node", is_scontrol, read_scontrol, unclear=without_state),
    Form("sinfo", is_sinfo, read_sinfo, 30, begins_sinfo, unclear_rows, nodes_named, MAX_NAMED),
)


@dataclass(frozen=True, slots=True)
class Listed:
    """The nodes in one output of Slurm, a line for each problem, and all other lines."""

    by_node: Mapping[str, list[str]]
    unclear: list[str] = field(default_factory=list)
    rest: str = ""


def listed_in(text: str) -> Listed:
    """The nodes that an output describes; if a node has several records, the last one."""
    records, rest = records_in(text)
    by_node = {str(node_of(record).get("name", "")): [record] for record in records}
    by_node.pop("", None)
    table = table_in(rest)
    for name, row in table.by_node.items():
        by_node.setdefault(name, []).append(record_of(row, name))
    unclear = [f"sinfo: {table.refused}"] if table.refused else table.unclear
    return Listed(by_node, unclear, "\n".join(table.rest))


def unlisted_in(text: str) -> str:
    """An output without the lines that make it Slurm's: records of nodes, and titles of tables."""
    return without_titles(records_in(text)[1])


def latest(ranked: Iterable[tuple[int, object]]) -> Mapping[str, object]:
    """The nodes in the outputs of one file, in their order, each once.

    The last output gives the state, and what it says besides is added. One with less detail than an earlier one (sinfo
    after scontrol; a reason alone after either) counts if its state is worse.
    """
    nodes: dict[object, dict[str, Any]] = {}
    ranks: dict[object, tuple[int, bool]] = {}
    for rank_of_output, value in ranked:
        for entry in objects(value["nodes"] if isinstance(value, dict) else None):
            name, state = entry.get("name"), entry.get("state")
            known = nodes.setdefault(name, {})
            rank = (rank_of_output, state != LISTED_WITH_REASON)
            says_it = rank >= ranks.get(name, rank) or _badness(entry) > _badness(known)
            if state and says_it:
                ranks[name] = rank
            nodes[name] = known | entry if says_it else entry | known
    return {"nodes": list(nodes.values())}


def worst(files: Iterable[object]) -> Mapping[str, object]:
    """The nodes in several files, each once, with the worst state, as it is unknown which file is the latest."""
    return latest((-index, value) for index, value in enumerate(files))


def _badness(node: Mapping[str, Any]) -> tuple[bool, ...]:
    """A sort key: out of use, state unknown, does not answer; among such states the one with a name comes first."""
    listed = SlurmNode({"state": node.get("state", "")})
    is_out = bool(listed.states & OUT_OF_USE - POWERED_DOWN)
    return is_out, bool(listed.states - STATES), not listed.answers, listed.state != LISTED_WITH_REASON
