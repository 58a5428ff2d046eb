"""A node's kernel log as `clusterproof watch` recorded it: lines that a reboot, or a later flood, has taken since."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from clusterproof.plugins.case import label, one_line
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.node_log import booted, facts_of
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import Lines, RunFile, real
from clusterproof.plugins.training_run.sample_columns import (
    HEADER,
    KERNEL_LOG,
    NOT_WATCHED,
    SUFFIX,
    Header,
    header_of,
)

UNPACKED = SUFFIX.removesuffix(".zst")
_SIMILAR = re.compile(r" \(and (\d{1,9}) lines like it before\)$")


def node_of(path: Path) -> str:
    """The node of a watch's recording, from its file's name; empty for other files."""
    stem, suffix, packed = path.name.rpartition(UNPACKED)
    return label(unquote(stem)) if suffix and packed in ("", ".zst") else ""


def read(file: RunFile, name: str, builder: CaseBuilder, doubt: str) -> None:
    """Add a recording's evidence against its node, or why there is none; `doubt` says who else can write it."""
    try:
        if doubt:
            raise RunError(f"no evidence against a node, as it {doubt}")
        node, of_boots, boots, is_cut = _recorded(file)
    except RunError as wrong:
        builder.lack(one_line(f"{name}: {str(wrong).removeprefix(f'{file}:').strip()}", 400))
        return
    for lines in of_boots:
        builder.facts.extend(facts_of(facts.parse(lines), node, name))
    builder.facts.extend(booted(node, earliest, name, latest) for earliest, latest in boots)
    builder.nodes_watched[node] = None
    builder.count("recording of a watch")
    if is_cut:
        builder.lack(f"{name}: lines of it that are cut")


def _recorded(file: RunFile) -> tuple[str, Collection[list[facts.Line]], list[tuple[float, float | None]], bool]:
    """The node, the kernel's lines of each boot by the node's own clock, when it was last heard before it booted, with
    when it was heard again if nobody watched it between, and whether lines are cut. Raises RunError.
    """
    lines, header, is_cut = Lines(file), None, False
    of_boots: dict[str, list[facts.Line]] = {}
    boots: list[tuple[float, float | None]] = []
    heard: float | None = None  # before what is missing
    why: object = None
    for line in lines:
        if not line.startswith("{"):
            continue  # samples, which need not be decoded
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            is_cut = True
            continue
        if HEADER in entry:
            before, header = header, _same_node(header, header_of(entry, lines.where), lines.where)
            if before and len({before.boot_id, header.boot_id} - {""}) > 1:
                earliest = header.began if heard is None else heard
                boots.append((earliest, header.began if why == NOT_WATCHED else None))
            heard = why = None
        elif isinstance(gap := entry.get("gap"), dict):
            heard, why = real(gap.get("from"), "from", lines.where), gap.get("why")
        elif header and isinstance(event := entry.get("event"), dict) and event.get("source") == KERNEL_LOG:
            of_boots.setdefault(header.boot_id, []).append(_line(event, header, lines.where))
    if header is None:
        raise RunError(f"{file}: it has no header; expected a recording of clusterproof watch")
    return label(header.node), of_boots.values(), boots, is_cut


def _same_node(known: Header | None, header: Header, where: str) -> Header:
    if not label(header.node):
        raise RunError(f"{where}: {header.node!r:.60} is no node; expected the name of a host")
    if known and known.node != header.node:
        raise RunError(f"{where}: {header.node!r:.60}; expected {known.node!r:.60}, of which this recording is")
    return header


def _line(event: dict[str, Any], header: Header, where: str) -> facts.Line:
    text = event.get("text")
    if not isinstance(text, str):
        raise RunError(f"{where}: text is {text!r:.60}; expected a line of the kernel log")
    similar = _SIMILAR.search(text)
    message = text[: similar.start()] if similar else text
    seconds = header.began + real(event.get("time"), "time", where)
    return seconds, message, int(similar[1]) if similar else 0, UNKNOWN
