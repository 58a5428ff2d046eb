"""`clusterproof accept X`: acceptance of a new or repaired cluster on evidence."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterproof.plugins.accept.journal import JournalError
from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.plan import AcceptancePlan, options_of, plan_of
from clusterproof.plugins.accept.population import declared
from clusterproof.plugins.accept.redaction import redacted
from clusterproof.plugins.accept.report import Report, report, text
from clusterproof.plugins.accept.runner import Acceptance
from clusterproof.plugins.accept.state import AcceptanceState
from clusterproof.plugins.accept.verdicts import NOTED, ClusterVerdict
from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.core.kinds import CONNECTIONS, forms
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.opened import keep_private
from clusterproof.plugins.inventory import resolve, settings_in
from clusterproof.plugins.options.table import Joined
from clusterproof.reports.formats import write_whole
from clusterproof.reports.run_folder import safe_name

INTERRUPTED, UNREADABLE, OPEN = 2, 4, 10  # exit codes, as those of a run
FOLDER, RECORD, PAGE = "acceptance", "acceptance.json", "acceptance.html"
NAMESPACE = "clusterproof-acceptance"


def accept(arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and what to print. Raises SystemExit as argparse does."""
    option = parser().parse_args(arguments)
    try:
        return _accept(option)
    except (InventoryError, JournalError, OSError) as problem:
        return UNREADABLE, f"clusterproof accept: {_said(problem, option)}\n"


def _said(problem: Exception, option: argparse.Namespace) -> str:
    """One line; of a file or disk, the folder where the error names none."""
    if not isinstance(problem, OSError):
        return str(problem)
    return f"{problem.filename or option.into or FOLDER}: {problem.strerror or problem}"


def _accept(option: argparse.Namespace) -> tuple[int, str]:
    plan_file = Path(option.plan) if option.plan else None
    cluster = resolve(option.cluster, settings_in(options_of(plan_file)))
    kind = CONNECTIONS.get(cluster.connection)
    if kind and not kind.is_live:
        raise InventoryError(
            f"{option.cluster!r:.120} is a recording or capture; expected nodes that can be measured now"
        )
    plan = plan_of(plan_file, cluster)
    again = _again(option.again, cluster)
    if option.dry_run:
        return 0, "\n".join(_planned(plan, cluster)) + "\n"
    if option.sign:
        _signature(b"", option.sign)  # an unusable key is better reported before the stages than after them
    folder = Path(option.into or Path(FOLDER) / safe_name(cluster.name))
    made = Acceptance(cluster, option.cluster, plan, folder)
    for note in cluster.notes:
        _print(f"{NOTED}{printable(note, len(note))}")
    try:
        stopped = made.go_on(again, _print)
    except KeyboardInterrupt:
        how = "it again without --again" if again and made.is_read else "the same command again"
        stopped = f"it was interrupted; run {how} to resume"
        if made.is_read:
            _write(made, stopped, option)
        return INTERRUPTED, f"clusterproof accept: {stopped}\n"
    except (JournalError, OSError) as problem:
        if made.is_read:  # otherwise the existing report would be outdated
            _write(made, _said(problem, option), option)
        raise
    report = _write(made, stopped, option)
    return exit_code(report), f"{text(report)}{folder / PAGE}\n"


def exit_code(report: Report) -> int:
    """The exit code of an acceptance that is finished, or out of time."""
    return {ClusterVerdict.ACCEPTED: 0, ClusterVerdict.NOT_ACCEPTED: 1, ClusterVerdict.UNDECIDED: OPEN}[
        ClusterVerdict(report["outcome"])
    ]


def _again(nodeset: str, cluster: Cluster) -> list[str]:
    try:
        named = expand(nodeset) if nodeset else []
    except NodesetError as problem:
        raise InventoryError(f"--again: {problem}") from None
    known = {target.name for target in cluster.targets}
    stranger = next((node for node in named if node not in known), "")
    if stranger:
        raise InventoryError(
            f"--again names {stranger!r:.80}, which is not a node of {cluster.name}; expected one of them"
        )
    return list(named)


def _write(made: Acceptance, stopped: str, option: argparse.Namespace) -> Report:
    """Write the page and the record, and its signature: private unless redacted. Raises OSError, JournalError."""
    made_report = report(made.state, made.ended, made.named, stopped)
    if option.redact:
        made_report = redacted(made_report, made.cluster)
        _write_files(made, made_report, option.sign)
        return made_report
    end_private = keep_private()
    try:
        _write_files(made, made_report, option.sign)
    finally:
        end_private()
    return made_report


