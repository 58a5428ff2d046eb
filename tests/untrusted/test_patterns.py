"""No text makes a regular expression take more than linear time, since others choose the texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.untrusted.expressions import Expression, expressions, untold
from tests.untrusted.patterns import offenders

pytestmark = [pytest.mark.any_user, pytest.mark.long]
ROOT = Path(__file__).parents[2]


def test_every_expression_of_the_product_takes_a_time_by_the_length_of_the_text() -> None:
    every = expressions()
    assert len(every) > 700
    assert sum(one.is_searched for one in every) > 200
    assert list(offenders(every)) == []


@pytest.mark.parametrize(
    "part",
    [
        r"\n?word:([01]):([^:\s]{1,255}):([^:\s]{1,255}):(\d{1,20})\.\n?",  # put together in ranks.py
        r"^cp-not-reached: ([1-9]\d{0,4}) (.*)",  # in mpirun.py
        r"word([A-Za-z0-9._-]{1,253})\.\n",  # of bytes, in srun_call.py
        r"word(\[\d+\])?",  # compiled in a function, in slurm_conf.py
    ],
)
def test_what_a_function_puts_together_is_among_them(part: str) -> None:
    assert [expression for expression in expressions() if part in expression.pattern]


def test_the_expression_of_every_call_is_told_but_for_what_tables_and_names_have() -> None:
    """Expressions from tables appear as in the catalogue; names and words are escaped when inserted."""
    assert untold() == [
        "agent.pattern: self.pattern",
        "catalog.causes: words",
        "catalog.instance_types: self.product",
        "catalog.instance_types: self.vendor",
        "catalog.kubernetes: row.pattern",
        "catalog.node: ''.join(row.pattern.split())",
        "catalog.node: self.pattern",
        "evidence.software.collect_versions: pattern",
        "redaction.naming: whole",
    ]


@pytest.mark.parametrize(
    "pattern", [r"\s+x", r"a[^b]*b", r"(a+)+$", r"\d+\.\d+", r"(?m)^\s*key", r"x.*?y.*?z", r"a word of its own, .*?, z"]
)
def test_what_takes_longer_is_found(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.untrusted.patterns.MAX_S", 0.5)
    assert list(offenders([Expression(pattern, 0, is_searched=True)]))


def test_what_is_anchored_where_it_is_used_is_not() -> None:
    assert not list(offenders([Expression(r"\s+x", 0, is_searched=False), Expression(r"[^b]*b", 0, is_searched=False)]))


def test_digits_are_read_as_int_reads_them() -> None:
    wrong = re.compile(r"\bis(?:digit|numeric)\b")  # true of `²`, which int() rejects
    files = (ROOT / "clusterproof").rglob("*.py")
    assert [str(file) for file in files if wrong.search(file.read_text("utf-8"))] == []
