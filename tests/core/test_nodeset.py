"""Nodesets: syntax, expansion, and folding without loss."""

from __future__ import annotations

import ClusterShell.NodeSet
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusterproof.plugins.core.nodeset import MAX_NAMES, NodesetError, expand, fold, within
from tests.builders.examples import examples

pytestmark = pytest.mark.any_user

NAMES = st.from_regex(r"[A-Za-z_]{0,3}[0-9]{0,4}([.-]?[a-z]{0,2}[0-9]{1,3}){0,2}", fullmatch=True).filter(
    lambda name: name[:1].isalnum() or name[:1] == "_"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ("gpu1",)),
        ("gpu[001-003]", ("gpu001", "gpu002", "gpu003")),
        ("gpu[001-002,020]", ("gpu001", "gpu002", "gpu020")),
        ("gpu[1-7/3]", ("gpu1", "gpu4", "gpu7")),
        ("b2,a10,a9,a9", ("a9", "a10", "b2")),
        ("r[1-2]n[1-2].east", ("r1n1.east", "r1n2.east", "r2n1.east", "r2n2.east")),
        ("10.0.0.[9-11]", ("10.0.0.9", "10.0.0.10", "10.0.0.11")),
        ("ip-10-0-1-[5-6].ec2.internal", ("ip-10-0-1-5.ec2.internal", "ip-10-0-1-6.ec2.internal")),
        ("login_a.example.com", ("login_a.example.com",)),
        ("[7-8]", ("7", "8")),
        ("gpu[2-9],gpu10,gpu02,a1b2,a", ("a", "a1b2", *(f"gpu{n}" for n in range(2, 10)), "gpu02", "gpu10")),
        ("x[1-2]y[1-3],x1y2,x10y1", ("x1y1", "x1y2", "x1y3", "x2y1", "x2y2", "x2y3", "x10y1")),
        ("gpu[1-2]5,gpu9", ("gpu9", "gpu15", "gpu25")),
    ],
)
def test_a_nodeset_stands_for_its_names_in_order(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


def test_names_of_many_numbers_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    unfolded = []

    class Counted(ClusterShell.NodeSet.NodeSet):  # type: ignore[misc] # it is untyped
        def __init__(self, nodes: str, **more: object) -> None:
            unfolded.append(nodes)
            super().__init__(nodes, **more)

    monkeypatch.setattr(ClusterShell.NodeSet, "NodeSet", Counted)
    names = [f"ip-10-{n % 4}-{n * 37 % 251}-{n * 101 % 253}" for n in range(1000)]
    assert set(expand(",".join([*names, "gpu[1-2,4]"]))) == {*names, "gpu1", "gpu2", "gpu4"}
    assert unfolded == ["gpu[1-2,4]"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "an empty nodeset"),
        (" ", "has ' ' in it"),
        ("a b", "has ' ' in it"),
        ("gpu[1 -3]", "has ' ' in it"),
        ("a\n", "has '\\n' in it"),
        ("@racks", "has '@' in it"),
        ("x!y", "has '!' in it"),
        ("a&b", "has '&' in it"),
        ("a^b", "has '^' in it"),
        ("node{1}", "has '{' in it"),
        ("node*", "has '*' in it"),
        ("gpu\u0663", "has '\u0663' in it"),
        ("a,,b", "a comma with no name beside it"),
        ("a,", "a comma with no name beside it"),
        (",a", "a comma with no name beside it"),
        ("gpu[1", "a bracket without its partner"),
        ("gpu1]", "a bracket without its partner"),
        ("gpu[[1]]", "a bracket without its partner"),
        ("gpu[]", "has the range ''"),
        ("gpu[a-b]", "has the range 'a-b'"),
        ("gpu[1-2-3]", "has the range '1-2-3'"),
        ("gpu[1_0-12]", "has the range '1_0-12'"),
        ("gpu[3-1]", "is empty"),
        ("gpu[1-3/0]", "is empty"),
        ("gpu[08-100]", "08 and 100 differ in width"),
        ("gpu[1-2][3-4]", "is not a nodeset"),
        ("-gpu1", "is not a name"),
        ("..", "is not a name"),
        ("a/b", "is not a name"),
        ("x" * 300, "is not a name"),
    ],
)
def test_what_is_no_nodeset_is_one_line_that_says_so(text: str, wrong: str) -> None:
    with pytest.raises(NodesetError) as raised:
        expand(text)
    message = str(raised.value)
    assert wrong in message
    assert "expected" in message
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize("text", ["gpu[1-99999999]", "r[1-400]n[1-400]", "a[1-60000],b[1-60000]", "x[1-999999999999]"])
def test_a_nodeset_without_measure_is_refused_before_it_is_expanded(text: str) -> None:
    with pytest.raises(NodesetError, match="expected at most 100,000"):
        expand(text)


