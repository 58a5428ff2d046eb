"""The output of NCCL's Inspector plugin, a line for each collective of a rank: versions 4 and 5 of its format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.training_run import CutFile, RunError
from clusterproof.plugins.training_run.collectives import CollectiveCall
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, integer, json_lines, name, seconds

US = 1e-6  # s
OF_COLLECTIVE, OF_PAIR = "coll_perf", "p2p_perf"
EXPECTED = f'expected {{"header": …, "metadata": …, "{OF_COLLECTIVE}": …}}, as NCCL_INSPECTOR_ENABLE=1 writes'


def is_inspector(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and (OF_COLLECTIVE in first or OF_PAIR in first)


def read_inspector(path: RunFile) -> Iterator[CollectiveCall | CutFile]:
    """The collectives; sends and receives are left out. Raises RunError."""
    lines = Lines(path)
    for entry in json_lines(lines, EXPECTED):
        if not isinstance(entry, dict):
            raise RunError(f"{lines.where}: {str(entry)!r:.60} is no collective; {EXPECTED}")
        if OF_PAIR not in entry:
            yield _call(entry, lines.where)
    if lines.is_cut:
        yield CutFile()


def _call(entry: Mapping[str, Any], where: str) -> CollectiveCall:
    call, header = entry.get(OF_COLLECTIVE), entry.get("header", entry)
    if not isinstance(call, dict) or not isinstance(header, dict):
        raise RunError(f"{where}: {str(dict(entry))!r:.60} is no collective; {EXPECTED}")
    metadata = entry.get("metadata", entry)
    return CollectiveCall(
        name(header.get("id"), "id", where),
        integer(header.get("n_ranks"), "n_ranks", where),
        integer(header.get("rank"), "rank", where),
        name(metadata.get("hostname") if isinstance(metadata, dict) else None, "hostname", where),
        integer(call.get("coll_sn"), "coll_sn", where),
        seconds(call.get("coll_exec_time_us"), "coll_exec_time_us", where) * US,
        name(call.get("coll"), "coll", where),
        name(call.get("coll_timing_source"), "coll_timing_source", where),
    )


FORMATS = (Format("NCCL's Inspector", is_inspector, read_inspector),)
