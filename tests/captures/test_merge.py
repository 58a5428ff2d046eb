"""Evidence of one node from several files, merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.captures.merge import completed, merged

NOT_SUPPORTED = {"error": "NOT_SUPPORTED", "text": "N/A"}
LOST = {"error": "GPU_IS_LOST", "text": "GPU is lost"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([(10, 1), (20, 2)], 2),
        ([(10, 1), (10, 2)], 1),
        ([(10, 1), (20, NOT_SUPPORTED)], 1),
        ([(20, None), (10, NOT_SUPPORTED)], NOT_SUPPORTED),
        ([(10, {"a": 1, "b": 1}), (20, {"b": 2, "c": 2})], {"a": 1, "b": 2, "c": 2}),
        ([(20, {"lost": None}), (10, {"lost": LOST})], {"lost": LOST}),
        ([(10, [True, False]), (20, [True])], [True]),
        ([(20, []), (10, [1])], [1]),
        ([(10, [{"path": "/a", "x": 1}]), (20, [{"path": "/b"}])], [{"path": "/b"}, {"path": "/a", "x": 1}]),
        ([(10, [{"name": "a", "x": 1}]), (20, [{"name": "a", "y": 2}])], [{"name": "a", "y": 2, "x": 1}]),
        ([(10, {"lines": [[1, "a"]]}), (10, {"lines": [[1, "a"], [2, "b"]]})], {"lines": [[1, "a"], [2, "b"]]}),
        ([(10, {"lines": [[None, "a"]]}), (20, {"lines": [[2, "b"]]})], {"lines": [[2, "b"]]}),
        ([(10, 1), (20, {"a": 1})], {"a": 1}),
    ],
)
def test_the_higher_rank_holds_and_others_add_what_it_leaves_out(data: list, expected: object) -> None:  # type: ignore[type-arg]
    assert merged(data) == expected


def test_a_gpu_is_known_again_by_its_number_or_its_address_or_its_uuid() -> None:
    by_address = [{"pci": "0000:53:00.0", "lost": LOST}]
    by_number = [{"index": 1, "name": "H100"}, {"index": 0, "name": "H100"}]
    by_both = [{"index": 0, "pci": "0000:53:00.0", "lost": None}, {"index": 1, "pci": "0000:64:00.0", "lost": None}]
    gpus = merged([(90, by_address), (40, by_number), (30, by_both)])
    assert gpus == [
        {"pci": "0000:53:00.0", "lost": LOST, "index": 0, "name": "H100"},
        {"index": 1, "name": "H100", "pci": "0000:64:00.0", "lost": None},
    ]


def test_gpus_whose_uuids_were_scrubbed_stay_apart_by_their_numbers() -> None:
    same = "GPU-00000000-0000-0000-0000-000000000000"
    first = [{"index": 0, "uuid": same}, {"index": 1, "uuid": same}]
    second = [{"index": 0, "uuid": same, "x": 0}, {"index": 1, "uuid": same, "x": 1}]
    assert [gpu["x"] for gpu in merged([(20, first), (10, second)])] == [0, 1]  # type: ignore[attr-defined]


def test_a_gpu_that_is_counted_and_not_described_has_an_empty_entry() -> None:
    nvml = {"count": 3, "gpus": [{"index": 2, "uuid": "c"}]}
    assert completed(nvml) == {"count": 3, "gpus": [{"index": 0}, {"index": 1}, {"index": 2, "uuid": "c"}]}


def test_gpus_that_are_all_described_have_the_numbers_that_are_left() -> None:
    nvml = {"count": 3, "gpus": [{"pci": "0000:c8:00.0"}, {"index": 1, "pci": "0000:64:00.0"}, {"pci": "0000:53:00.0"}]}
    assert completed(nvml) == {
        "count": 3,
        "gpus": [
            {"index": 0, "pci": "0000:53:00.0"},
            {"index": 1, "pci": "0000:64:00.0"},
            {"index": 2, "pci": "0000:c8:00.0"},
        ],
    }


def test_where_some_are_not_described_nobody_knows_which_number_is_whose() -> None:
    assert completed({"count": 2, "gpus": [{"pci": "0000:c8:00.0"}]}) == {
        "count": 2,
        "gpus": [{"pci": "0000:c8:00.0"}, {}],
    }


def test_a_gpu_without_a_number_has_none_where_nothing_says_how_many_there_are() -> None:
    assert completed({"gpus": [{"pci": "0000:64:00.0"}]}) == {"gpus": [{"pci": "0000:64:00.0"}]}


def test_a_gpu_without_a_name_that_says_what_another_says_is_not_one_more() -> None:
    assert completed({"count": 2, "gpus": [{"x": 1}, {"index": 0, "x": 1}, {"index": 1, "x": 2}]}) == {
        "count": 2,
        "gpus": [{"index": 0, "x": 1}, {"index": 1, "x": 2}],
    }


def test_gpus_without_a_name_are_no_more_than_a_node_may_have() -> None:
    result = merged([(10, {"gpus": [{"x": number}]}) for number in range(1000)])
    assert len(result["gpus"]) == 256  # type: ignore[index]


def test_a_gpu_without_a_name_that_says_something_else_is_one_more() -> None:
    assert completed({"count": 2, "gpus": [{"x": 3}, {"index": 0, "x": 1}, {"index": 1, "x": 2}]}) == {
        "count": 2,
        "gpus": [{"index": 0, "x": 1}, {"index": 1, "x": 2}, {"x": 3}],
    }


@pytest.mark.parametrize("data", [None, 3, {}, {"count": "8", "gpus": []}, {"count": 10**9, "gpus": []}, {"gpus": 5}])
def test_what_is_no_collector_of_gpus_stays_as_it_is(data: object) -> None:
    assert completed(data) == data


VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["a", "b"]) | st.just(NOT_SUPPORTED),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["index", "name", "pci", "lines", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_any_two_values_become_one_that_is_no_less(first: object, second: object) -> None:
    together = merged([(20, first), (10, second)])
    assert (together is None) == (first is None and second is None)


@given(VALUES)
def test_what_is_put_together_twice_does_not_grow(value: object) -> None:
    once = merged([(10, value), (10, value)])
    assert merged([(10, once), (10, once)]) == once
