"""The acceptance report that a buyer signs: what was bought and what is there, each node's outcome, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import exp
from textwrap import fill
from typing import Any

from clusterproof.plugins.accept.journal import EndedRun
from clusterproof.plugins.accept.population import Errors
from clusterproof.plugins.accept.sequential import Population
from clusterproof.plugins.accept.state import AcceptanceState
from clusterproof.plugins.accept.verdicts import (
    NodeOutcome,
    NodeVerdict,
    failed,
    left_out,
    not_covered,
    of_nodes,
    outcome,
)
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.catalog.instance_types import ec2_name
from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import as_json
from clusterproof.plugins.core.verdict import Verdict

SCHEMA = 1
WIDTH = 100
MAX_OTHERS = 200
MAX_LINES = 20  # characters on a screen, for pairs and the cluster, and for concerns
NOT_ASKED = "not said"
INVENTORY = "inventory"
COUNTED_BY = {  # the check that compares a node with its expectations
    "gpus": "gpu.gpu_count",
    "nvlinks": "gpu.nvlink_active",
    "nvswitch": "gpu.nvswitch_count",
    "efa": "network.efa_count",
    "ib": "network.ib_count",
    "trays": "gpu.rack_trays",
}
FEWER_ARE_A_CONCERN = ("trays",)  # only a concern of their check, because a node may be away for repair
Report = dict[str, Any]


def report(state: AcceptanceState, ended: Sequence[EndedRun], cluster: str, stopped: str) -> Report:
    """All of it, as plain JSON. Times are in seconds since 1970, shares between 0 and 1."""
    outcomes, others = of_nodes(state), sorted(state.others, key=lambda other: other.result.verdict.rank)
    bought = list(_bought(state, outcomes))
    return {
        "schema": SCHEMA,
        "clusterproof": __version__,
        "cluster": cluster,
        "plan": {
            "digest": state.plan.digest,
            **as_json(state.plan),
            "stages": [stage.name for stage in state.plan.stages],
        },
        "began": min((run.began for run in ended), default=None),
        "ended": max((run.ended for run in ended), default=None),
        "stopped": stopped,
        "outcome": outcome(state, outcomes, _is_as_bought(bought), stopped).value,
        "summary": {
            of.value: count
            for of in NodeVerdict
            if (count := sum(node_verdict.said is of for node_verdict in outcomes))
        },
        "summary_of_others": dict(Counter(other.result.verdict.value for other in others)),
        "bought": bought,
        "nodes": [_node(node_verdict, state) for node_verdict in outcomes],
        "left": [_left(node, state) for node in state.removed],
        "of_others": [
            {
                "of": other.result.node,
                "check": other.result.check,
                "verdict": other.result.verdict.value,
                "message": other.result.message,
                "folder": other.folder,
            }
            for other in others[:MAX_OTHERS]
        ],
        "populations": [_population(key, population) for key, population in state.populations.by_key.items()],
        "stages": [_stage(stage.name, state, ended) for stage in state.plan.stages],
        "errors": _errors(state.plan.errors, state),
        "left_out": list(left_out(state)),
        "not_covered": list(not_covered(state)),
        "runs": [as_json(run) for run in ended],
    }


def _node(node_verdict: NodeOutcome, state: AcceptanceState) -> Report:
    return {
        "node": node_verdict.node,
        "said": node_verdict.said.value,
        "reasons": list(node_verdict.reasons),
        "concerns": list(node_verdict.concerns),
        **_measured(node_verdict.node, state),
    }


def _left(node: str, state: AcceptanceState) -> Report:
    """A node that is no longer in the inventory."""
    return {"node": node, "reasons": list(failed(node, state)), **_measured(node, state)}


def _measured(node: str, state: AcceptanceState) -> Report:
    seen = state.seen.get(node)
    return {
        "kind": seen.kind if seen else "",
        "hardware": dict(seen.identity) if seen else {},
        "replaced": [dict(before.identity) for before in state.earlier.get(node, ())],
        "runs": {stage: count[node] for stage, count in state.runs.items() if count[node]},
    }


def _bought(state: AcceptanceState, outcomes: Sequence[NodeOutcome]) -> Iterator[Report]:
    """Each item that was bought: what is there, on how many nodes, and which nodes lack it."""
    bought = state.plan.bought
    accepted = [node_verdict.node for node_verdict in outcomes if node_verdict.said is NodeVerdict.ACCEPTED]
    due = bought.get("nodes", len(state.nodes))
    there = [node for node in state.nodes if node in state.seen]
    silent = [node for node in state.nodes if node not in state.seen]
    is_met = False if len(state.nodes) != due else None if silent else True
    yield _line("nodes", str(due), f"{len(state.nodes)} named, {len(there)} answered", is_met, silent)
    unfit = [node_verdict.node for node_verdict in outcomes if node_verdict.said is not NodeVerdict.ACCEPTED]
    are_open = all(node_verdict.said in (NodeVerdict.ACCEPTED, NodeVerdict.OPEN) for node_verdict in outcomes)
    is_met = len(accepted) == due or (None if are_open and len(state.nodes) == due else False)
    yield _line("nodes that are fit", str(due), f"{len(accepted)} accepted", is_met, unfit)
    kinds = Counter(state.seen[node].kind for node in there)
    if "type" in bought:
        types = {node: state.seen[node].type if node in state.seen else "" for node in state.nodes}
        others = [node for node, of_type in types.items() if ec2_name(of_type) != ec2_name(str(bought["type"]))]
        is_met = False if any(types[node] for node in others) else None if others else True
        yield _line("type", str(bought["type"]), _kinds(kinds), is_met, others)
    else:
        yield _line("hardware", NOT_ASKED, _kinds(kinds), None, [])
    for name, count in bought.items():
        if name in ("nodes", "type"):
            continue
        counted = {node: _last(state, node, COUNTED_BY[name]) for node in state.nodes}
        too_few = {Verdict.FAIL, *([Verdict.CONCERN] if name in FEWER_ARE_A_CONCERN else [])}
        as_due = {Verdict.PASS, Verdict.CONCERN, *([] if count else [Verdict.NOT_APPLICABLE])} - too_few
        fine = [node for node, verdict in counted.items() if verdict in as_due]
        is_met = False if too_few & {*counted.values()} else True if len(fine) == len(counted) else None
        rest = [node for node in state.nodes if node not in fine]
        yield _line(f"{name} of each node", str(count), f"on {len(fine)} of {len(counted)} nodes", is_met, rest)


def _last(state: AcceptanceState, node: str, check: str) -> Verdict | None:
    results = state.results.get(node, {}).get((INVENTORY, check))
    return results[-1].result.verdict if results else None


def _is_as_bought(lines: Sequence[Report]) -> bool | None:
    """Whether everything is as bought; None unless all items are known."""
    answers = {line["is_met"] for line in lines if line["bought"] != NOT_ASKED}
    return False if False in answers else None if None in answers else True


def _line(what: str, bought: str, there: str, is_met: bool | None, nodes: Sequence[str]) -> Report:
    return {"what": what, "bought": bought, "there": there, "is_met": is_met, "not_on": fold(nodes) if nodes else ""}


def _kinds(kinds: Mapping[str, int]) -> str:
    return "; ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "nothing answered"


def _population(key: tuple[str, str, str], population: Population) -> Report:
    kind, name, what = key
    row, reference = acceptance.measures()[name], population.reference
    by_node: dict[str, float] = {}
    for (node, _), judged in population.judged.items():
        by_node[node] = min(judged.share, by_node.get(node, judged.share))
    return {
        "kind": kind,
        "what": f"{row.title}: {what}",
        "unit": row.unit,
        "usual": round(exp(reference.usual), 4) if reference else None,
        "noise": round(reference.sigma, 5) if reference else None,
        "between_nodes": round(reference.between, 5) if reference else None,
        "floor": round(exp(population.floor), 4) if population.floor is not None else None,
        "in_common": [
            {"levels": [*shift.levels], "nodes": shift.nodes, "share": round(exp(shift.by), 5), "chance": shift.chance}
            for shift in population.shifts
        ],
        "drift": round(exp(population.drift), 5) if population.drift is not None else None,
        "shares": {node: round(share, 5) for node, share in sorted(by_node.items(), key=lambda item: item[1])},
    }


def _stage(name: str, state: AcceptanceState, ended: Sequence[EndedRun]) -> Report:
    runs = [run for run in ended if run.stage == name]
    row = acceptance.stages()[name]
    node_hours = sum(len(run.nodes) * run.seconds for run in runs) / 3600
    out = sorted(node for node, of in state.failures.items() if any(failure.stage == name for failure in of))
    return {
        "stage": name,
        "title": row.title,
        "proves": row.proves,
        "runs": len(runs),
        "hours": round(sum(run.seconds for run in runs) / 3600, 4),
        "node_hours": round(node_hours, 3),
        "nodes": sum(count > 0 for count in state.runs[name].values()),
        "taken_out": fold(out) if out else "",
    }


def _errors(errors: Errors, state: AcceptanceState) -> Report:
    return {
        **as_json(errors),
        "runs_of_each_node": errors.least_runs,
        "runs_at_most": state.plan.most_runs,
        "missed_if_it_shows_in_half_of_the_runs": round(0.5**errors.least_runs, 4),
    }


def headline(report: Report) -> str:
    """The counts, in one line."""
    others, unmet = report["summary_of_others"], sum(line["is_met"] is False for line in report["bought"])
    parts = [f"{count} {verdict_text}" for verdict_text, count in report["summary"].items()] or ["no node"]
    for verdict, noun in ((Verdict.FAIL, "failed check"), (Verdict.INCOMPLETE, "incomplete check")):
        if verdict.value in others:
            parts.append(f"{number_of(others[verdict.value], noun)} of pairs or the cluster")
    if unmet:
        parts.append(f"{number_of(unmet, 'line')} of what was bought not met")
    concerns = sum(len(node["concerns"]) for node in report["nodes"]) + others.get(Verdict.CONCERN.value, 0)
    if concerns:
        parts.append(number_of(concerns, "concern"))
    if report["left"]:
        parts.append(f"{number_of(len(report['left']), 'node')} no longer in the inventory")
    if report["left_out"]:
        parts.append(f"{number_of(len(report['left_out']), 'stage')} left out")
    return ", ".join(parts)


def _more(count: int, what: str, left: int) -> str:
    """How many are not on the screen, and how many of those are not in the report either."""
    return f"{count} more{what}{f', all but {left}' if left else ''} in the report"


def text(report: Report) -> str:
    """The report on one screen."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"{report['cluster']}: {report['outcome']}: {headline(report)}"
    if report["stopped"]:
        yield fill(f"not finished: {report['stopped']}", WIDTH)
    for line in report["bought"]:
        if line["is_met"] is not True and line["bought"] != NOT_ASKED:
            where = f" (not {line['not_on']})" if line["not_on"] else ""
            text = f"  {line['what']}: bought {line['bought']}, found {line['there']}{where}"
            yield fill(text, WIDTH, subsequent_indent="    ")
    for verdict in (NodeVerdict.REJECTED, NodeVerdict.TO_FIX, NodeVerdict.OPEN):
        for node in report["nodes"]:
            if node["said"] == verdict.value and node["reasons"]:
                more = f" (and {len(node['reasons']) - 1} more)" if len(node["reasons"]) > 1 else ""
                yield _entry(verdict.value, f"{_named(node)}: {node['reasons'][0]}{more}")
    yield from (_entry("left", removed_node_line(node)) for node in report["left"])
    others = [other for other in report["of_others"] if other["verdict"] != Verdict.CONCERN.value]
    for other in others[:MAX_LINES]:
        yield _entry(other["verdict"], f"{other['of']}: {other['check']}: {other['message']} ({other['folder']})")
    total, of_concerns = (
        sum(report["summary_of_others"].values()),
        report["summary_of_others"].get(Verdict.CONCERN.value, 0),
    )
    if (more := total - of_concerns - MAX_LINES) > 0:
        yield _entry("", _more(more, " of pairs or the cluster", total - of_concerns - len(others)))
    concerns = [f"{node['node']}: {concern}" for node in report["nodes"] for concern in node["concerns"]]
    others = [other for other in report["of_others"] if other["verdict"] == Verdict.CONCERN.value]
    concerns += [f"{other['of']}: {other['check']}: {other['message']}" for other in others]
    yield from (_entry("concern", concern) for concern in concerns[:MAX_LINES])
    left = of_concerns - len(others)
    if more := max(len(concerns) - MAX_LINES, 0) + left:
        yield _entry("concern", _more(more, "", left))
    yield from (_entry("left out", concern) for concern in report["left_out"])


def _named(node: Report) -> str:
    serial = node["hardware"].get("serial") or node["hardware"].get("instance_id") or ""
    return f"{node['node']} ({serial})" if serial else str(node["node"])


def removed_node_line(node: Report) -> str:
    """`n3 (S-17): the inventory has it no more; runs: 1 of inventory, 3 of exact; nothing failed`."""
    runs = ", ".join(f"{count} of {stage}" for stage, count in node["runs"].items())
    failures = "; ".join(node["reasons"])
    return f"{_named(node)}: no longer in the inventory; runs: {runs}; {failures or 'nothing failed'}"


def _entry(kind: str, text: str) -> str:
    return fill(f"{kind:<12}{text}", WIDTH, subsequent_indent=" " * 12)
