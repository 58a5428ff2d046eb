"""Parses Slurm's data on nodes: `scontrol show node`, with and without -o, and tables of `sinfo`.

A record begins with NodeName= and has a key that slurm.conf does not have. A row stands below titles of sinfo's. Of the
outputs of one file the later says a node's state; one that says less counts where its state is worse. Of several files
the worst state counts. The only record is of the capture that it stands in, unless its name is another node's.
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
    of_node,
    read_sinfo,
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
    """The nodes in one output of Slurm's, a line for each problem, and all other lines."""

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


def latest(ranked: Iterable[tuple[int, object]]) -> Mapping[str, object]:
    """The nodes of the outputs of one file, in their order, each once.

    The later says the state, and adds what it says besides. One that says less than an earlier one, as sinfo does
    beside scontrol, and a reason alone beside both, counts where its state is worse.
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
    """The nodes of several files, each once, with the worst state: nobody knows which file is the later."""
    return latest((-place, value) for place, value in enumerate(files))


def _badness(node: Mapping[str, Any]) -> tuple[bool, ...]:
    """Whether a node is out of use, of an unknown state, and does not answer; of such states the one that names it."""
    listed = SlurmNode({"state": node.get("state", "")})
    is_out = bool(listed.states & OUT_OF_USE - POWERED_DOWN)
    return is_out, bool(listed.states - STATES), not listed.answers, listed.state != LISTED_WITH_REASON
