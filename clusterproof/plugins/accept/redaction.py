"""Redacts an acceptance report: nodes, hardware, users and folders. Evidence stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clusterproof.plugins.accept.report import Report
from clusterproof.plugins.accept.verdicts import NOTED
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.nodeset import expand, fold

CLUSTER = "X"
LEFT_OUT = "what it says is left out"
STOPPED = "it did not come to its end"
_REASON = re.compile(r"([a-z0-9_]+\.[a-z0-9_]+): (.*?)( \(runs/[0-9]+-[a-z]+\))?", re.DOTALL)

# The ends of what a node was compared within, in accept's own words: what stands before is the site's, or the node's.
_LEVEL_ENDS = ((", and ", " of what is usual elsewhere,"), (", in ", " runs"))


def redacted(report: Report, cluster: Cluster) -> Report:
    """The same report with placeholders for nodes and serial numbers, and only accept's own arguments in commands."""
    renamed = _Words(report, cluster)
    plan: dict[str, Any] = {**report["plan"], "options": []}
    return {
        **report,
        "cluster": CLUSTER,
        "stopped": STOPPED if report["stopped"] else "",
        "plan": plan,
        "not_covered": [f"{NOTED}{LEFT_OUT}" if row.startswith(NOTED) else row for row in report["not_covered"]],
        "bought": [{**line, "not_on": renamed.nodeset(line["not_on"])} for line in report["bought"]],
        "nodes": [renamed.node(node) for node in report["nodes"]],
        "left": [renamed.node(node) for node in report["left"]],
        "of_others": [renamed.other(result) for result in report["of_others"]],
        "populations": [renamed.population(population) for population in report["populations"]],
        "stages": [{**stage, "taken_out": renamed.nodeset(stage["taken_out"])} for stage in report["stages"]],
        "runs": [renamed.run(run) for run in report["runs"]],
    }


class _Words:
    """The placeholders for the names in one report."""

    def __init__(self, report: Report, cluster: Cluster) -> None:
        self._nodes = {target.name: f"node-{number}" for number, target in enumerate(cluster.targets, 1)}
        self._nodes |= {node["node"]: f"left-{number}" for number, node in enumerate(report["left"], 1)}
        self._nodes |= {node: "another" for run in report["runs"] for node in run["nodes"] if node not in self._nodes}
        self._paths = [word.partition("=")[2] for word in report["plan"]["options"] if "/" in word]
        self._serials: dict[str, str] = {}
        self._own = _own_words()

    def nodeset(self, text: str) -> str:
        """Nodes as a nodeset."""
        return fold([self._nodes.get(node, "node") for node in expand(text)]) if text else ""

    def node(self, node: Report) -> Report:
        """The record of a node, with its hardware."""
        return {
            **node,
            "node": self._nodes[node["node"]],
            **{key: list(map(self._line, node[key])) for key in ("reasons", "concerns") if key in node},
            "hardware": self._hardware(node["hardware"]),
            "replaced": [self._hardware(before) for before in node["replaced"]],
        }

    def other(self, result: Report) -> Report:
        """A result on a pair or the cluster."""
        both = [self._nodes.get(part, "") for part in str(result["of"]).split("~")]
        return {**result, "of": "~".join(both) if all(both) else CLUSTER, "message": LEFT_OUT}

    def population(self, population: Report) -> Report:
        """A population: shares of nodes."""
        shares = {self._nodes[name]: share for name, share in population["shares"].items()}
        levels = [
            {**shift, "levels": [level.partition(" ")[0] for level in shift["levels"]]}
            for shift in population["in_common"]
        ]
        what = self._without_paths(population["what"])
        return {**population, "what": what, "in_common": levels, "shares": shares}

    def run(self, run: Report) -> Report:
        """A run, and the command to repeat it."""
        nodes = [self._nodes[node] for node in run["nodes"]]
        return {**run, "nodes": nodes, "command": _command(run["stage"], nodes)}

    def _hardware(self, hardware: Report) -> Report:
        if not hardware:
            return {}
        gpus = [
            {**gpu, "uuid": self._serial(gpu["uuid"]), "serial": self._serial(gpu["serial"])}
            for gpu in hardware.get("gpus", ())
        ]
        kept: Report = {key: self._serial(hardware[key]) for key in ("serial", "instance_id") if key in hardware}
        return {**kept, "gpus": gpus}

    def _serial(self, serial: str) -> str:
        return self._serials.setdefault(serial, f"serial-{len(self._serials) + 1}") if serial else ""

    def _line(self, line: str) -> str:
        """A reason: unchanged if accept wrote it, otherwise only the check."""
        if line.startswith(self._own):
            return self._without_paths(_without_levels(line))
        match = _REASON.fullmatch(line)
        return f"{match[1]}: {LEFT_OUT}{match[3] or ''}" if match else LEFT_OUT

    def _without_paths(self, line: str) -> str:
        for path in self._paths:
            line = line.replace(path, "FOLDER")
        return line


def _own_words() -> tuple[str, ...]:
    """Beginnings of reasons that accept itself writes, which contain only numbers and titles."""
    measures = acceptance.measures().values()
    stages = [f"{row.title}: " for row in acceptance.stages().values()]
    return (*stages, *(f"{row.check}: {row.title}: " for row in measures), *(f"{row.title}, " for row in measures))


def _command(stage: str, nodes: Sequence[str]) -> list[str]:
    """The arguments that accept itself gives the run of a stage."""
    row = acceptance.stages()[stage]
    chosen = [*(("-m", row.marks) if row.marks else ()), *(("-k", row.keyword) if row.keyword else ())]
    return ["clusterproof", "check", CLUSTER, f"--nodes={fold(nodes)}", *row.options, *chosen]


def _without_levels(line: str) -> str:
    """Keep only the kind of the racks and batches that a node was compared within: `usual in group`."""
    before, mark, rest = line.partition("usual in ")
    for end, own in _LEVEL_ENDS:
        _, separator, after = rest.rpartition(end)
        if separator and own in after:
            return f"{before}{mark}{rest.partition(' ')[0]}{separator}{after}"
    return line
