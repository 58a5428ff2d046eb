"""Which pairs of the mesh exchange again after the first rounds. Pure functions.

Paths that failed once; nodes that look dead, with each other, because they may be on a separate fabric; and nodes with
too few partners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.benchmarks.pairwise import Round, by_node, partners_of
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, MeshLimits, mesh_of
from clusterproof.plugins.evidence.exchanges import MeshFinding, MeshKind
from clusterproof.plugins.evidence.pairs import Measurement, Pair, pair

MIN_PARTNERS = 3  # of each node, if there are as many
MIN_LIKE_IT = 2  # partners that look dead too, or are cut off, before a node counts as dead
_LOOK_DEAD = (MeshKind.NODE, MeshKind.DEVICE, MeshKind.SWITCH)


def retest_round(
    measurements: Sequence[Measurement], nodes: Sequence[str], places: Mapping[str, str], limits: MeshLimits
) -> Round:
    """A further round that uses each node at most once; empty if nothing remains to be distinguished."""
    mesh = mesh_of(measurements, places, limits)
    findings = mesh.findings
    partners = {node: partners_of(node, of_node) for node, of_node in by_node(measurements).items()}
    round_of: list[Pair] = []
    busy: set[str] = set()
    for both in (*_paths(findings), *_dead_pairs(mesh, partners), *_new(findings, partners, nodes)):
        if not busy & set(both):
            round_of.append(both)
            busy.update(both)
    return tuple(round_of)


def _paths(findings: Sequence[MeshFinding]) -> Iterator[Pair]:
    """Pairs that failed once, though both their nodes reach others."""
    yield from dict.fromkeys(pair(*link) for finding in findings for link in finding.links)


def _dead_pairs(mesh: Mesh, tried: Mapping[str, set[str]]) -> Iterator[Pair]:
    """Pair nodes that look dead with each other, else with those that are cut off from most."""
    dead = sorted({node for finding in mesh.findings if finding.kind in _LOOK_DEAD for node in finding.nodes})
    cut_off = sorted({node for rail in mesh.rails for part in rail.parts()[1:] for node in part} - set(dead))
    for node in dead:
        like_it = [other for other in (*dead, *cut_off) if other != node]
        if len(tried[node].intersection(like_it)) < MIN_LIKE_IT:
            yield from (pair(node, other) for other in like_it if other not in tried[node])


def _new(findings: Sequence[MeshFinding], tried: Mapping[str, set[str]], nodes: Sequence[str]) -> Iterator[Pair]:
    """New partners for nodes with too few results: preferably ones without findings."""
    blamed = {
        node for finding in findings if finding.kind in (MeshKind.NODE, MeshKind.DEVICE) for node in finding.nodes
    }
    undecided = {node for finding in findings if finding.kind is MeshKind.OPEN for node in finding.nodes}
    wanted = [node for node in nodes if node in undecided or len(tried.get(node, ())) < MIN_PARTNERS]
    partners = sorted(nodes, key=lambda node: (node in blamed or node in undecided, len(tried.get(node, ())), node))
    for node in wanted:
        yield from (pair(node, other) for other in partners if other != node and other not in tried.get(node, ()))
