"""The report without the names of a site: of its nodes, their hardware and its folders. Evidence stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.accept.report import Report
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.nodeset import expand, fold
from clusterproof.plugins.redaction.pseudonyms import Pseudonyms

CLUSTER = "X"


def redacted(data: Report, cluster: Cluster) -> Report:
    """The same report. Nodes and serials have words in their place, and commands only what accept gave them."""
    words = Pseudonyms()
    names = {target.name: f"node-{number}" for number, target in enumerate(cluster.targets, 1)}
    for name, word in names.items():
        words.know_host(name, word)
    numbers: dict[str, str] = {}

    def serial(name: str) -> str:
        return numbers.setdefault(name, f"serial-{len(numbers) + 1}") if name else ""

    def identity(of: Report) -> Report:
        gpus = [{**gpu, "uuid": serial(gpu["uuid"]), "serial": serial(gpu["serial"])} for gpu in of.get("gpus", ())]
        kept: Report = {key: serial(of[key]) for key in ("serial", "instance_id") if key in of}
        return {**kept, "gpus": gpus} if of else {}

    def said(lines: list[str]) -> list[str]:
        return [words.text(line) for line in lines]

    def command(typed: list[str], nodes: str) -> list[str]:
        own = [word for word in typed[3:] if word.startswith(("-m", "-k", "--pairs", "--meter=", "--fs-at-once="))]
        return [*typed[:2], CLUSTER, f"--nodes={nodes}", *own]

    def run(one: Report) -> Report:
        nodes = fold([names[node] for node in one["nodes"]])
        return {**one, "nodes": [names[node] for node in one["nodes"]], "command": command(one["command"], nodes)}

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
        return {**one, "what": words.text(one["what"]), "shares": {names[name]: x for name, x in one["shares"].items()}}

    def other(one: Report) -> Report:
        both = [names.get(part, "") for part in str(one["of"]).split("~")]
        return {**one, "of": "~".join(both) if all(both) else CLUSTER, "message": words.text(one["message"])}

    plan: dict[str, Any] = {**data["plan"], "options": []}
    return {
        **data,
        "cluster": CLUSTER,
        "stopped": words.text(data["stopped"]),
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
