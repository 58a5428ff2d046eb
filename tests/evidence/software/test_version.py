"""Versions compare as people expect, whatever suffixes programs append."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.software.version import OPERATORS, broken, is_older, parse, rules

NUMBERS = st.lists(st.integers(0, 10**6), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("text", "numbers", "revision"),
    [
        ("580.126.09", (580, 126, 9), ()),
        ("v1.7.3-aws", (1, 7, 3), ()),
        ("6.8.0-1021-aws", (6, 8, 0), (1021,)),
        ("2.27.5-1+cuda12.8", (2, 27, 5), (1,)),
        ("5:28.1.1-1~ubuntu.22.04~jammy", (28, 1, 1), (1,)),
        ("2.3.1amzn2.0", (2, 3, 1), ()),
        ("2.15.6_5_gb8dcbd9", (2, 15, 6), ()),
        (" 24.05.3\n", (24, 5, 3), ()),
        ("13", (13,), ()),
    ],
)
def test_a_version_is_its_numbers_and_those_after_its_dash(
    text: str, numbers: tuple[int, ...], revision: tuple[int, ...]
) -> None:
    assert (parse(text).numbers, parse(text).revision) == (numbers, revision)


@pytest.mark.parametrize("text", ["", "none", "(none)", "-1", "libslurm.so.42", "1" * 40, "٣.١"])
def test_what_begins_with_no_number_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        parse(text)


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("580.126.09", "== 580.126.09"),
        ("580.126.09", "== 580.126.9"),
        ("2.27.5-1+cuda12.8", "== 2.27.5"),
        ("2.27.5", "== 2.27"),
        ("2.27", "== 2.27.0"),
        ("6.8.0-1021-aws", "== 6.8.0-1021"),
        ("6.8.0-1021-aws", "== 6.8.0-1021-aws"),
        ("6.8.0-1021-aws", ">= 6.8.0-1020"),
        ("1.43.2", ">= 1.43, < 1.50"),
        ("1.9", "< 1.10"),
        ("12.8.1", "<= 12.8"),
        ("570.124.06", "!= 570.86"),
        ("1:4.4.1-1", ">4.3"),
    ],
)
def test_a_version_keeps_its_rule(version: str, rule: str) -> None:
    assert broken(version, rule) == ""


@pytest.mark.parametrize(
    ("version", "rule", "condition"),
    [
        ("580.95.05", "== 580.126.09", "== 580.126.09"),
        ("570.86.15", "!= 570.86", "!= 570.86"),
        ("1.50.0", ">= 1.43, < 1.50", "< 1.50"),
        ("1.42.0", ">= 1.43, < 1.50", ">= 1.43"),
        ("6.8.0-1021-aws", ">= 6.8.0-1022", ">= 6.8.0-1022"),
        ("6.8.0-1021-generic", "== 6.8.0-1021-aws", "== 6.8.0-1021-aws"),
        ("1.10", "< 1.9", "< 1.9"),
        ("12.8.1", "> 12.8", "> 12.8"),
        ("2.27.6", "== 2.27.5-1+cuda12.8", "== 2.27.5-1+cuda12.8"),
    ],
)
def test_the_first_condition_that_a_version_breaks_is_named(version: str, rule: str, condition: str) -> None:
    assert broken(version, rule) == condition


@pytest.mark.parametrize("rule", ["", "580", "=> 580", "~= 1.2", ">= ", ">= 1.2,", "== latest"])
def test_a_rule_that_means_nothing_is_one_clear_error(rule: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (rule|version); expected"):
        rules(rule)


@given(NUMBERS, NUMBERS)
def test_of_two_versions_written_out_alike_one_is_older_or_both_are_the_same(one: list[int], other: list[int]) -> None:
    length = max(len(one), len(other))
    padded = [[*numbers, *[0] * (length - len(numbers))] for numbers in (one, other)]
    texts = [".".join(map(str, numbers)) for numbers in padded]
    assert is_older(texts[0], texts[1]) == (padded[0] < padded[1])
    assert (broken(texts[0], f"== {texts[1]}") == "") == (padded[0] == padded[1])


@given(NUMBERS, st.text(max_size=20))
def test_a_version_always_keeps_the_rule_of_its_own_numbers(numbers: list[int], rest: str) -> None:
    text = ".".join(map(str, numbers))
    version = f"{text}-{rest}"
    assert [broken(version, f"{operator} {text}") for operator in ("==", ">=", "<=")] == ["", "", ""]
    assert all(broken(version, f"{operator} {text}") for operator in ("!=", ">", "<"))


@given(st.text(), st.sampled_from(OPERATORS))
def test_whatever_text_a_node_reports_is_a_version_or_a_value_error(text: str, operator: str) -> None:
    with contextlib.suppress(ValueError):
        assert broken(text, f"{operator} 1.2") in ("", f"{operator} 1.2")
