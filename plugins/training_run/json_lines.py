"""Lines of JSON: the last one may have been cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.training_run.lines import Lines
from clusterproof.plugins.training_run.records import RunError


def json_lines(lines: Lines, expected: str) -> Iterator[Any]:
    """What each line has; a last one that is no JSON is the tail that a file has lost. Raises RunError."""
    broken = ""
    for line in lines:
        if not line.strip():
            continue
        if broken:
            raise RunError(broken)
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            broken = f"{lines.where}: {line!r:.60} is not JSON; {expected}"
            continue
        yield data
    lines.is_cut = bool(broken)
