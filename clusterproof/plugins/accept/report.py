"""The report that a buyer signs: what was bought beside what is there, what was said of each node, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from textwrap import fill
from typing import Any

from clusterproof.plugins.accept.journal import Ended
from clusterproof.plugins.accept.population import Errors
from clusterproof.plugins.accept.sequential import Population
from clusterproof.plugins.accept.state import State
from clusterproof.plugins.accept.verdicts import OfNode, Said, of_nodes
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import as_json
from clusterproof.plugins.core.version import __version__

SCHEMA = 1
WIDTH = 100
MAX_OTHERS = 200
Report = dict[str, Any]


def report(state: State, ended: Sequence[Ended], cluster: str, stopped: str) -> Report:
    """All of it, as plain JSON. Times are in seconds since 1970, shares between 0 and 1."""
    said = of_nodes(state)
    return {
        "schema": SCHEMA,
        "clusterproof": __version__,
        "cluster": cluster,
        "plan": {"digest": state.plan.digest, **as_json(state.plan), "stages": [one.name for one in state.plan.stages]},
        "began": min((one.began for one in ended), default=None),
        "ended": max((one.ended for one in ended), default=None),
        "stopped": stopped,
        "summary": dict(Counter(one.said.value for one in said)),
        "bought": list(_bought(state, said)),
        "nodes": [_node(one, state) for one in said],
        "of_others": [
            {"of": one.node, "check": one.check, "verdict": one.verdict.value, "message": one.message, "folder": folder}
            for folder, one in state.of_others[:MAX_OTHERS]
        ],
        "populations": [_population(key, one) for key, one in state.populations.items()],
        "stages": [_stage(stage.name, state, ended) for stage in state.plan.stages],
        "errors": _errors(state.plan.errors, state),
        "not_covered": list(_not_covered(state)),
        "runs": [as_json(one) for one in ended],
    }


def _node(one: OfNode, state: State) -> Report:
    seen = state.seen.get(one.node)
    return {
        "node": one.node,
        "said": one.said.value,
        "reasons": list(one.reasons),
        "concerns": list(one.concerns),
        "kind": seen.kind if seen else "",
        "hardware": dict(seen.identity) if seen else {},
        "replaced": [dict(before.identity) for before in state.earlier.get(one.node, ())],
        "runs": {stage: count[one.node] for stage, count in state.runs.items() if count[one.node]},
    }


def _bought(state: State, said: Sequence[OfNode]) -> Iterator[Report]:
    """Each line of what was bought: what is there, on how many nodes, and on which it is not."""
    bought = state.plan.bought
    accepted = [one.node for one in said if one.said is Said.ACCEPTED]
    due = bought.get("nodes", len(state.nodes))
    there = [node for node in state.nodes if node in state.seen]
    yield _line(
        "nodes", str(due), f"{len(there)} answered", len(there) == due, [n for n in state.nodes if n not in state.seen]
    )
    yield _line(
        "nodes that are fit",
        str(due),
        f"{len(accepted)} accepted",
        len(accepted) == due,
        [one.node for one in said if one.said is not Said.ACCEPTED],
    )
    kinds = Counter(state.seen[node].kind for node in there)
    if "type" in bought:
        wrong = [node for node in there if state.seen[node].kind.split(", ")[0] != bought["type"]]
        yield _line("type", str(bought["type"]), _kinds(kinds), not wrong and bool(there), wrong)
    else:
        yield _line("hardware", "not said", _kinds(kinds), None, [])
    for name, count in bought.items():
        if name in ("nodes", "type"):
            continue
        wrong = [
            node for node in there if any(one.check in _COUNTS.get(name, ()) for one in state.failures.get(node, ()))
        ]
        yield _line(
            f"{name} of each node",
            str(count),
            "as counted by the checks of the inventory",
            not wrong and bool(there),
            wrong,
        )


_COUNTS = {  # the checks that hold a node to what is expected of it
    "gpus": ("gpu.gpu_count",),
    "nvlinks": ("gpu.nvlink_active",),
    "nvswitch": ("gpu.nvswitch_count",),
    "efa": ("network.efa_count",),
    "ib": ("network.ib_count",),
    "trays": ("gpu.rack_trays",),
}


def _line(what: str, bought: str, there: str, is_met: bool | None, nodes: Sequence[str]) -> Report:
    return {"what": what, "bought": bought, "there": there, "is_met": is_met, "not_on": fold(nodes) if nodes else ""}


def _kinds(kinds: Mapping[str, int]) -> str:
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "nothing answered"


def _population(key: tuple[str, str, str], one: Population) -> Report:
    kind, name, what = key
    row, usual = acceptance.measures()[name], one.usual
    by_node: dict[str, float] = {}
    for (node, _), judged in one.judged.items():
        by_node[node] = min(judged.share, by_node.get(node, judged.share))
    return {
        "kind": kind,
        "what": f"{row.title}: {what}",
        "unit": row.unit,
        "usual": round(exp(usual.centre), 4) if usual else None,
        "noise": round(usual.sigma, 5) if usual else None,
        "between_nodes": round(usual.between, 5) if usual else None,
        "floor": round(exp(one.floor), 4) if one.floor is not None else None,
        "shares": {node: round(share, 5) for node, share in sorted(by_node.items(), key=lambda item: item[1])},
    }


def _stage(name: str, state: State, ended: Sequence[Ended]) -> Report:
    runs = [one for one in ended if one.stage == name]
    row = acceptance.stages()[name]
    node_hours = sum(len(one.nodes) * (one.ended - one.began) for one in runs) / 3600
    out = sorted(node for node, of in state.failures.items() if any(one.stage == name for one in of))
    return {
        "stage": name,
        "title": row.title,
        "proves": row.proves,
        "runs": len(runs),
        "hours": round(sum(one.ended - one.began for one in runs) / 3600, 4),
        "node_hours": round(node_hours, 3),
        "nodes": sum(count > 0 for count in state.runs[name].values()),
        "taken_out": fold(out) if out else "",
    }


def _errors(errors: Errors, state: State) -> Report:
    return {
        **as_json(errors),
        "runs_of_each_node": errors.least_runs,
        "runs_at_most": state.plan.most_runs,
        "missed_if_it_shows_in_half_of_the_runs": round(0.5**errors.least_runs, 4),
    }


def _not_covered(state: State) -> Iterator[str]:
    named = {stage.name for stage in state.plan.stages}
    for name, row in acceptance.stages().items():
        if name not in named:
            yield f"{row.title}: the plan leaves it out"
    measured = {name for _, name, _ in state.populations}
    if "speed" in named:
        yield from (
            f"{row.title}: measured on no node" for name, row in acceptance.measures().items() if name not in measured
        )
    yield from acceptance.not_covered()


def text(data: Report) -> str:
    """A screen of it."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: Report) -> Iterator[str]:
    words = ", ".join(f"{count} {said}" for said, count in data["summary"].items())
    yield f"{data['cluster']}: {words or 'no node'}"
    if data["stopped"]:
        yield fill(f"not finished: {data['stopped']}", WIDTH)
    for line in data["bought"]:
        if line["is_met"] is False:
            where = f" (not {line['not_on']})" if line["not_on"] else ""
            yield fill(
                f"  {line['what']}: bought {line['bought']}, there {line['there']}{where}",
                WIDTH,
                subsequent_indent="    ",
            )
    for said in (Said.REJECTED, Said.TO_FIX, Said.OPEN):
        for one in data["nodes"]:
            if one["said"] == said.value and one["reasons"]:
                more = f" (and {len(one['reasons']) - 1} more)" if len(one["reasons"]) > 1 else ""
                serial = one["hardware"].get("serial") or one["hardware"].get("instance_id") or ""
                name = f"{one['node']} ({serial})" if serial else one["node"]
                yield fill(f"{said.value:<12}{name}: {one['reasons'][0]}{more}", WIDTH, subsequent_indent=" " * 12)
