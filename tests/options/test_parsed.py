"""The suite's options are read with the types that the command line gives them."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.parsed import Options
from clusterproof.plugins.options.table import Option
from scripts.generators.options import PATH, document

OPTIONS = [option for group in (*table.GROUPS.values(), *perf_table.GROUPS.values()) for option in group]
OF_PYTEST = {"collectonly", "keyword", "markexpr"}
TYPES = get_type_hints(Options)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_an_option_is_read_as_what_the_command_line_makes_of_it(option: Option) -> None:
    if not option.has_value:
        assert TYPES[option.dest] is bool
        return
    kind = list[str] if option.more.get("action") == "append" else option.more.get("type", str)
    assert TYPES[option.dest] == (kind if "default" in option.more else kind | None)


def test_nothing_else_is_read_but_some_options_of_pytests_own(pytestconfig: pytest.Config) -> None:
    assert TYPES.keys() - {option.dest for option in OPTIONS} == OF_PYTEST
    assert all(isinstance(getattr(pytestconfig.option, name), TYPES[name]) for name in OF_PYTEST)


def test_the_types_are_those_of_the_tables() -> None:
    assert PATH.read_text(encoding="utf-8") == document(), "expected what scripts/generate writes"
