"""The report on the jobs that died in a period: by cause, next to published figures, and by node."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

from clusterproof.plugins.case.advice import TEST
from clusterproof.plugins.case.clocks import utc_text
from clusterproof.plugins.case.period import DeadJob, Period
from clusterproof.plugins.case.report import WIDTH, cut
from clusterproof.plugins.case.report import as_record as record_of_case
from clusterproof.plugins.catalog.causes import CAUSES, HARDWARE, hardware_of_gpu_time, published
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record

SCHEMA = 1
MAX_ROWS = 40  # of jobs in the terminal
NOT_KNOWN = "-"


@record
class NodeRow:
    """A node that cases blame, or want tested, and their jobs."""

    node: str
    blamed_in: tuple[str, ...]
    tested_for: tuple[str, ...]
    jobs: tuple[str, ...]  # all of them, in their order


def nodes(period: Period) -> list[NodeRow]:
    """The nodes, those with most cases first."""
    jobs_by_node: dict[str, list[tuple[DeadJob, bool]]] = {}
    for died in period.died:
        to_test = (node for node, due in died.case.advice.nodes.items() if due == TEST)
        for node in dict.fromkeys((*died.case.verdict.nodes, *died.case.verdict.suspects, *to_test)):
            jobs_by_node.setdefault(node, []).append((died, node in died.case.verdict.nodes))
    rows = [
        NodeRow(
            node,
            tuple(died.number for died, is_blamed in seen if is_blamed),
            tuple(died.number for died, is_blamed in seen if not is_blamed),
            tuple(died.number for died, _ in seen),
        )
        for node, seen in jobs_by_node.items()
    ]
    return sorted(rows, key=lambda row: (-len(row.blamed_in), -len(row.tested_for), row.node))


def text(period: Period) -> str:
    """The report for a terminal of 80 columns."""
    return "\n".join(_lines(period)) + "\n"


def markdown(period: Period) -> str:
    """The report as a Markdown code block."""
    return "".join(f"    {line}\n" if line else "\n" for line in text(period).splitlines())


def _lines(period: Period) -> Iterator[str]:
    yield fill(_sentence(period), WIDTH)
    if period.died:
        yield ""
        yield from _causes(period)
    rows = nodes(period)
    if rows:
        yield "\nNodes"
        for row in rows:
            parts = (("blamed in", row.blamed_in), ("to test for", row.tested_for))
            cell = "; ".join(f"{words} {', '.join(jobs)}" for words, jobs in parts if jobs)
            yield fill(f"  {row.node:<18} {cell}", WIDTH, subsequent_indent=" " * 21)
    if period.died:
        yield "\nJobs, the last first"
    newest = period.died[::-1]
    for died in newest[:MAX_ROWS]:
        verdict = died.case.verdict
        ended = utc_text(died.case.collected.job.ran.ends)[5:16]
        head = f"  {died.number[:12]:<12} {ended:<11} {verdict.cause:<9} "
        yield f"{head}{cut(verdict.why, WIDTH - len(head))}"
    if len(newest) > MAX_ROWS:
        yield f"  … and {len(newest) - MAX_ROWS} more: --json has them"
    if period.missing:
        yield "\nNot there, or not read"
        yield from (fill(f"- {message}", WIDTH, subsequent_indent="  ") for message in period.missing)


def _sentence(period: Period) -> str:
    began, ended = (utc_text(time)[:16] for time in (period.begins, period.ends))
    sentence = f"{began} to {ended} UTC: of {number_of(period.ended, 'job')} that ended, {len(period.died)} died."
    if not period.died_gpu_hours:
        return sentence
    ran = f"{_hours(period.died_gpu_hours)} of {_hours(period.gpu_hours)} GPU hours"
    return f"{sentence} These had run {ran}; what their checkpoints kept of that is not lost."


def _causes(period: Period) -> Iterator[str]:
    others = tuple(published().values())
    has_hours = period.died_gpu_hours > 0
    hours_head = f"{'GPU hours':>12}{'share':>7}" if has_hours else ""
    yield f"{'cause':<10}{'jobs':>6}{'share':>7}{hours_head}" + "".join(f"{other.name:>10}" for other in others)
    for row in causes(period):
        share = f"{row['share']:.0%}"
        hours = f"{_hours(row['gpu_hours']):>12}{row['share_of_gpu_hours']:>7.0%}" if has_hours else ""
        theirs = "".join(
            f"{other.shares[row['cause']]:>10.0%}" if row["cause"] in other.shares else f"{NOT_KNOWN:>10}"
            for other in others
        )
        yield f"{row['cause']:<10}{row['jobs']:>6}{share:>7}{hours}{theirs}"
    for other in others:
        yield fill(f"{other.name}: {other.of}.", WIDTH, subsequent_indent="  ")
    if period.gpu_hours:
        of_hardware = sum(job.gpu_hours or 0.0 for job in period.died if job.cause == HARDWARE) / period.gpu_hours
        yield fill(
            f"Of all GPU hours, {of_hardware:.1%} were of jobs that hardware ended; at Meta's RSC, "
            f"{hardware_of_gpu_time():.0%} were of jobs that it touched, as it is commonly cited.",
            WIDTH,
            subsequent_indent="  ",
        )


def causes(period: Period) -> list[dict[str, Any]]:
    """A row for each cause: how many jobs, and their share of the GPU hours of all that died."""
    total_hours = period.died_gpu_hours
    rows = []
    for cause in CAUSES:
        of_cause = [job for job in period.died if job.cause == cause]
        hours = sum(job.gpu_hours or 0.0 for job in of_cause)
        share = len(of_cause) / len(period.died) if period.died else 0.0
        of_hours = hours / total_hours if total_hours else 0.0
        rows.append(
            {"cause": cause, "jobs": len(of_cause), "share": share, "gpu_hours": hours, "share_of_gpu_hours": of_hours}
        )
    return rows


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"


def as_record(period: Period) -> dict[str, Any]:
    """The report as plain JSON; `cases` have the same form as for one job."""
    return {
        "schema": SCHEMA,
        "begins": period.begins,
        "ends": period.ends,
        "ended": period.ended,
        "died": len(period.died),
        "gpu_hours": period.gpu_hours,
        "died_gpu_hours": period.died_gpu_hours,
        "causes": causes(period),
        "published": {name: {"of": other.of, "shares": other.shares} for name, other in published().items()},
        "nodes": [
            {
                "node": row.node,
                "blamed": len(row.blamed_in),
                "suspected": len(row.tested_for),
                "jobs": list(row.jobs),
            }
            for row in nodes(period)
        ],
        "cases": [{**record_of_case(job.case), "gpu_hours": job.gpu_hours} for job in period.died],
        "missing": list(period.missing),
    }
