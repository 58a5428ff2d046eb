"""`pairs.csv`: every measurement between nodes, for a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING

from clusterproof.plugins.benchmarks.pairwise.rails import numbered
from clusterproof.plugins.core.message import printable
from clusterproof.reports.formats import Format
from clusterproof.reports.run import Run

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
    from clusterproof.plugins.evidence.pairs import Reading

HEAD = (
    "pair",
    "a",
    "b",
    "round",
    "at_once",
    "busbw_gb_per_s",
    "share_of_normal",
    "algbw_gb_per_s",
    "time_us",
    "size_bytes",
    "correct",
    "network",
    "problem",
    "seconds",
    "nodes",
)
MAX_TEXT = 1_000  # characters of a node's message
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def measurements_csv(run: Run) -> str | None:
    """The table, in the order of measuring, groups last; None if nothing was measured. Rounds are counted from 1."""
    rows = [row for campaign in (run.between.campaigns if run.between else ()) for row in _rows(campaign)]
    if not rows:
        return None
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(rows)
    return text.getvalue()


def _rows(campaign: Campaign) -> Iterator[tuple[object, ...]]:
    for measurement in numbered(campaign.journal.measurements):
        pair, busbw = measurement.pair, measurement.reading.busbw_gb_per_s
        normal = campaign.normal_gb_per_s(pair) if busbw else None
        share = f"{busbw / normal:.4f}" if busbw and normal else ""
        identity = _cell(pair.a), _cell(pair.b), measurement.round + 1
        yield _row(str(pair), identity, measurement.at_once, share, measurement.reading, 2)
    for group in campaign.journal.groups:
        yield _row(str(group.group), ("", "", ""), group.at_once, "", group.reading, len(group.group.nodes))


def _row(
    name: str, identity: tuple[object, ...], at_once: int, share: str, reading: Reading, nodes: int
) -> tuple[object, ...]:
    return (
        _cell(name),
        *identity,
        at_once,
        _number(reading.busbw_gb_per_s),
        share,
        _number(reading.algbw_gb_per_s),
        _number(reading.time_us),
        reading.size_bytes or "",
        "" if reading.is_correct is None else "yes" if reading.is_correct else "no",
        _cell(reading.network),
        _cell(reading.problem or "; ".join(_failed(reading))),
        _number(reading.seconds or None),
        nodes,
    )


def _failed(reading: Reading) -> Iterator[str]:
    """The failed exchanges, by rail."""
    for exchange in reading.exchanges:
        if exchange.problem:
            yield f"rail {exchange.rail}: {exchange.problem}"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


def _cell(text: str) -> str:
    """Text on one line that no spreadsheet evaluates: formulas get a leading apostrophe."""
    line = " ".join(printable(text, MAX_TEXT).split())
    return f"'{line}" if line.startswith(_FORMULA) else line


FORMAT = Format("pairs.csv", measurements_csv)
