"""Ranks side by side: a cell for each, as many as there are, the slow ones in colour, and the slowest in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from clusterproof.reports.document.section import table

MAX_CELLS = 1_024  # of more ranks several that follow each other share one, the slowest speaks for them
MAX_ROWS, LEAST_ROWS = 8, 3
STEPS = ((1.03, "level-0"), (1.05, "level-1"), (1.10, "level-2"), (1.25, "level-3"))
WORST = "level-4"
FAST, WORD_FAST = 0.95, "fast"


@dataclass(frozen=True, slots=True)
class RankCell:
    """A rank: how many times as long as its peers it takes, and where it runs, as far as that is known."""

    rank: int
    stage: int
    ratio: float
    where: str = ""


def strip_of_ranks(cells: Sequence[RankCell], verb: str, peers: str, seated: str = "") -> str:
    """The cells, stage by stage, and a table of the slowest; `seated` is whence it is known where they run."""
    slowest = sorted(cells, key=lambda cell: -cell.ratio)
    worst = slowest[0]
    label = f"{len(cells):,} ranks; the slowest, rank {worst.rank}, {verb} {worst.ratio:.2f} times as long as {peers}"
    stages = [list(group) for _, group in groupby(cells, key=lambda cell: cell.stage)]
    each = -(-len(cells) // MAX_CELLS)
    rows = "".join(_stage(stage, each, is_one=len(stages) == 1) for stage in stages)
    rows_of = [
        cell for number, cell in enumerate(slowest[:MAX_ROWS]) if number < LEAST_ROWS or cell.ratio >= STEPS[0][0]
    ]
    has_where = any(cell.where for cell in rows_of)
    head = ("the slowest", "stage", "times as long", *(("where",) if has_where else ()))
    shown = [
        (f"rank {cell.rank}", str(cell.stage), f"{cell.ratio:.2f}", *((cell.where,) if has_where else ()))
        for cell in rows_of
    ]
    several = f", {each} of them to a cell" if each > 1 else ""
    seats = f" Nodes and GPUs {seated}." if seated else ""
    return (
        f"<h3>Ranks side by side</h3>"
        f"<p>How many times as long as {escape(peers)} each rank {escape(verb)}{several}.{escape(seats)}</p>"
        f'{_legend()}<div class="ranks" role="img" aria-label="{escape(label)}">{rows}</div>'
        f"{table(head, shown)}"
    )


def _stage(cells: Sequence[RankCell], each: int, *, is_one: bool) -> str:
    name = "" if is_one else f"<span>stage {cells[0].stage}</span>"
    return f'<div class="stage">{name}<div>{"".join(_cells(cells, each))}</div></div>'


def _cells(cells: Sequence[RankCell], each: int) -> Iterator[str]:
    for at in range(0, len(cells), each):
        worst = max(cells[at : at + each], key=lambda cell: cell.ratio)
        where = f" on {worst.where}" if worst.where else ""
        yield f'<i class="{_level(worst.ratio)}" title="rank {worst.rank}{escape(where)}: {worst.ratio:.2f}"></i>'


def _level(ratio: float) -> str:
    if ratio < FAST:
        return WORD_FAST
    return next((name for most, name in STEPS if ratio < most), WORST)


def _legend() -> str:
    words = [(WORD_FAST, f"less than {FAST:g}")]
    least = FAST
    for most, name in STEPS:
        words.append((name, f"{least:g} to {most:g}"))
        least = most
    words.append((WORST, f"{least:g} and more"))
    shown = "".join(f'<span><i class="{name}"></i> {text}</span>' for name, text in words)
    return f'<p class="ranks-legend">{shown}</p>'
