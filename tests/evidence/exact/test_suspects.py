"""Who is at fault for wrong elements: a GPU, a link, a NIC, the network, or nobody."""

from __future__ import annotations

from random import Random

import pytest

from clusterproof.plugins.evidence.exact.suspects import Ranks, Suspect, WrongElements, seen, suspects

ONE_NODE = Ranks(["gpu001"] * 8)
TWO_NODES = Ranks(["gpu001"] * 8 + ["gpu002"] * 8)
NETWORK = Suspect("network", (), ("gpu001", "gpu002"))
EVERYONE = range(8)
Cell = tuple[str, str, "int | None", int]


def to_all(sender: int, *rounds: int) -> list[Cell]:
    """A block that is wrong wherever it is sent."""
    return [("all_to_all", str(number), sender, other) for number in rounds for other in EVERYONE if other != sender]


def of_all(receiver: int) -> list[Cell]:
    """Blocks that are wrong on one rank, whoever sends them."""
    return [("all_to_all", "0", other, receiver) for other in EVERYONE if other != receiver]


def between(sender: int, receiver: int, *rounds: int) -> list[Cell]:
    """One block, in these rounds."""
    return [("all_to_all", str(number), sender, receiver) for number in rounds]


@pytest.mark.parametrize(
    ("cells", "ranks", "suspect"),
    [
        (to_all(5, 0), ONE_NODE, Suspect("GPU", (5,))),
        (of_all(3), ONE_NODE, Suspect("GPU", (3,))),
        (between(5, 2, 0) + between(5, 3, 1), ONE_NODE, Suspect("GPU", (5,))),
        (between(5, 2, 0) + between(6, 5, 1), ONE_NODE, Suspect("GPU", (5,))),
        (between(1, 6, 0, 4, 9), ONE_NODE, Suspect("link", (1, 6))),
        (between(1, 6, 0, 4) + between(6, 1, 5), ONE_NODE, Suspect("link", (1, 6))),
        ([("all_reduce", "0", 2, rank) for rank in EVERYONE], ONE_NODE, Suspect("GPU", (2,))),
        ([("all_gather", "0", 2, rank) for rank in EVERYONE], ONE_NODE, Suspect("GPU", (2,))),
        (between(0, 9, 0) + between(3, 12, 1) + between(10, 6, 2), TWO_NODES, NETWORK),
        (
            [cell for number, other in enumerate((9, 11, 14, 8, 15, 10, 12, 13)) for cell in between(3, other, number)],
            TWO_NODES,
            Suspect("NIC", (3,)),
        ),
        (between(3, 9, 0) + between(3, 1, 1) + between(6, 3, 2), TWO_NODES, Suspect("GPU", (3,))),
    ],
)  # fmt: skip
def test_the_one_that_explains_everything_best_is_named(cells: list[Cell], ranks: Ranks, suspect: Suspect) -> None:
    assert suspects(seen(cells), ranks) == (suspect,)


def test_one_block_that_was_wrong_once_leaves_its_two_gpus_and_their_link() -> None:
    accused = suspects(seen(between(1, 6, 0)), ONE_NODE)
    assert set(accused) == {Suspect("link", (1, 6)), Suspect("GPU", (1,)), Suspect("GPU", (6,))}


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [("all_reduce", "0", None, rank) for rank in EVERYONE],  # wrong before it was sent to anybody
        [("all_reduce", "0", None, rank) for rank in (1, 2, 5)],
        between(0, 1, 0) + between(2, 3, 1) + between(4, 5, 2),  # no single suspect explains these
    ],
)
def test_what_points_to_no_one_names_nobody(cells: list[Cell]) -> None:
    assert suspects(seen(cells), ONE_NODE) == ()


def test_a_sum_that_is_wrong_on_all_alike_hides_nobody_whom_something_else_names() -> None:
    everywhere: list[Cell] = [("all_reduce", "0", None, rank) for rank in EVERYONE]
    assert suspects(seen(everywhere + to_all(5, 1)), ONE_NODE) == (Suspect("GPU", (5,)),)


