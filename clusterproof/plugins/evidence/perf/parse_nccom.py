"""Parses `nccom-test` of Trainium and Inferentia, as a table and as its JSON report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import (
    CaptureError,
    Form,
    document_in,
    exit_status,
    integer,
    number,
    objects,
    short,
)

MAX_ROWS = 4096
MAX_PROBLEMS = 16
LONGEST_LINE = 500
GIB, GB = 2**30, 10**9
MIN_PRINTED = 1.0  # in a bandwidth: below it two decimals do not distinguish the two units

_HEADER = re.compile(r"\s{0,40}size\(B\)\s{1,40}count\(elems\)\s{1,40}\S")
_AVERAGE = re.compile(r"\s*Avg bus bandwidth:\s{0,40}(\d{1,9}(?:\.\d{1,9})?)\s?GB/s")
_COMMAND = re.compile(r".{0,200}?\bnccom-test\s(.{0,300})")
_TYPED = re.compile(  # at the beginning of a line, after variables and its folder
    r"^(?:[+$#>] )?(?:usage: )?(?:[A-Z_]{1,64}=\S{0,200} ){0,9}(?:[\w./-]{1,200}/)?nccom-test"
    r"(?:: error\b|\s(?:[^\n]{0,300}\s)?(?:-\w|--\w|all[a-z]{1,12}|redsct|bcast|sendrecv|permute)\b)",
    re.MULTILINE,
)
_RANKS = re.compile(r"(?:^|\s)(?:-r|--nworkers)[= ]{1,4}(\d{1,6})\b")
_CHECKED = re.compile(r"(?:^|\s)(?:-c|--check)(?:\s|$)")
_PROBLEM = re.compile(
    r".{0,200}?(?:\berror\b|\bfailed\b|\bfailure\b|\bmismatch|\bNRT_[A-Z]|\bTraceback\b|\baborted\b|\btimed out\b"
    r"|\bcore dumped\b)",
    re.IGNORECASE,
)


def is_table(text: str) -> bool:
    """Whether this is nccom-test's table, or its command with the error messages."""
    return any(_HEADER.match(line[:LONGEST_LINE]) for line in text.split("\n")) or bool(
        _TYPED.search(text) and "size(B)" not in text and "error" in text.lower()
    )


def read_table(text: str) -> Mapping[str, object]:
    """The collector `nccom`. Raises CaptureError."""
    command, average = "", None
    problems: dict[str, None] = {}
    for line in text.split("\n"):
        line = line[:LONGEST_LINE]
        if match := _AVERAGE.match(line):
            average = float(match[1])
        elif not command and (match := _COMMAND.match(line)) and not _PROBLEM.match(line):
            command = match[1].strip()
        elif _PROBLEM.match(line):
            problems[short(line.strip())] = None
    return _collector(text, command, list(_rows(text)), average, list(problems))


def is_json(text: str) -> bool:
    """Whether this is the report of `nccom-test --report-to-json-file`."""
    return text.lstrip()[:1] == "{" and '"size(B)"' in text and '"busbw(GB/s)"' in text


def read_json(text: str) -> Mapping[str, object]:
    """The collector `nccom`. Raises CaptureError."""
    try:
        document = document_in(text)
    except CaptureError:
        return _collector(text, "", [], None, [])  # a cut log is not an absent log
    rows = [_row(row) for row in objects(document.get("results"))]
    if not rows:
        raise CaptureError("the JSON of nccom-test has no results")
    average = sum(row["busbw"] or 0 for row in rows) / len(rows)
    return _collector(text, "", rows, average, [])


def _collector(
    text: str, command: str, rows: list[dict[str, Any]], average: float | None, problems: list[str]
) -> dict[str, object]:
    unit, word = _unit(rows)
    ranks = _RANKS.search(command)
    log = {
        "command": short(command),
        "ranks": int(ranks[1]) if ranks else None,
        "checked": bool(_CHECKED.search(command)) if command else None,
        "unit": word,
        "rows": [_converted(row, unit) for row in rows[:MAX_ROWS]],
        "avg_busbw_gb_per_s": None if average is None else round(average * unit, 6),
        "problems": sorted(problems, key=lambda line: "mismatch" not in line.lower())[:MAX_PROBLEMS],
        "exit": exit_status(text),
    }
    return {"nccom": {"logs": [log]}}


def _rows(text: str) -> Iterator[dict[str, Any]]:
    """The rows of every table, read by the names of their columns, which differ by option."""
    columns: list[str] = []
    for line in text.split("\n"):
        line = line[:LONGEST_LINE]
        if _HEADER.match(line):
            columns = line.split()
        elif len(cells := line.split()) == len(columns) and columns and integer(cells[0]) is not None:
            yield _row(dict(zip(columns, cells, strict=True)))


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row as printed; bandwidths in the version's own GB/s."""
    return {
        "size_bytes": _number(row.get("size(B)")),
        "count": _number(row.get("count(elems)")),
        "type": short(row.get("type")),
        "time_us": _number(row.get("time:avg(us)", row.get("time(us)"))),
        "algbw": _number(row.get("algbw(GB/s)")),
        "busbw": _number(row.get("busbw(GB/s)")),
    }


def _number(data: object) -> float | None:
    read = number(short(data))
    return int(read) if read is not None and read == int(read) and "." not in short(data) else read


def _unit(rows: list[dict[str, Any]]) -> tuple[float, str]:
    """GB per printed unit, from the row with the largest bandwidth: size over time shows the meaning of the unit.

    Versions that print `time(us)` print GiB/s as GB/s; later ones print real GB/s (the Neuron SDK's own examples).
    """
    usable = [row for row in rows if row["time_us"] and row["size_bytes"] and (row["algbw"] or 0) >= MIN_PRINTED]
    if not usable:
        return 1.0, ""
    best = max(usable, key=lambda row: float(row["algbw"]))
    bytes_per_s = best["size_bytes"] / best["time_us"] * 1e6
    printed = best["algbw"]
    is_gib = abs(bytes_per_s / GIB - printed) < abs(bytes_per_s / GB - printed)
    return (GIB / GB, "GiB/s") if is_gib else (1.0, "GB/s")


def _converted(row: Mapping[str, Any], unit: float) -> dict[str, object]:
    converted = {name: value for name, value in row.items() if name not in ("algbw", "busbw")}
    for name in ("algbw", "busbw"):
        converted[f"{name}_gb_per_s"] = None if row[name] is None else round(row[name] * unit, 6)
    return converted


FORMS = (
    Form("nccom-test", is_table, read_table),
    Form("nccom-test --report-to-json-file", is_json, read_json),
)
