"""The matrix of nodes × checks, and the nodes' places, in the terminal and on the page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.aws.placement import JobGroup
from clusterproof.reports.matrix import CELL, COLOURS, MAX_WITH_LETTERS, WIDEST, legend, matrix
from clusterproof.reports.topology import MAX_LINES, MAX_ROWS, Topology, lines, section
from tests.reports.reported import of_each_verdict

Grid = dict[tuple[str, str], Verdict]
MANY = [f"gpu{number:04d}" for number in range(MAX_WITH_LETTERS + 20)]
CHECKS = ["gpu.ecc", "gpu.link", "host.word"]
GRIDS = st.dictionaries(st.tuples(st.sampled_from(CHECKS), st.sampled_from(MANY)), st.sampled_from(Verdict))


def drawn(grid: Grid, nodes: list[str]) -> ET.Element:
    """The drawing, parsed as strictly as XML."""
    results = [Result(check, node, verdict, message="<b>&amp; bad") for (check, node), verdict in grid.items()]
    return ET.fromstring(matrix(results, nodes))


def covered(svg: ET.Element, verdict: Verdict, checks: list[str]) -> set[tuple[str, str]]:
    """The cells that one colour's path covers."""
    width = WIDEST / len(MANY)
    cells = set()
    for path in svg.iter("path"):
        if path.attrib["fill"] == COLOURS[verdict]:
            for x, y, across in re.findall(r"M([\d.e-]+) ([\d.]+)h([\d.]+)", path.attrib["d"]):
                first, count, row = round(float(x) / width), round(float(across) / width), int(float(y) // CELL)
                cells |= {(checks[row], MANY[first + step]) for step in range(count)}
    return cells


@given(GRIDS.filter(bool))
def test_on_many_nodes_each_colour_covers_its_cells_and_no_others(grid: Grid) -> None:
    svg = drawn(grid, MANY)
    checks = list(dict.fromkeys(check for check, _ in grid))
    for verdict in (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN, Verdict.NOT_APPLICABLE):
        assert covered(svg, verdict, checks) == {cell for cell, cell_verdict in grid.items() if cell_verdict is verdict}
    assert covered(svg, Verdict.PASS, checks) == set(grid)  # the background: what did not run stays white


@given(GRIDS.filter(bool))
def test_on_few_nodes_each_cell_that_is_not_a_pass_has_its_letter_and_its_words(grid: Grid) -> None:
    nodes = MANY[:MAX_WITH_LETTERS]
    grid = {cell: verdict for cell, verdict in grid.items() if cell[1] in nodes}
    if not grid:
        return
    cells = {
        (group.findtext("title") or "").partition(". ")[0]: group.findtext("text")
        for group in drawn(grid, nodes).iter("g")
        if group.find("title") is not None
    }
    assert cells == {
        f"{node} · {check}: {verdict.value}": verdict.letter
        for (check, node), verdict in grid.items()
        if verdict is not Verdict.PASS
    }


def test_the_worse_of_two_results_in_one_cell_is_drawn() -> None:
    results = [Result("gpu.ecc", "n1", verdict) for verdict in (Verdict.CONCERN, Verdict.FAIL, Verdict.PASS)]
    assert "n1 · gpu.ecc: fail." in matrix(results, ["n1"])
    assert "concern" not in matrix(results, ["n1"])


def test_names_are_escaped_and_long_ones_keep_their_end() -> None:
    name = "<b>&\"'" + "x" * 100 + "-007"
    svg = drawn({("gpu.ecc", name): Verdict.FAIL}, [name])
    labels = [text.text or "" for text in svg.iter("text") if text.attrib.get("class") == "node"]
    assert labels == ["…" + name[-27:]]


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "most"), [(128, 800_000), (1000, 700_000), (10_000, 6_500_000)])
def test_the_worst_case_stays_small(nodes: int, most: int) -> None:
    names = [f"gpu{number:05d}" for number in range(nodes)]
    verdicts = list(Verdict)
    results = [
        Result(f"gpu.check{check:02d}", name, verdicts[(check + number) % 5], message="bad" * 100)
        for check in range(30)
        for number, name in enumerate(names)
    ]
    assert len(matrix(results, names)) < most