def _write_files(made: Acceptance, made_report: Report, key: str | None) -> None:
    """Raises OSError, JournalError."""
    write_whole(made.folder / PAGE, page(made_report))
    record = json.dumps(made_report, indent=1) + "\n"
    (made.folder / f"{RECORD}.sig").unlink(missing_ok=True)
    write_whole(made.folder / RECORD, record)
    if key:
        write_whole(made.folder / f"{RECORD}.sig", _signature(record.encode(), key))


def _signature(content: bytes, key: str) -> str:
    """A detached OpenSSH signature. Raises JournalError."""
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE]
    ran = subprocess.run(command, input=content, capture_output=True, check=False)
    if ran.returncode:
        why = " ".join(ran.stderr.decode("utf-8", "replace").split())[-200:]
        raise JournalError(
            f"--sign {key!r:.120}: {why or 'ssh-keygen failed'}; expected an OpenSSH private key; nothing is signed"
        )
    return ran.stdout.decode()


def _planned(plan: AcceptancePlan, cluster: Cluster) -> Iterator[str]:
    """The plan: the order of stages, hours, and what each proves."""
    count = len(cluster.targets)
    yield f"{number_of(count, 'node')} of {cluster.name}; {_load(plan, count)}; at most {plan.hours:g} h"
    yield from (f"{NOTED}{printable(note, len(note))}" for note in cluster.notes)
    if plan.options:
        yield f"each run with {printable(shlex.join(plan.options))}"
    if plan.bought.get("nodes", count) != count:
        yield f"the plan says that {plan.bought['nodes']} nodes were bought, so this cluster cannot be accepted"
    total_s, state = 0.0, AcceptanceState(plan, cluster)
    places = len(state.places_of(state.nodes))
    for number, stage in enumerate(plan.stages, 1):
        least = plan.errors.least_runs if stage.is_repeated else 1
        batches = -(-count // plan.at_once(count)) if stage.is_load and stage.scope == "nodes" else 1
        if why := state.why_nothing_to_measure(stage):
            yield f"{number}. {stage.title}: not here: {why}"
            continue
        hours = plan.minutes(stage) * least * batches * (places if stage.scope == "places" else 1) / 60
        total_s += hours
        times = f"{least} times each" if least > 1 else "once"
        more = f", what is open again, at most {plan.most_runs} times" if stage.name == "speed" else ""
        yield f"{number}. {stage.title}: {times}{more}, {_about(hours)}"
        yield f"   proves that {stage.proves}"
    more = f", which is more than the {plan.hours:g} h of the plan" if total_s > plan.hours else ""
    yield f"{_about(total_s)} if nothing has to be repeated{more}"
    if not any(stage.is_repeated for stage in plan.stages):
        return
    of = plan.errors
    yield (
        f"declared: at most {declared(of.good_rejected)} of good nodes rejected, "
        f"{declared(of.bad_accepted)} of bad ones accepted; "
        f"bad is {declared(of.slower)} slower, in at least {declared(of.shows_in)} of runs"
    )


def _about(hours: float) -> str:
    return f"about {hours:.1f} h" if hours >= 1 else f"about {max(1, round(hours * 60))} min"


def _load(plan: AcceptancePlan, count: int) -> str:
    at_once = plan.at_once(count)
    return "all under load at once" if at_once == count else f"{at_once} under load at once"


def _print(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof accept`."""
    line = OneLineParser(
        prog="clusterproof accept",
        description="Accepts a cluster for service: stages of checks and load, then a report to sign.",
    )
    line.add_argument("cluster", metavar="X", help=f"the nodes: {forms(are_live=True)}")
    line.add_argument(
        "--plan",
        metavar="FILE",
        help="a plan of what was bought and how to prove it (default: according to the nodes' type)",
    )
    line.add_argument(
        "--dry-run", action="store_true", help="print the stages and about how long they take; run nothing"
    )
    line.add_argument(
        "--into",
        metavar="DIR",
        help="journal, evidence and report (default: acceptance/CLUSTER); give it again to resume",
    )
    line.add_argument(
        "--again", action=Joined, metavar="NODESET", help="measure these repaired or replaced nodes again"
    )
    line.add_argument("--sign", metavar="KEY", help="sign the record with this private key, using ssh-keygen -Y sign")
    line.add_argument("--redact", action="store_true", help="leave node names and serials out of the report")
    return line
