"""The slow pairs of nodes as one SVG: nodes on a circle, rack beside rack, and a line for each pair that is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import cos, pi, sin

from clusterproof.reports.document.heat import MAX_TITLE, label_of, step
from clusterproof.reports.document.places import Block
from clusterproof.reports.document.section import of_nodes

MAX_NODES = 512  # on one circle
MAX_NAMED = 48  # nodes that have their names beside them
MAX_LINES = 300  # the slowest
RADIUS = 200  # px
BEYOND_NAMES, BEYOND_DOTS = 64, 14  # px from the nodes to the arcs of their places
OF_PLACES = 66  # px for the names of places
GAP = 0.6  # between two places, as so many nodes


@dataclass(frozen=True, slots=True)
class SlowPair:
    """Two nodes and the share of normal that was measured between them; None where all measurements failed."""

    nodes: tuple[str, str]
    share: float | None
    title: str


def drawn(groups: Sequence[Block], slow: Sequence[SlowPair], marked: Sequence[str]) -> str:
    """The circle; the slowest pairs lie on top. `marked` are the nodes that findings name."""
    angles = _angles(groups)
    size = 2 * (RADIUS + _to_arcs(angles) + OF_PLACES)
    worst = sorted(slow, key=lambda pair: pair.share if pair.share is not None else -1.0)[:MAX_LINES]
    more = f"; the {MAX_LINES} slowest of them are drawn" if len(slow) > MAX_LINES else ""
    words = f"{len(slow)} slow pairs of {len(angles)} nodes on a circle, place beside place{more}"
    lines = "".join(_line(pair, angles) for pair in reversed(worst))
    return (
        f'<figure class="chords"><figcaption>{escape(words)}</figcaption><div class="scroll">'
        f'<svg role="img" aria-label="{escape(words)}" viewBox="{-size // 2} {-size // 2} {size} {size}" '
        f'width="{size}" height="{size}"><g fill="none">{lines}</g>'
        f"{''.join(_places(groups, angles))}{''.join(_nodes(angles, set(marked)))}</svg></div></figure>"
    )


def _angles(groups: Sequence[Block]) -> dict[str, float]:
    """Where each node stands, clockwise from the top."""
    gap = GAP if len(groups) > 1 else 0.0
    total = sum(len(block.nodes) + gap for block in groups)
    angles: dict[str, float] = {}
    at = 0.0
    for block in groups:
        for node in block.nodes:
            angles[node] = 2 * pi * (at + 0.5) / total
            at += 1
        at += gap
    return angles


def _to_arcs(angles: Mapping[str, float]) -> int:
    return BEYOND_NAMES if len(angles) <= MAX_NAMED else BEYOND_DOTS


def _point(angle: float, radius: float) -> tuple[float, float]:
    return radius * sin(angle), -radius * cos(angle)


def _line(pair: SlowPair, angles: Mapping[str, float]) -> str:
    """A curve that bends towards the middle, so that neighbours' lines are told apart."""
    begin, end = (_point(angles[node], RADIUS - 5) for node in pair.nodes)
    bend = ((begin[0] + end[0]) / 6, (begin[1] + end[1]) / 6)
    path = f"M{begin[0]:.1f} {begin[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    title = escape(pair.title[:MAX_TITLE], quote=False)
    return f'<path class="{step(pair.share)}"{of_nodes(pair.nodes)} d="{path}"><title>{title}</title></path>'


def _nodes(angles: Mapping[str, float], marked: set[str]) -> Iterator[str]:
    for node, angle in angles.items():
        x, y = _point(angle, RADIUS)
        name = " marked" if node in marked else ""
        size = 5 if node in marked else 3.5
        title = escape(node[:MAX_TITLE], quote=False)
        yield f'<circle class="dot{name}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"><title>{title}</title></circle>'
        if len(angles) <= MAX_NAMED or node in marked:
            yield _label(node, angle, RADIUS + 9, f"at{name}")


def _places(groups: Sequence[Block], angles: Mapping[str, float]) -> Iterator[str]:
    """An arc for each place, with its name outside."""
    for block in groups:
        if not block.name:
            continue
        half = pi / len(angles) * 0.8
        first, last = angles[block.nodes[0]] - half, angles[block.nodes[-1]] + half
        radius = RADIUS + _to_arcs(angles)
        begin, end = _point(first, radius), _point(last, radius)
        path = (
            f"M{begin[0]:.1f} {begin[1]:.1f}A{radius} {radius} 0 {int(last - first > pi)} 1 {end[0]:.1f} {end[1]:.1f}"
        )
        yield f'<path class="arc" d="{path}"/>'
        yield _label(block.name, (first + last) / 2, radius + 8, "place")


def _label(name: str, angle: float, radius: float, kind: str) -> str:
    """A name that reads outwards on the right half and inwards on the left one."""
    x, y = _point(angle, radius)
    is_left = angle > pi
    turn = angle * 180 / pi - 90 + (180 if is_left else 0)
    anchor = ' text-anchor="end"' if is_left else ""
    shown = escape(label_of(name))
    where = f"translate({x:.1f} {y:.1f}) rotate({turn:.1f})"
    return f'<text class="{kind}" transform="{where}"{anchor} dy="4">{shown}</text>'