@pytest.mark.long
def test_a_healthy_cluster_is_a_few_kilobytes() -> None:
    names = [f"gpu{number:04d}" for number in range(1000)]
    results = [Result(f"gpu.check{check}", name, Verdict.PASS) for check in range(30) for name in names]
    assert len(matrix(results, names)) < 8_000


def test_a_check_of_the_whole_cluster_has_no_row_as_it_has_no_cell() -> None:
    shown = matrix(of_each_verdict(), [f"gpu{number:03d}" for number in range(1, 9)])
    assert 'aria-label="2 checks on 8 nodes"' in shown
    assert "control_plane.quota" not in shown


def test_a_cluster_without_results_has_no_matrix() -> None:
    assert matrix([], ["n1"]) == ""


def test_verdicts_can_be_distinguished_without_colours() -> None:
    def brightness(colour: str) -> float:
        red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    marked = [COLOURS[verdict] for verdict in Verdict if verdict is not Verdict.NOT_APPLICABLE]
    for one, other in combinations(marked, 2):
        assert abs(brightness(one) - brightness(other)) > 0.03
    assert len({verdict.letter for verdict in Verdict}) == len(Verdict)
    assert all(verdict.value in legend() for verdict in Verdict)


def cluster(groups: int, nodes: int, spread: bool = True) -> Topology:
    """Groups of nodes, each node in its own zone, or all in one."""
    made = [JobGroup(f"g{group}", tuple(f"g{group}n{node}" for node in range(nodes))) for group in range(groups)]
    zones: dict[str, str | None] = {
        name: f"zone-{number if spread else 0}" for group in made for number, name in enumerate(group.nodes)
    }
    return Topology(tuple(made), zones, {}, {})


def test_nodes_in_one_place_are_no_line() -> None:
    assert list(lines(cluster(3, 4, spread=False))) == []


def test_a_line_names_the_most_crowded_places() -> None:
    assert list(lines(cluster(1, 5))) == [
        "topology    g0 in 5 availability zones: 1 in zone-0, 1 in zone-1, 1 in zone-2, 2 more"
    ]


def test_a_place_that_a_node_names_steers_no_terminal() -> None:
    layers = {"a": ("nn-1\x1b[2J\nFIT",), "b": ("nn-2",)}
    (line,) = lines(Topology((JobGroup("workers", ("a", "b")),), {}, layers, {}))
    assert line == r"topology    workers in 2 network nodes: 1 in nn-1\x1b[2J FIT, 1 in nn-2"


def test_many_spread_groups_are_a_few_lines() -> None:
    rows = list(lines(cluster(9, 2)))
    assert len(rows) == MAX_LINES + 1
    assert rows[-1] == "topology    … and 5 more; --html has all"


def test_the_page_has_a_row_for_each_place_up_to_a_bound() -> None:
    assert section(cluster(1, 3, spread=False)).count("<tr>") == 2
    large = section(cluster(1, MAX_ROWS + 7))
    assert large.count("<tr>") == MAX_ROWS + 1
    assert "<p>… and 7 more places</p>" in large


def test_layers_have_a_column_each_and_names_are_escaped() -> None:
    where = Topology((JobGroup("<g>", ("a", "b")),), {}, {"a": ("x", "y"), "b": ("x",)}, {"a": "u&1"})
    html = section(where)
    assert "<th>layer 1</th><th>layer 2</th>" in html
    assert "<td>&lt;g&gt;</td><td>–</td><td>x</td><td>y</td><td>u&amp;1</td><td>1</td><td>a</td>" in html
    assert "<td>x</td><td>–</td><td>–</td><td>1</td><td>b</td>" in html
