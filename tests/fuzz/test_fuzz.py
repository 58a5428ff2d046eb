"""A short, repeatable fuzzing of each input; `scripts/fuzz` goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.training_run.files import RunFile, head_of
from clusterproof.plugins.training_run.reading import FORMATS
from tests.fuzz import seeds
from tests.fuzz.altering import altered
from tests.fuzz.inputs import INPUTS
from tests.fuzz.trying import Tried, opened, tried

pytestmark = pytest.mark.long
ANY_TIME_S = 1e9


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_that_is_altered_breaks_what_reads_it(name: str) -> None:
    assert tried(INPUTS[name], ANY_TIME_S, first=1, most=15).failures == []


@pytest.mark.parametrize("name", INPUTS)
def test_every_seed_is_let_in_as_it_is(name: str) -> None:
    for seed, data in INPUTS[name].seeds.items():
        tally = Tried()
        opened(INPUTS[name], seed, data, tally)
        assert tally.read == 1, seed


def test_there_is_a_seed_for_every_reader_of_a_run(tmp_path: Path) -> None:
    heads = []
    for name, data in seeds.of_runs().items():
        (tmp_path / name).write_bytes(data)
        heads.append(head_of(RunFile(tmp_path / name)))
    assert [form.name for form in FORMATS if not any(form.is_of(head) for head in heads)] == []


def test_an_example_is_altered_as_it_says() -> None:
    assert altered(b"abcd", [("insert", 5_000, 0, b"-", 2)]) == b"ab--cd"
    assert altered(b"abcd", [("delete", 0, 2, b"", 1), ("repeat", 0, 1, b"", 3)]) == b"cccd"
    assert altered(b'[{"a": 1},{"b": 2}]', [("multiply", 5_000, 0, b"", 2)]) == b'[{"a": 1},{"b": 2},{"b": 3}]'
    assert altered(b"a,1\nb,2\n", [("multiply", 5_000, 0, b"", 2)]) == b"a,1\nb,2\nb,3\n"
