"""What a process in state D waits for: waits.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.record import record

USER = "user"
HUNG = ("driver", "file_system")


@record
class Wait:
    """Functions of the kernel in which the same is waited for, by a pattern of their whole names."""

    pattern: str
    source: str


def waits_for(functions: Iterable[str]) -> str:
    """The row of waits.toml that functions of the kernel, innermost first, fit; empty where there is none."""
    kinds = (kind for name in functions for kind, pattern in _patterns().items() if pattern.fullmatch(name))
    return next(kinds, "")


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    rows = table(Wait, "waits.toml", "wait")
    return {kind: re.compile("".join(row.pattern.split())) for kind, row in rows.items()}