@pytest.mark.long
def test_as_many_names_as_allowed_are_expanded_and_folded() -> None:
    names = expand(f"gpu[1-{MAX_NAMES}]")
    assert len(names) == MAX_NAMES
    assert fold(names) == f"gpu[1-{MAX_NAMES}]"


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu003", "gpu007", "gpu008"], "gpu[003,007-008]"),
        (["gpu1"], "gpu1"),
        (["gpu1", "gpu1"], "gpu1"),
        (["b", "a"], "a,b"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        ([f"r{rack}n{node}" for rack in range(1, 9) for node in range(1, 101)], "r[1-8]n[1-100]"),
        ([f"ip-10-0-1-{n}.ec2.internal" for n in range(1, 101)], "ip-10-0-1-[1-100].ec2.internal"),
        (["gpu1", "a b", "x,y"], "gpu1,a b,x,y"),
        (["[", "\ud800", ""], ",[,\ud800"),
        (["n" * 300], "n" * 300),
    ],
)
def test_names_fold_for_people(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.long
@given(st.sets(NAMES, min_size=1, max_size=30))
def test_folding_loses_no_name_and_invents_none(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@pytest.mark.long
@given(st.sets(NAMES, min_size=1, max_size=30))
def test_a_folded_nodeset_is_canonical(names: set[str]) -> None:
    folded = fold(names)
    assert fold(expand(folded)) == folded


@pytest.mark.long
@examples(15, suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.from_regex(r"r[0-9]{1,2}n[0-9]{1,2}", fullmatch=True), min_size=65, max_size=150))
def test_many_names_of_many_numbers_fold_without_loss_too(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@pytest.mark.long
@given(st.text(max_size=40))
def test_any_text_either_names_nodes_or_is_refused_in_one_line(text: str) -> None:
    refusal = ""
    names: tuple[str, ...] = ()
    try:
        names = expand(text)
    except NodesetError as refused:
        refusal = str(refused)
    assert len(refusal.splitlines()) == (0 if names else 1)


@given(st.text(alphabet="ag019[]-,./_", max_size=20))
def test_texts_like_nodesets_never_do_anything_else(text: str) -> None:
    try:
        names = expand(text)
    except NodesetError:
        return
    assert len(set(names)) == len(names)
    assert all(name and set(name) <= set("ag019-._") for name in names)


@given(st.lists(st.text(max_size=10), max_size=10))
def test_folding_never_fails(names: list[str]) -> None:
    assert all(name in fold(names) for name in names if not name.isascii())


@pytest.mark.parametrize(
    ("nodes", "most", "shown"),
    [
        ("gpu[001-016]", 12, "gpu[001-016]"),
        ("gpu[0001-0100,0128,0843-0900]", 28, "gpu[0001-0100] and 59 more"),
        ("gpu[0001-0100,0128,0843-0900]", 5, "gpu[0001-0100] and 59 more"),
        ("a[1-3],gpu[01,03,05,07,09]", 25, "a[1-3],gpu[01] and 4 more"),
        ("ip-10-0-1-2,ip-10-0-1-4,ip-10-0-7-4", 30, "ip-10-0-1-2 and 2 more"),
        ("r[1-2]n[01,03,05,07]", 19, "r[1-2]n[01] and 6 more"),
        ("gpu[00001,00003-04000]", 20, "gpu[00001] and 3,998 more"),
        ("gpu1~gpu2,gpu1~gpu3", 17, "gpu1~gpu2 and 1 more"),
        ("gpu[0128,gpu[0843,x", 12, "gpu[0128,gpu[0843,x"),
    ],
)
def test_a_shortened_nodeset_has_whole_ranges_and_says_how_many_it_leaves_out(
    nodes: str, most: int, shown: str
) -> None:
    assert within(nodes, most) == shown


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=400), st.integers(8, 300))
def test_a_shortened_nodeset_is_one_itself_and_the_number_is_right(numbers: set[int], most: int) -> None:
    nodes = fold(f"gpu{number:04d}" for number in numbers)
    shown, _, more = within(nodes, most).partition(" and ")
    named = set(expand(shown))
    assert named <= set(expand(nodes))
    assert len(named) + int(more.removesuffix(" more") or 0) == len(numbers)
    assert len(within(nodes, most)) <= max(most, len("gpu[0001-0100] and 3000 more"))
