"""Validates the options for load and pairs, independent of the nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.options import MAX_S
from clusterproof.plugins.options.perf_table import ALL, DOUBLING, FULL, LOADS, MIN_NODES, QUICK, seconds_of

if TYPE_CHECKING:
    from clusterproof.plugins.options.parsed import Options

MIN_MIB = 64  # of the scratch file
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def check_loads(option: Options) -> None:
    """Reject invalid numbers and paths for load. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--fs-size", option.fs_size, MIN_MIB),
        ("--fs-at-once", option.fs_at_once, 1),
    ):
        if value < least:
            raise pytest.UsageError(f"{flag} is {value}; expected at least {least}")
    if not 1 <= option.exact_s <= MAX_S:
        raise pytest.UsageError(f"--exact-s is {option.exact_s:g}; expected 1 to {MAX_S}")
    if not 0 <= option.stress_s <= MAX_S:
        raise pytest.UsageError(f"--stress-s is {option.stress_s}; expected 1 to {MAX_S}, or 0 for none")
    for flag, path in (("--fs-bandwidth", option.fs_bandwidth), ("--torch-python", option.torch_python)):
        if path and not path.startswith("/"):
            raise pytest.UsageError(f"{flag} is {path!r:.80}; expected a path of the nodes that begins with /")
    timeouts(option.load_timeout)


def timeouts(text: str) -> dict[str, float]:
    """The deadlines in `--load-timeout` by collector, "" for all. Raises pytest.UsageError."""
    seconds_by_collector: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        collector, _, number = word.rpartition("=")
        try:
            seconds_by_collector[collector] = float(number)
        except ValueError:
            seconds_by_collector[collector] = 0.0
        if (collector and collector not in LOADS) or not 1 <= seconds_by_collector[collector] < float("inf"):
            names = ", ".join(LOADS)
            raise pytest.UsageError(f"--load-timeout has {word!r:.60}; expected S or NAME=S, NAME one of {names}")
    return seconds_by_collector


def check_pair_options(option: Options) -> None:
    """Reject invalid combinations, in any run. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--pairs-at-once", option.pairs_at_once, 1),
        ("--pair-timeout", option.pair_timeout, 1),
        ("--ranks-per-node", option.ranks_per_node, 1),
    ):
        if value is not None and not value >= least:
            raise pytest.UsageError(f"{flag} is {value:g}; expected at least {least:g}")
    if option.pair_timeout > MAX_S:
        raise pytest.UsageError(f"--pair-timeout is {option.pair_timeout:g}; expected at most {MAX_S} s, a day")
    for flag, text in (
        ("--mpirun-options", option.mpirun_options),
        ("--srun-options", option.srun_options or ""),
        ("--meter-options", option.meter_options),
    ):
        _check_words(flag, text)
    check_groups(option.groups)
    budget_s(option.pairs_budget)
    size_bytes(option.meter_size)
    environment(option.meter_env)
    named_pairs(option.pairs)


def _check_words(flag: str, text: str) -> None:
    """Reject words that a shell could not split. Raises pytest.UsageError."""
    try:
        shlex.split(text)
    except ValueError as problem:
        raise pytest.UsageError(f"{flag} is {text!r:.80}: {problem}; expected words as a shell takes them") from None


def named_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """The pairs in `--pairs`; none if it names none. Raises pytest.UsageError."""
    return () if text in (QUICK, FULL) else tuple(_named(text))


def _named(text: str) -> Iterable[tuple[str, str]]:
    for word in text.split(","):
        first, _, other = (part.strip() for part in word.partition("~"))
        if not first or not other or first == other:
            raise pytest.UsageError(f"--pairs is {word!r:.80}; expected quick, full, or A~B,… with two nodes each")
        yield first, other


def check_groups(text: str) -> None:
    """Reject invalid values of `--groups`. Raises pytest.UsageError."""
    sizes = text.split(",") if text not in ("", DOUBLING, ALL) else []
    if not all((re.fullmatch(r"\d{1,5}", size) and int(size) >= MIN_NODES) or size == ALL for size in sizes):
        raise pytest.UsageError(
            f"--groups is {text!r:.80}; expected doubling, all, or sizes of {MIN_NODES} nodes and more, as 4,16,all"
        )


def budget_s(text: str) -> float:
    """`--pairs-budget` in seconds. Raises pytest.UsageError."""
    try:
        return seconds_of(text)
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None


def size_bytes(text: str) -> int:
    """`--meter-size` in bytes, 0 if not given. Raises pytest.UsageError."""
    size = re.fullmatch(r"(\d{1,15})([KMG]?)", text.upper())
    if text and (not size or not int(size[1])):
        raise pytest.UsageError(f"--meter-size is {text!r:.40}; expected bytes, or a number with K, M or G")
    return int(size[1]) * _BYTES[size[2]] if size else 0


def environment(text: str) -> dict[str, str]:
    """The variables in `--meter-env`. Raises pytest.UsageError."""
    try:
        variables = [word.partition("=") for word in shlex.split(text)]
    except ValueError as problem:
        raise pytest.UsageError(f"--meter-env is {text!r:.80}: {problem}; expected K=V …") from None
    for name, equals, _ in variables:
        if not equals or not re.fullmatch(r"[A-Za-z_]\w{0,99}", name):
            raise pytest.UsageError(f"--meter-env has {name!r:.80}; expected K=V …")
    return {name: value for name, _, value in variables}
