"""Where nodes stand, in the terminal and on the page."""

from __future__ import annotations

from clusterproof.plugins.evidence.aws.placement import JobGroup
from clusterproof.reports.topology import MAX_LINES, MAX_ROWS, Topology, lines, section


def cluster(groups: int, nodes: int, spread: bool = True) -> Topology:
    """So many groups of so many nodes, each node in a zone of its own, or all in one."""
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


def test_many_spread_groups_are_a_few_lines() -> None:
    data = list(lines(cluster(9, 2)))
    assert len(data) == MAX_LINES + 1
    assert data[-1] == "topology    … and 5 more; --html has all"


def test_the_page_has_a_row_for_each_place_up_to_a_bound() -> None:
    assert section(cluster(1, 3, spread=False)).count("<tr>") == 2
    large = section(cluster(1, MAX_ROWS + 7))
    assert large.count("<tr>") == MAX_ROWS + 1
    assert "<p>… and 7 more places</p>" in large


def test_layers_have_a_column_each_and_names_are_escaped() -> None:
    where = Topology((JobGroup("<g>", ("a", "b")),), {}, {"a": ("x", "y"), "b": ("x",)}, {"a": "u&1"})
    data = section(where)
    assert "<th>layer 1</th><th>layer 2</th>" in data
    assert "<td>&lt;g&gt;</td><td>–</td><td>x</td><td>y</td><td>u&amp;1</td><td>1</td><td>a</td>" in data
    assert "<td>x</td><td>–</td><td>–</td><td>1</td><td>b</td>" in data
