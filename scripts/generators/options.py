"""Generates the types of option values from the tables of options: `scripts/generate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clusterproof.plugins.options import parsed, perf_table, table
from clusterproof.plugins.options.table import Option

PATH = Path(parsed.__file__)
HEAD = '''"""The values that the command line gives: of all options of the suite, and of those of pytest that it reads.

Written by `scripts/generate` out of the tables of options.
"""

from __future__ import annotations

from typing import Protocol


class Options(Protocol):
    """What `config.option` holds; None: not given."""
'''
OF_PYTEST = {"collectonly": "bool", "keyword": "str", "markexpr": "str"}


def document() -> str:
    """The module's formatted source."""
    return f"{HEAD}\n{chr(10).join(_lines())}"


def _lines() -> Iterator[str]:
    for title, options in {**table.GROUPS, **perf_table.GROUPS}.items():
        yield f"    # {title.removeprefix('clusterproof: ')}"
        yield from (f"    {option.dest}: {type_of(option)}" for option in options)
        yield ""
    yield "    # pytest's own"
    yield from (f"    {name}: {kind}" for name, kind in OF_PYTEST.items())
    yield ""


def type_of(option: Option) -> str:
    """`int`, `str | None`, `list[str] | None`, …"""
    if not option.has_value:
        return "bool"
    one = option.more.get("type", str).__name__
    kind = f"list[{one}]" if option.more.get("action") == "append" else one
    return kind if "default" in option.more else f"{kind} | None"


if __name__ == "__main__":
    PATH.write_text(document(), encoding="utf-8")
