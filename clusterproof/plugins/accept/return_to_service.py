"""`clusterproof return X NODES`: whether repaired nodes may take jobs again.

It runs all checks, then load, then pairs with healthy nodes if any are named. Findings on a node in the history and in
cases must be shown to be gone. It does not return nodes to service itself.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import join, quote
from tempfile import TemporaryDirectory
from textwrap import indent

from clusterproof.plugins.accept import RESULTS
from clusterproof.plugins.accept.command import INTERRUPTED, OPEN, UNREADABLE
from clusterproof.plugins.accept.earlier import A_CASE, EarlierFinding, before, without_history
from clusterproof.plugins.accept.journal import JournalError
from clusterproof.plugins.accept.plan import kind_of
from clusterproof.plugins.accept.runner import COMPLETE_EXITS, OUTPUT, last_line, launched
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.cluster import Cluster, InventoryError, is_of_kubernetes, is_of_slurm
from clusterproof.plugins.core.kinds import CONNECTIONS, forms
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import NodesetError, expand, fold
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.record import as_json, record, replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve, settings_in
from clusterproof.plugins.options import perf_table, table
from clusterproof.reports.history import HistoryError
from clusterproof.reports.results import read_results

FIT, NOT_FIT, NOT_PROVEN = "FIT", "NOT FIT", "NOT PROVEN"
EXIT_CODES = {FIT: 0, NOT_FIT: 1, NOT_PROVEN: OPEN}  # as for a run
STEPS = ("the checks", "the load", "the pairs")
RESERVED_OPTIONS = (  # own options that choose or hide nodes, or write a file that the next step overwrites
    *("--nodes", "--exclude", "--cluster", "--run", "--resume", "--redact", "--pairs"),
    *("--results", "--report", "--record", "--bundle", "--save-baseline"),
)
MARGIN = " " * 12
MAX_OTHERS = 20  # findings on other nodes that are listed
PAIR_CHECKS = "pairwise or straggler"
EXPECTED_TO_TELL = "expected one to pass (what is measured between nodes needs --beside NODESET)"
_OWN = [option for group in (*table.GROUPS.values(), *perf_table.GROUPS.values()) for option in group]
_VALUED = {option.flag for option in _OWN if option.has_value}
_ALLOWED = {option.flag for option in _OWN} - {*RESERVED_OPTIONS}
_SHORT = ("-v", "-vv", "-q")
_IS_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}").fullmatch
Launch = Callable[[Sequence[str], Path], int]  # arguments of `clusterproof`, output folder: the exit code


@record
class ReturnStep:
    """One `clusterproof check` of the nodes, together with these others: the arguments after X."""

    words: tuple[str, ...]
    others: tuple[str, ...] = ()


@record
class Returning:
    """The verdict on one node, its reasons, and remarks; `beside` are the findings on others."""

    node: str
    said: str
    reasons: tuple[str, ...]
    concerns: tuple[str, ...]
    beside: tuple[str, ...] = ()


def return_nodes(arguments: Sequence[str], launch: Launch | None = None) -> tuple[int, str]:
    """The exit code and what to print. Raises SystemExit as argparse does."""
    option, more = parser().parse_known_args(arguments)
    try:
        cluster = resolve(option.cluster, settings_in(more))
        kind = CONNECTIONS.get(cluster.connection)
        if kind and not kind.is_live:
            raise InventoryError(
                f"{option.cluster!r:.120} is a recording or capture; expected nodes that can be loaded now"
            )
        require_options(more)
        nodes, healthy = _named(option.nodes, cluster, "NODES"), _named(option.beside, cluster, "--beside")
        if both := [node for node in healthy if node in nodes]:
            raise InventoryError(f"--beside: {fold(both):.200} is among the nodes to be proven; expected healthy nodes")
        findings = before(cluster, nodes, option.history, option.case)
        unknown = without_history(cluster, nodes, option.history)
        due = steps(option.load or load_of(cluster), healthy, more)
        ran = _run(option.cluster, due, nodes, launch or launched)
    except KeyboardInterrupt:
        return INTERRUPTED, "clusterproof return: interrupted; no node is proven\n"
    except (InventoryError, HistoryError, JournalError) as problem:
        return UNREADABLE, f"clusterproof return: {problem}\n"
    others = other_findings(ran, nodes)
    judged = [
        replace(of, concerns=(*of.concerns, *filter(None, [unknown.get(of.node)])), beside=others)
        for of in (judge(node, findings[node], ran, len(due)) for node in nodes)
    ]
    worst = max((returning.said for returning in judged), key=(FIT, NOT_PROVEN, NOT_FIT).index)
    text = (
        json.dumps([as_json(returning) for returning in judged], indent=1)
        if option.json
        else _text(judged, findings, cluster)
    )
    return EXIT_CODES[worst], f"{text}\n"


def require_options(arguments: Sequence[str]) -> None:
    """Reject arguments that may narrow what is checked: all but clusterproof's own options, and their values.

    Raises InventoryError.
    """
    for at, word in enumerate(arguments):
        is_value = not word.startswith("-") and at > 0 and arguments[at - 1] in _VALUED
        if not (is_value or word in _SHORT or word.partition("=")[0] in _ALLOWED):
            what = f"{word!r:.80}: return chooses nodes and checks itself, by their names and in several runs"
            raise InventoryError(
                f"{what}; expected options on how nodes are reached and judged, and --load for its load"
            )


def load_of(cluster: Cluster) -> str:
    """The load that an acceptance puts on single nodes, as a `-k` expression."""
    known = (acceptance.stages()[name] for name in acceptance.defaults(kind_of(cluster)).stages)
    return " or ".join(stage.keyword for stage in known if stage.is_load and stage.scope == "nodes")


def steps(load: str, healthy: Sequence[str], more: Sequence[str]) -> list[ReturnStep]:
    """All checks, load, and then pairs; healthy nodes, if any, are included in each for comparison."""
    perf = (*more, "-m", "perf", "-k")
    selections = [tuple(more), (*perf, load), *([(*perf, PAIR_CHECKS)] if healthy else [])]
    return [ReturnStep(of_step, tuple(healthy)) for of_step in selections]


def _run(named: str, of_steps: Sequence[ReturnStep], nodes: Sequence[str], launch: Launch) -> list[list[Result]]:
    """The results of each step. A node that failed gets no load, and is not compared or paired.

    Raises JournalError if a run did not end, and KeyboardInterrupt.
    """
    results_of_steps: list[list[Result]] = []
    for number, step in enumerate(of_steps, 1):
        failed = {result.node for results in results_of_steps for result in results if result.verdict is Verdict.FAIL}
        left = [node for node in nodes if node not in failed]
        healthy = [node for node in step.others if node not in failed]
        if left and (healthy or not step.others):
            arguments = ["check", named, f"--nodes={fold([*left, *healthy])}", *step.words]
            sys.stderr.write(f"step {number} of {len(of_steps)}: clusterproof {join(arguments)}\n")
            results_of_steps.append(_results(arguments, launch))
    return results_of_steps


def _results(arguments: Sequence[str], launch: Launch) -> list[Result]:
    with TemporaryDirectory(prefix="clusterproof-return-") as name:
        folder = Path(name)
        code = launch([*arguments, f"--results={folder / RESULTS}"], folder)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code not in COMPLETE_EXITS:
            raise JournalError(f"a step came to no end (exit code {code}): {last_line(folder / OUTPUT)}")
        try:
            return read_results(folder / RESULTS)
        except (OSError, ValueError) as problem:
            raise JournalError(f"what a step found cannot be read: {problem}") from None


def judge(node: str, findings: Sequence[EarlierFinding], by_step: Sequence[Sequence[Result]], due: int) -> Returning:
    """The verdict on a node, from earlier findings and the results of the required number of steps.

    A node is not fit without complete evidence, nor if nothing shows whether earlier findings are gone.
    """
    own = [result for results in by_step for result in results if _is_of(result, node)]
    failed = [f"{result.check}: {result.message}" for result in own if result.verdict is Verdict.FAIL]
    concerns = [result for result in own if result.verdict is Verdict.CONCERN]
    missing = [
        f"{result.check}: {result.message or result.cause}" for result in own if result.verdict is Verdict.INCOMPLETE
    ]
    for number, what in enumerate(STEPS[:due]):
        results = by_step[number] if number < len(by_step) else ()
        if not any(_is_of(result, node) and result.verdict in (Verdict.PASS, Verdict.CONCERN) for result in results):
            missing.append(f"{what} told nothing of it; expected one measurement at least")
    missing += dict.fromkeys(
        f"{result.check}: the cluster failed: {result.message}"
        for results in by_step
        for result in results
        if result.is_of_cluster and result.verdict is Verdict.FAIL
    )
    for finding in findings:
        about = {result.verdict for result in own if finding.is_about(result.check)}
        known = f"{finding.shown}: {finding.source} has it"
        if Verdict.CONCERN in about:
            missing.append(f"{known}, and it is still a concern")
        elif about <= {Verdict.NOT_APPLICABLE}:
            missing.append(f"{known}, and no check told whether it is gone; {EXPECTED_TO_TELL}")
    verdict = NOT_FIT if failed else NOT_PROVEN if missing else FIT
    return Returning(
        node, verdict, tuple(failed or missing), tuple(f"{result.check}: {result.message}" for result in concerns)
    )


def other_findings(by_step: Sequence[Sequence[Result]], nodes: Sequence[str]) -> tuple[str, ...]:
    """Findings on other nodes, on pairs of them, and on the cluster: in words, each once.

    Missing evidence of a node is reported once per cause; findings once per check.
    """
    others = (result for results in by_step for result in results if not any(_is_of(result, node) for node in nodes))
    by_message: dict[tuple[str, str], tuple[int, str]] = {}
    for part in (part for result in others for part in result.by_verdict if part.verdict.is_finding):
        message = f"{part.check}: {part.verdict.value}: {part.message or part.cause}"
        is_gap = part.verdict is Verdict.INCOMPLETE or part.is_of_unreachable
        by_message.setdefault(
            (part.node, (is_gap and part.cause) or message), (part.verdict.rank, f"{part.node}: {message}")
        )
    if len(by_message) <= MAX_OTHERS:
        return tuple(words for _, words in by_message.values())
    worst_first = sorted(by_message.values(), key=lambda row: row[0])
    return (*(words for _, words in worst_first[:MAX_OTHERS]), f"{len(by_message) - MAX_OTHERS} more")


def _is_of(result: Result, node: str) -> bool:
    return (result.is_of_node and result.node == node) or (result.is_of_pair and node in result.node.split("~"))


def _text(judged: Sequence[Returning], findings: Mapping[str, Sequence[EarlierFinding]], cluster: Cluster) -> str:
    lines = []
    for node in judged:
        known = dict.fromkeys(f"{finding.shown} ({finding.source})" for finding in findings[node.node])
        resolved = f"; found before, and gone: {', '.join(known)}" if known and node.said == FIT else ""
        lines += [f"{node.said:<10}  {node.node}{resolved}", *(indent(reason, MARGIN) for reason in node.reasons)]
        lines += [indent(f"concern: {text}", MARGIN) for text in node.concerns]
    lines += [f"{'beside':<10}  {text}" for text in judged[0].beside]
    fit = [returning.node for returning in judged if returning.said == FIT]
    lines += [f"\nTo copy; nothing of it was done:\n  {line}" for line in return_command(fit, cluster)]
    return "\n".join([*lines, f"{len(fit)} of {number_of(len(judged), 'node')} may have jobs again"])


def return_command(nodes: Sequence[str], cluster: Cluster) -> list[str]:
    """The command that returns these nodes to the scheduler; none if the scheduler is unknown."""
    if not nodes or not all(map(_IS_NODE, nodes)):
        return []
    if is_of_slurm(cluster):
        return [f"scontrol update nodename={quote(fold(nodes))} state=resume"]
    if is_of_kubernetes(cluster):
        kind, _, name = cluster.settings["kubernetes"].partition(":")
        context = [f"--context={name}"] if kind == "context" and name else []
        return [join(["kubectl", *context, "uncordon", *nodes])]
    return []


def _named(nodeset: str | None, cluster: Cluster, of: str) -> list[str]:
    try:
        named = list(expand(nodeset)) if nodeset else []
    except NodesetError as problem:
        raise InventoryError(f"{of}: {problem}") from None
    if nodeset is not None and not named:
        raise InventoryError(f"{of} names no node; expected such as gpu[003,017]")
    known = {target.name for target in cluster.targets}
    stranger = next((node for node in named if node not in known), "")
    if stranger:
        raise InventoryError(f"{of}: {stranger!r:.80} is not a node of {cluster.name}; expected one of them")
    return list(dict.fromkeys(named))


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof return`."""
    line = OneLineParser(
        prog="clusterproof return",
        usage="clusterproof return X NODES [OPTION...]",
        description="Proves repaired nodes fit to have jobs again; options of clusterproof check may follow.",
        allow_abbrev=False,
    )
    line.add_argument("cluster", metavar="X", help=f"the nodes: {forms(are_live=True)}")
    line.add_argument("nodes", metavar="NODES", help="those that were repaired: gpu[003,017]")
    line.add_argument("--case", action="append", default=[], metavar="FILE", help=f"{A_CASE}, of a job that they ended")
    line.add_argument(
        "--history", metavar="FILE", help="of earlier runs (default: the one beside the cluster's reports)"
    )
    line.add_argument(
        "--beside", metavar="NODESET", help="three healthy nodes without jobs: to compare and to pair with"
    )
    line.add_argument(
        "--load", metavar="NAMES", help="what loads them, as -k takes it (default: as an acceptance does)"
    )
    line.add_argument("--json", action="store_true", help="plain JSON")
    return line
