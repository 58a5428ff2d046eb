"""A site's own bandwidths from when its cluster was healthy: their file, and what a measurement is compared with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from clusterproof.plugins.catalog.busbw import BusbwKey
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.opened import read_whole
from clusterproof.plugins.evidence.pairs import Reading, is_believable
from clusterproof.plugins.evidence.recording import write_whole

SCHEMA = "clusterproof baseline 1"
EXPECTED = "a file of --save-baseline"
MAX_BYTES = 16 * 2**20
MAX_FIGURES = 10_000
MAX_TEXT = 200
MAX_NUMBER = 2**53


class BaselineError(ClusterproofError, ValueError):
    """An unusable baseline file; the one-line message says why."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The software versions that affect a bandwidth, as each part reports them; empty if unknown."""

    driver: str = ""
    nccl: str = ""
    efa_installer: str = ""
    libfabric: str = ""

    def difference(self, other: Stack) -> str:
        """`driver 570.86.15, now 580.95.05`, for each part that differs; empty if none does."""
        parts = [(column.name, getattr(self, column.name), getattr(other, column.name)) for column in fields(self)]
        return "; ".join(
            f"{name.replace('_', ' ')} {was or 'unknown'}, now {now or 'unknown'}"
            for name, was, now in parts
            if was != now
        )


@dataclass(frozen=True, slots=True)
class BaselineFigure:
    """The median of the measurements with one key on one stack, in 10^9 bytes a second."""

    key: BusbwKey
    stack: Stack
    busbw_gb_per_s: float
    readings: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """A site's figure for a key; `stack_differs` names the parts whose versions were different."""

    figure: BaselineFigure
    stack_differs: str = ""


def figures_of(readings: Iterable[tuple[BusbwKey, Stack, Reading]]) -> tuple[BaselineFigure, ...]:
    """A run's medians, by key and stack, without failed measurements and wrong results."""
    bandwidths: dict[tuple[BusbwKey, Stack], list[float]] = {}
    for key, stack, reading in readings:
        busbw = reading.busbw_gb_per_s
        if busbw is not None and is_believable(busbw) and reading.is_correct is not False:
            bandwidths.setdefault((key, stack), []).append(busbw)
    return tuple(BaselineFigure(key, stack, median(values), len(values)) for (key, stack), values in bandwidths.items())


def expectation(figures: Iterable[BaselineFigure], key: BusbwKey, stack: Stack) -> Expectation | None:
    """The figure for a key: of the same stack, else of the latest other one, noting the difference; None if none."""
    of_key = [figure for figure in figures if figure.key == key]
    same = [figure for figure in of_key if figure.stack == stack]
    if same:
        return Expectation(same[-1])
    return Expectation(of_key[-1], of_key[-1].stack.difference(stack)) if of_key else None


def write(path: Path, figures: Iterable[BaselineFigure]) -> None:
    """Save figures atomically. Raises BaselineError."""
    rows = [
        {**asdict(figure.key), "busbw_gb_per_s": figure.busbw_gb_per_s, "readings": figure.readings}
        | {"stack": asdict(figure.stack)}
        for figure in figures
    ]
    if not rows:
        raise BaselineError(
            f"{path}: no reading succeeded, so there is nothing to save; an older file is left as it is"
        )
    try:
        write_whole(path, json.dumps({"schema": SCHEMA, "figures": rows}, indent=1) + "\n")
    except OSError as problem:
        raise BaselineError(f"{path}: {problem.strerror or problem}; expected a file that can be written") from None


def read(path: Path) -> tuple[BaselineFigure, ...]:
    """Read the figures in a file. Raises BaselineError."""
    try:
        return parse(read_whole(path, MAX_BYTES).decode(), str(path))
    except UnicodeDecodeError as problem:
        raise BaselineError(f"{path}: byte {problem.start} is not UTF-8; expected {EXPECTED}") from None
    except (OSError, ValueError) as problem:
        if isinstance(problem, BaselineError):
            raise
        raise BaselineError(f"{path}: {getattr(problem, 'strerror', None) or problem}; expected {EXPECTED}") from None


def parse(text: str, where: str) -> tuple[BaselineFigure, ...]:
    """Parse the figures in a file's text. Raises BaselineError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BaselineError(f"{where}: its JSON cannot be read: {problem}; expected {EXPECTED}") from None
    baseline = _table(document, where, {"schema", "figures"})
    if baseline["schema"] != SCHEMA:
        raise BaselineError(f"{where}: schema is {baseline['schema']!r:.60}; expected {SCHEMA!r}")
    rows = baseline["figures"]
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_FIGURES:
        raise BaselineError(f"{where}: figures is not a list of 1 to {MAX_FIGURES}; expected {EXPECTED}")
    figures = tuple(_figure(row, f"{where}: figure {number}") for number, row in enumerate(rows, 1))
    if len({(figure.key, figure.stack) for figure in figures}) < len(figures):
        raise BaselineError(f"{where}: two figures have the same key and stack; expected each once")
    return figures


def _figure(value: object, where: str) -> BaselineFigure:
    names = {column.name for column in fields(BusbwKey)}
    row = _table(value, where, names | {"busbw_gb_per_s", "readings", "stack"})
    parts = _table(row["stack"], f"{where}: stack", {column.name for column in fields(Stack)})
    busbw = row["busbw_gb_per_s"]
    if type(busbw) not in (int, float) or not is_believable(busbw):
        raise BaselineError(f"{where}: busbw_gb_per_s is {busbw!r:.60}; expected a number above 0")
    return BaselineFigure(
        _key(row, where),
        Stack(**{name: _text(parts, name, f"{where}: stack") for name in parts}),
        float(busbw),
        _whole(row, "readings", where),
    )


def _key(row: Mapping[str, Any], where: str) -> BusbwKey:
    return BusbwKey(
        instance_type=_text(row, "instance_type", where),
        efa=_whole(row, "efa", where, least=0),
        nodes=_whole(row, "nodes", where),
        ranks_per_node=_whole(row, "ranks_per_node", where),
        collective=_text(row, "collective", where),
        size_bytes=_whole(row, "size_bytes", where, least=0),
    )


def described(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a journal says of its meter, key and stack; an older one may lack them. Raises BaselineError."""
    key, stack = about.get("key") or {}, about.get("stack") or {}
    if "meter" in about:
        _text(about, "meter", "about")
    if key.keys() == {column.name for column in fields(BusbwKey)}:
        _key(key, "about: key")
    if wrong := next((name for name, version in stack.items() if not isinstance(version, str)), ""):
        raise BaselineError(f"about: stack: {wrong} is {stack[wrong]!r:.60}; expected text")
    return dict(about)


def _table(value: object, where: str, names: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BaselineError(f"{where}: {value!r:.40} is not an object; expected {EXPECTED}")
    if odd := sorted(names ^ set(value)):
        raise BaselineError(
            f"{where}: {odd[0]!r:.60} is {'missing' if odd[0] in names else 'unknown'}; expected {EXPECTED}"
        )
    return value


def _whole(row: Mapping[str, Any], name: str, where: str, least: int = 1) -> int:
    value = row[name]
    if type(value) is not int or not least <= value <= MAX_NUMBER:
        raise BaselineError(f"{where}: {name} is {value!r:.60}; expected a whole number from {least}")
    return value


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row[name]
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise BaselineError(f"{where}: {name} is {value!r:.60}; expected text of {MAX_TEXT} characters at most")
    return value
