"""A case for people and programs: a paragraph for the ticket, the timeline, what to do, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill, shorten
from typing import Any

from clusterproof.plugins.case import COMPLETED, Collected, Event, Fact, Lead, Span
from clusterproof.plugins.case.advice import DRAIN, KEEP, NOT_KNOWN, RESTARTS, TEST, Case, of_rank
from clusterproof.plugins.case.clocks import apart_s, utc_text
from clusterproof.plugins.case.relevance import is_shown, shown
from clusterproof.plugins.case.scheduler import RESOLUTION_S
from clusterproof.plugins.catalog.causes import (
    CODE,
    HARDWARE,
    NETWORK,
    RESOURCES,
    STOPPED,
    STORAGE,
    UNKNOWN,
)
from clusterproof.plugins.core.escaping import plain
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import as_json, record

SCHEMA = 1
WIDTH = 80  # columns
MAX_ROWS = 20  # of events on the terminal
MAX_LEADS = 6  # ranks that are described
_YEAR, _DAY, _HOUR = 0, len("2026-"), len("2026-03-01 ")  # their offsets in a formatted time
HEADINGS = {
    HARDWARE: "Hardware",
    NETWORK: "Network",
    STORAGE: "Storage",
    CODE: "Software or user code",
    RESOURCES: "Resources",
    STOPPED: "Stopped from outside",
    UNKNOWN: "Unknown",
}
TO_COPY, NOT_READ = "To copy; nothing of it was done", "Not there, or not read"
FIRST, ECHO, NODES, OF_RUN, OUTLIVED = ">", "~", "!", "+", "-"
MARKS = {
    FIRST: "first",
    ECHO: "the end of others",
    NODES: "the node's own log",
    OF_RUN: "a check of the node",
    OUTLIVED: "the job went on",
}


@record
class Row:
    """A line of the timeline; `mark` is one of MARKS, or empty."""

    mark: str
    when: Span
    where: str
    words: str
    source: str


def paragraph(case: Case) -> str:
    """A paragraph for a ticket."""
    return " ".join(_sentences(case))


def _sentences(case: Case) -> Iterator[str]:
    collected, verdict = case.collected, case.verdict
    job = collected.job
    subject = f"Job {job.number}" if job.number else collected.name
    where = f" on {number_of(len(job.nodes), 'node')} ({_few(job.nodes)})" if job.nodes else ""
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    state = f", {job.state}{code}" if job.state else ""
    ended = f", ended {utc_text(job.ran.ends - RESOLUTION_S)} UTC" if job.ran.ends else ""
    yield f"{subject}{where}{state}{ended}."
    chance = f", {verdict.standing}, probability {verdict.probability:.2f}" if verdict.probability else ""
    if verdict.standing == COMPLETED:
        yield f"{verdict.why[:1].upper()}{verdict.why[1:]}."
    else:
        yield f"Cause: {HEADINGS[verdict.cause].lower()}{chance}: {verdict.why.rstrip('.')}."
    leads = collected.leads[:MAX_LEADS]
    if verdict.rank is not None and (verdict.first or verdict.rank not in {lead.rank for lead in leads}):
        first = "First seen" if verdict.first and verdict.first.when.begins is not None else "Seen"
        yield f"{first} at {of_rank(collected, verdict.rank)}."
    yield from _of_leads(collected, leads)
    if len(collected.leads) > MAX_LEADS:
        yield f"And {number_of(len(collected.leads) - MAX_LEADS, 'more remark')} like this: --json has them."
    if leads and verdict.cause == UNKNOWN and verdict.standing != COMPLETED:
        yield "None of this names a cause."
    if case.advice.exclude:
        yield f"Leave {fold(case.advice.exclude)} out of the restart."
    if verdict.standing != COMPLETED:
        yield RESTARTS[case.advice.restart]
    if verdict.against:
        yield f"Also found, and not taken for the cause: {listed(verdict.against)}."


def _of_leads(collected: Collected, leads: Sequence[Lead]) -> Iterator[str]:
    """A sentence for each kind of remark about ranks."""
    ranks_by_message: dict[tuple[str, str], list[str]] = {}
    for lead in leads:
        ranks_by_message.setdefault((lead.words, lead.line), []).append(of_rank(collected, lead.rank))
    for (message, line), ranks in ranks_by_message.items():
        last = f"; its last call was {line}" if line else ""
        yield f"{listed(dict.fromkeys(ranks)).capitalize()} {message}{last}."


def _few(nodes: Sequence[str]) -> str:
    return shorten(fold(nodes), 60, placeholder=" …")


def rows(case: Case) -> list[Row]:
    """All events by time; those without one last, in the order of their files."""
    collected, first = case.collected, case.verdict.first
    of = shown(collected)
    rows_of_events = [_of_event(event, FIRST if event is first else _mark(event)) for event in collected.events]
    rows_of_events += [_of_event(event, OUTLIVED) for event in collected.outlived]
    rows_of_events += [_of_fact(fact, fact is first) for fact in collected.facts if is_shown(fact, of)]
    return sorted(rows_of_events, key=lambda row: (row.when.shown is None, row.when.shown or 0.0))


def _mark(event: Event) -> str:
    return ECHO if event.is_cascade else ""


def _of_event(event: Event, mark: str) -> Row:
    location = " ".join(filter(None, (event.node, f"rank {event.rank}" if event.rank is not None else "")))
    more = f" (and {number_of(event.count - 1, 'more line')})" if event.count > 1 else ""
    return Row(mark, event.when, location or "job", f"{event.words}{more}", event.source)


def _of_fact(fact: Fact, is_first: bool) -> Row:
    mark = FIRST if is_first else OF_RUN if fact.is_of_run else NODES
    return Row(mark, fact.when, fact.node, fact.words, fact.source)


def text(case: Case) -> str:
    """The report for a terminal of 80 columns."""
    return "\n".join(_lines(case)) + "\n"


def _lines(case: Case) -> Iterator[str]:
    yield fill(paragraph(case), WIDTH)
    yield ""
    every = rows(case)
    if every:
        yield fill(f"Order of events (UTC): {', '.join(_legend(every))}", WIDTH)
        yield from _timeline(_shown(every))
        yield from (fill(sentence, WIDTH) for sentence in _of_clocks(case.collected))
        yield fill(
            f"Clocks of nodes may be {apart_s(case.collected):.3g} s apart. "
            "… before a time: then at the latest; behind it: at the earliest.",
            WIDTH,
        )
        yield ""
    yield "Nodes"
    for what in (DRAIN, TEST, KEEP, NOT_KNOWN):
        nodes = [node for node, due in case.advice.nodes.items() if due == what]
        if nodes:
            yield fill(f"  {what:<11}{fold(nodes)}", WIDTH, subsequent_indent=" " * 13, break_on_hyphens=False)
    if not case.advice.nodes:
        yield "  none is known"
    if case.advice.commands:
        yield f"\n{TO_COPY}"
        yield from (f"  {command}" for command in case.advice.commands)
    yield f"\nRead: {', '.join(case.collected.read) or 'nothing'}"
    if case.collected.missing:
        yield NOT_READ
        yield from (fill(f"- {message}", WIDTH, subsequent_indent="  ") for message in case.collected.missing)


def _of_clocks(collected: Collected) -> Iterator[str]:
    """Whose clock was wrong, so that its times are corrected, and how accurately."""
    for node, off in collected.clocks.items():
        if off.seconds:
            direction = "ahead" if off.seconds > 0 else "behind"
            yield (
                f"The clock of {node} is {abs(off.seconds):.3g} s {direction}, ± {off.apart_s:.2g} s, {off.how}: "
                "its times are corrected."
            )


def _legend(every: Sequence[Row]) -> Iterator[str]:
    """The meaning of the marks, rare ones only if used."""
    marks = {row.mark for row in every}
    for mark, means in MARKS.items():
        if mark in marks or mark in (FIRST, ECHO, NODES):
            yield f"{mark} {means}"


def _shown(every: Sequence[Row]) -> list[Row]:
    """The first rows, and the first event wherever it is."""
    head = list(every[:MAX_ROWS])
    first = [row for row in every[MAX_ROWS:] if row.mark == FIRST]
    left = len(every) - len(head) - len(first)
    more = [Row("", Span(), "", f"… and {left} more: --json has them", "")] if left else []
    return [*head, *first, *more]


def _timeline(shown: Sequence[Row]) -> Iterator[str]:
    """A line for each row, with the day if there are several, and the year."""
    days = {utc_text(row.when.shown)[:10] for row in shown} - {""}
    years = {day[:4] for day in days}
    begin, width = (_YEAR, 20) if len(years) > 1 else (_DAY, 15) if len(days) > 1 else (_HOUR, 9)
    yield from (_line(row, begin, width) for row in shown)


def _line(row: Row, begin: int, width: int) -> str:
    after = "…" if row.when.begins is not None and row.when.ends is None else ""
    when = f"{'…' if row.when.is_long else ''}{utc_text(row.when.shown)[begin:]}{after}"
    head = f"{row.mark or ' '} {when:<{width}} {row.where[:18]:<18} "
    return f"{head}{cut(row.words, WIDTH - len(head))}".rstrip()


def cut(text: str, most: int) -> str:
    """At most so many characters of a text, with a mark if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def markdown(case: Case) -> str:
    """The report in Markdown for a ticket; untrusted text is in code spans."""
    every = rows(case)
    lines = [plain(paragraph(case)), ""]
    if every:
        lines += [plain(f"Order of events: {', '.join(_legend(every))}"), ""]
        lines += ["| | time (UTC) | where | what | source |", "|---|---|---|---|---|"]
    for row in _shown(every):
        cells = (row.mark, utc_text(row.when.shown), plain(row.where), _code(row.words), _code(row.source))
        lines.append(f"| {' | '.join(cells)} |")
    commands, missing = case.advice.commands, case.collected.missing
    lines += ["", f"{TO_COPY}:", "", *(f"    {command}" for command in commands)] if commands else []
    lines += ["", f"{NOT_READ}:", "", *(f"- {plain(message)}" for message in missing)] if missing else []
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`" if text else ""


def as_record(case: Case) -> dict[str, Any]:
    """The report as plain JSON. Times are in seconds since 1970."""
    collected, verdict, advice = case.collected, case.verdict, case.advice
    return {
        "schema": SCHEMA,
        "case": collected.name,
        "job": as_json(collected.job),
        "cause": verdict.cause,
        "probability": round(verdict.probability, 3),
        "standing": verdict.standing,
        "why": verdict.why,
        "nodes": list(verdict.nodes),
        "suspects": list(verdict.suspects),
        "rank": verdict.rank,
        "against": list(verdict.against),
        "ticket": paragraph(case),
        "timeline": [as_json(row) for row in rows(case)],
        "leads": [as_json(lead) for lead in collected.leads],
        "actions": dict(advice.nodes),
        "clocks": {node: as_json(off) for node, off in collected.clocks.items()},
        "exclude": list(advice.exclude),
        "restart": advice.restart,
        "proof": advice.proof,
        "load": advice.load,
        "commands": list(advice.commands),
        "read": list(collected.read),
        "missing": list(collected.missing),
    }
