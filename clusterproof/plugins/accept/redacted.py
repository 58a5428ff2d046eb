"""The report without what names a site: its nodes, hardware, users and folders. Evidence stays as it is.

What checks say has all of these in it, and is left out; what accept says itself stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.accept.report import Report
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.nodeset import expand, fold

CLUSTER = "X"
LEFT_OUT = "what it says is left out"
STOPPED = "it did not come to its end"
_REASON = re.compile(r"([a-z0-9_]+\.[a-z0-9_]+): (.*?)( \(runs/[0-9]+-[a-z]+\))?", re.DOTALL)


def redacted(data: Report, cluster: Cluster) -> Report:
    """The same report. Nodes and serials have words in their place, and commands only what accept gave them."""
    names = {target.name: f"node-{number}" for number, target in enumerate(cluster.targets, 1)}
    typed = [word.partition("=")[2] for word in data["plan"]["options"] if "/" in word]
    numbers: dict[str, str] = {}

    def serial(name: str) -> str:
        return numbers.setdefault(name, f"serial-{len(numbers) + 1}") if name else ""

    def identity(of: Report) -> Report:
        gpus = [{**gpu, "uuid": serial(gpu["uuid"]), "serial": serial(gpu["serial"])} for gpu in of.get("gpus", ())]
        kept: Report = {key: serial(of[key]) for key in ("serial", "instance_id") if key in of}
        return {**kept, "gpus": gpus} if of else {}

    def own(line: str) -> str:
        for value in typed:
            line = line.replace(value, "FOLDER")
        return line

    def said(lines: list[str]) -> list[str]:
        return [own(line) if line.startswith(_own_words()) else _left_out(line) for line in lines]

    def run(one: Report) -> Report:
        nodes = fold([names[node] for node in one["nodes"]])
        return {
            **one,
            "nodes": [names[node] for node in one["nodes"]],
            "command": _command(one["stage"], nodes),
        }

    def node(one: Report) -> Report:
        return {
            **one,
            "node": names[one["node"]],
            "reasons": said(one["reasons"]),
            "concerns": said(one["concerns"]),
            "hardware": identity(one["hardware"]),
            "replaced": [identity(before) for before in one["replaced"]],
        }

    def population(one: Report) -> Report:
        return {**one, "what": own(one["what"]), "shares": {names[name]: x for name, x in one["shares"].items()}}

    def other(one: Report) -> Report:
        both = [names.get(part, "") for part in str(one["of"]).split("~")]
        return {**one, "of": "~".join(both) if all(both) else CLUSTER, "message": LEFT_OUT}

    plan: dict[str, Any] = {**data["plan"], "options": []}
    return {
        **data,
        "cluster": CLUSTER,
        "stopped": STOPPED if data["stopped"] else "",
        "plan": plan,
        "bought": [{**one, "not_on": _folded(names, one["not_on"])} for one in data["bought"]],
        "nodes": [node(one) for one in data["nodes"]],
        "of_others": [other(one) for one in data["of_others"]],
        "populations": [population(one) for one in data["populations"]],
        "stages": [{**one, "taken_out": _folded(names, one["taken_out"])} for one in data["stages"]],
        "runs": [run(one) for one in data["runs"]],
    }


def _folded(names: Mapping[str, str], text: str) -> str:
    return fold([names.get(node, "node") for node in expand(text)]) if text else ""


def _own_words() -> tuple[str, ...]:
    """How the reasons begin that accept words itself, of numbers and titles alone."""
    measures = acceptance.measures().values()
    stages = [f"{row.title}: " for row in acceptance.stages().values()]
    return (*stages, *(f"{row.check}: {row.title}: " for row in measures), *(f"{row.title}, " for row in measures))


def _left_out(line: str) -> str:
    match = _REASON.fullmatch(line)
    return f"{match[1]}: {LEFT_OUT}{match[3] or ''}" if match else LEFT_OUT


def _command(stage: str, nodes: str) -> list[str]:
    """What accept itself gives the run of a stage."""
    row = acceptance.stages()[stage]
    chosen = [*(("-m", row.marks) if row.marks else ()), *(("-k", row.keyword) if row.keyword else ())]
    return ["clusterproof", "check", CLUSTER, f"--nodes={nodes}", *row.options, *chosen]