def test_a_sum_that_is_scattered_wrong_to_one_rank_may_be_anybodys_until_it_comes_again() -> None:
    once: list[Cell] = [("reduce_scatter", "0", None, 3)]
    assert len(suspects(seen(once), ONE_NODE)) > 1
    again: list[Cell] = [("reduce_scatter", str(number), None, 3) for number in range(6)]
    assert suspects(seen(again), ONE_NODE) == (Suspect("GPU", (3,)),)


FIRST, SECOND = range(8), range(8, 16)  # the ranks of two nodes


def added(operation: str, *receivers: int, rounds: int = 1, sender: int | None = None) -> list[Cell]:
    """Sums that are wrong on these ranks, in this many rounds."""
    return [(operation, f"{receivers} {number}", sender, rank) for number in range(rounds) for rank in receivers]


@pytest.mark.parametrize(
    "cells",
    [
        added("all_reduce", *SECOND, rounds=20) + added("all_reduce", 8, rounds=2),
        added("all_reduce", 8, rounds=6),
        added("reduce_scatter", 8, rounds=6),
        added("all_reduce", 8, rounds=3, sender=0),
        added("all_reduce", *FIRST, *SECOND, rounds=3),
    ],
)
def test_sums_alone_name_nobody_between_nodes(cells: list[Cell]) -> None:
    assert suspects(seen(cells), TWO_NODES) == ()


def test_sums_that_are_wrong_on_all_of_one_node_point_between_the_nodes_not_to_one_gpu_of_it() -> None:
    sums = added("all_reduce", *SECOND, rounds=20) + added("all_reduce", 8, rounds=2)
    accused = suspects(seen(sums + between(3, 12, 0)), TWO_NODES)
    assert accused
    assert not any(suspect.kind == "GPU" for suspect in accused)
    assert {name for suspect in accused for name in named(suspect)} == {"gpu001", "gpu002"}


def named(suspect: Suspect) -> list[str]:
    """The nodes of a suspect."""
    return [*suspect.nodes, *(TWO_NODES.node_of[rank] for rank in suspect.ranks)]


def test_a_sum_that_one_rank_has_wrong_once_may_have_been_changed_by_any() -> None:
    assert len(suspects(seen(added("all_reduce", 3)), ONE_NODE)) > 5
    assert suspects(seen(added("all_reduce", 3, rounds=6)), ONE_NODE) == (Suspect("GPU", (3,)),)


def test_many_wrong_sums_do_not_crowd_out_the_copies_that_name_a_gpu() -> None:
    assert suspects(seen(added("all_reduce", *range(4), rounds=200) + to_all(5, 0)), ONE_NODE) == (
        Suspect("GPU", (5,)),
    )


def test_one_rank_alone_exchanges_nothing_that_could_be_wrong() -> None:
    assert suspects([WrongElements("all_to_all", 0, frozenset({0}))], Ranks(["gpu001"])) == ()


@pytest.mark.long
def test_a_flood_of_wrong_elements_is_weighed_without_end() -> None:
    cells = [("all_to_all", str(number), 63, number % 63) for number in range(100_000)]
    ranks = Ranks([f"gpu{rank // 32}" for rank in range(64)])
    assert suspects(seen(cells), ranks) == (Suspect("GPU", (63,)),)


@pytest.mark.parametrize("kind", ["GPU", "link"])
def test_of_faults_at_random_the_right_one_is_named_or_none_for_sure(kind: str) -> None:
    random = Random(kind)
    for _ in range(200):
        gpu, other = random.sample(EVERYONE, 2)
        pairs = {
            "GPU": [random.choice([(gpu, rank), (rank, gpu)]) for rank in random.choices([*{*EVERYONE} - {gpu}], k=4)],
            "link": [random.choice([(gpu, other), (other, gpu)]) for _ in range(4)],
        }[kind]
        accused = suspects(
            seen([cell for number, pair in enumerate(pairs) for cell in between(*pair, number)]), ONE_NODE
        )
        right = Suspect(kind, (gpu,) if kind == "GPU" else (min(gpu, other), max(gpu, other)))
        assert right in accused or len(set(pairs)) < 3, (pairs, accused)
