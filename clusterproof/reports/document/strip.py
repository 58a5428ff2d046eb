"""A line for each node with a tick for each of its measurements, the worst first, as one SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor

from clusterproof.reports.document.heat import MARK, MAX_LABEL, MAX_TITLE, NORMAL, step
from clusterproof.reports.document.section import of_nodes

MAX_LINES = 40
WIDTH = 560  # of the axis
ROW = 18
LEFT, RIGHT, HEAD = 180, 250, 22
MAX_NOTE = 38  # characters
_LOW, _HIGH = 0.85, 1.1  # the axis spans at least this


@dataclass(frozen=True, slots=True)
class Measured:
    """A node, or several in one line: the shares of normal that it was measured with, and what is said of it."""

    name: str
    shares: tuple[float, ...]
    failures: int
    note: str = ""
    title: str = ""
    href: str = ""
    is_marked: bool = False


def drawn(lines: Sequence[Measured], slow: float) -> str:
    """The strip; `slow` is the share from which on a measurement is slow."""
    shares = [share for line in lines for share in line.shares]
    least = max(0.0, min(_LOW, floor(min(shares, default=1.0) * 20) / 20))
    most = min(2.0, max(_HIGH, ceil(max(shares, default=1.0) * 20) / 20))
    scale = _Scale(least, most)
    height = HEAD + ROW * len(lines) + 4
    band = f"M{scale.x(slow):g} {HEAD}H{scale.x(min(2 - slow, most)):g}V{height}H{scale.x(slow):g}z"
    words = f"measurements of {len(lines)} lines of nodes as shares of normal, the worst first"
    return (
        f'<div class="scroll"><svg class="strip" role="group" aria-label="{words}" '
        f'viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" width="{LEFT + WIDTH + RIGHT}" height="{height}">'
        f'<path class="band" d="{band}"/>{"".join(_axis(scale, height))}'
        f"{''.join(_line(line, number, scale) for number, line in enumerate(lines))}</svg></div>"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    least: float
    most: float

    def x(self, share: float) -> float:
        """Where a share stands; what is off the axis stands at its end."""
        inside = min(max(share, self.least), self.most)
        return round(2 * (LEFT + WIDTH * (inside - self.least) / (self.most - self.least))) / 2


def _axis(scale: _Scale, height: int) -> Iterator[str]:
    apart = 0.05 if scale.most - scale.least <= 0.5 else 0.1 if scale.most - scale.least <= 1.0 else 0.25
    for number in range(ceil(scale.least / apart - 1e-9), floor(scale.most / apart + 1e-9) + 1):
        share = number * apart
        x = scale.x(share)
        name = "one" if abs(share - 1) < 1e-9 else "grid"
        yield f'<path class="{name}" d="M{x:g} {HEAD}V{height}"/>'
        yield f'<text class="at" x="{x:g}" y="{HEAD - 7}">{share * 100:.0f} %</text>'


def _line(line: Measured, number: int, scale: _Scale) -> str:
    top = HEAD + number * ROW
    base = top + 13
    marked = " marked" if line.is_marked else ""
    name = escape(line.name if len(line.name) <= MAX_LABEL else f"…{line.name[1 - MAX_LABEL :]}")
    label = f'<text class="row{marked}" x="{LEFT - 12}" y="{base}">{MARK if line.is_marked else ""}{name}</text>'
    if line.href:
        label = f'<a href="{escape(line.href)}">{label}</a>'
    note = escape(line.note if len(line.note) <= MAX_NOTE else f"{line.note[:MAX_NOTE]}…")
    failed = f'<tspan class="failures">{line.failures} × failed</tspan> ' if line.failures else ""
    data = f'<text class="note" x="{LEFT + WIDTH + 12}" y="{base}">{failed}{note}</text>' if failed or note else ""
    title = f"<title>{escape(line.title[:MAX_TITLE], quote=False)}</title>" if line.title else ""
    hit = f'<path class="hit" d="M{LEFT} {top}h{WIDTH}v{ROW}h-{WIDTH}z">{title}</path>'
    about = of_nodes([line.name]) if line.href else ""
    return f"<g{about}>{label}{data}{''.join(_ticks(line.shares, top, scale))}{hit}</g>"


def _ticks(shares: Sequence[float], top: int, scale: _Scale) -> Iterator[str]:
    """What is slow is drawn higher."""
    by_step: dict[str, set[float]] = {}
    for share in shares:
        by_step.setdefault(step(share), set()).add(scale.x(share))
    for name in sorted(by_step, key=lambda name: name != NORMAL):
        gap, high = (5, ROW - 10) if name == NORMAL else (2, ROW - 4)
        path = "".join(f"M{x:g} {top + gap}v{high}" for x in sorted(by_step[name]))
        yield f'<path class="tick {name}" d="{path}"/>'
