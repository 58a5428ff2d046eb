"""Asks a job's nodes now, once each: their kernel logs since boot, and their clocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.case import CaseError, LogBegin, MissingKind, clocks, label, node_log, one_line
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.field import number
from clusterproof.plugins.evidence.kernel_log.window import CALENDAR_S, Window
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.transport import Limits, Unusable, connection_for
from clusterproof.plugins.transport.gather import gather

COLLECTORS = ("boot", "kernel_log", "neuron")  # with a log that users can write to
SOURCE = "asked"


def read_nodes(named: str, builder: CaseBuilder, of_job: Collection[str], ended: float | None) -> None:
    """Add the evidence of a job's nodes, or why there is none. Raises CaseError."""
    cluster = resolve(named, {"include_drained": "yes"})  # as the node at fault mostly is by now
    chosen = [target for target in cluster.targets if label(target.name) in of_job]
    absent = sorted(set(of_job).difference(label(target.name) for target in chosen))
    if absent:
        builder.lack(f"{cluster.name} has no node {listed(absent)}, on which the job ran")
    if chosen:
        cluster = replace(cluster, targets=tuple(chosen))
        for name, node in nodes(cluster, _gathered(cluster)).items():
            _take(label(name), node, builder, ended)
    if not set(of_job).difference(builder.nodes_with_log):
        builder.lacks[:] = [missing for missing in builder.lacks if missing.kind is not MissingKind.COMMAND]


def _gathered(cluster: Cluster) -> Mapping[str, NodeEvidence]:
    """Raises CaseError."""
    kind = CONNECTIONS.get(cluster.connection)
    if kind and not kind.is_live:
        raise CaseError(f"{cluster.name!r:.120} is a recording or capture; expected nodes that can be asked now")
    limits = Limits(settings=dict(cluster.settings))
    try:
        return gather(cluster, connection_for(cluster.connection), COLLECTORS, ProbeOptions(), limits, _kept)
    except Unusable as problem:
        raise CaseError(str(problem)) from None


def _kept(_: NodeEvidence) -> None:
    """An answer is kept as it is."""


def _take(name: str, node: Node, builder: CaseBuilder, ended: float | None) -> None:
    evidence = node.evidence
    if evidence.unreached:
        builder.lack(one_line(f"{name} did not answer: {evidence.unreached.value} {evidence.detail}", 300))
        return
    try:
        began, took = number(evidence.probe["began"]), number(evidence.probe["seconds"])
        off = builder.clocks[name] = clocks.by_command(began, took, evidence.asked, evidence.answered)
        booted = node.boot.booted
        events = node.kernel_events
        is_cut = node.kernel_log_is_cut
        begins = builder.job.ran.begins
        of_job = node if begins is None else replace(node, since=Window(moment=begins + off.seconds), facts={})
        is_in_part = of_job.kernel_log_is_cut or any(node.kernel_lines_cut.values()) or node.kernel_lines_uncounted > 0
    except (Incomplete, NotApplicable, KeyError, TypeError, ValueError) as problem:
        builder.lack(one_line(f"{name}: its kernel log: {problem}", 300))
        return
    if ended is not None and booted - off.seconds > ended:
        builder.lack(f"{name}: its kernel log of then: it was booted since; journalctl -k -b -1 may have it")
        return
    if is_cut:
        part = (
            "end of its kernel log, which was not read in time"
            if node.kernel_log_is_unfinished
            else "beginning of its kernel log, which is lost"
        )
        builder.lack(f"{name}: the {part}")
    elif is_in_part:
        builder.lack(f"{name}: lines of its kernel log, of which there were too many")
    dated = [
        replace(event, time=time + booted) if (time := getattr(event, "time", None)) and time < CALENDAR_S else event
        for event in events
    ]
    builder.nodes_with_log.append(name)
    builder.log_begins(name, LogBegin(booted, is_boot=True))
    if is_in_part:
        builder.nodes_in_part.append(name)
    builder.facts.append(node_log.booted(name, booted, SOURCE))
    builder.facts.extend(node_log.facts_of(tuple(dated), name, SOURCE))
    builder.count("kernel log")
