"""Options of `clusterproof check` in a plan: which are allowed, their values, and their effect on duration."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.load.options import DCGM_SECONDS, EXACT_S, LoadOptions, require_time
from clusterproof.plugins.benchmarks.meters import baseline
from clusterproof.plugins.catalog.acceptance import Stage
from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.strict import Table, nearest
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.perf_validate import check_loads, check_pair_options, timeouts
from clusterproof.plugins.options.validate import check_options
from clusterproof.plugins.policy import find_policy, refuse_empty

RESERVED_OPTIONS = (  # options that accept sets itself, that write where it does not look, or that are for jobs
    *("--cluster", "--nodes", "--exclude", "--run", "--report", "--no-report", "--results", "--record", "--redact"),
    *("--resume", "--pairs", "--pairs-at-once", "--bundle", "--keep", "--history", "--since-last", "--report-url"),
    *("--fs-at-once", "--k8s-gate", "--refresh-catalog", "--save-baseline", "--incomplete", "--concerns", "--expect"),
    *("--instance-type", "--in-container"),
)


def option_words(given: Table) -> Iterator[str]:
    """The command-line arguments. Raises InventoryError."""
    groups = (*table.GROUPS.values(), *perf_table.GROUPS.values())
    known = {option.flag.removeprefix("--"): option for group in groups for option in group}
    as_typed = Namespace(**{option.dest: option.more.get("default") for option in known.values()})
    allowed = sorted(name for name in known if f"--{name}" not in RESERVED_OPTIONS)
    for name, value in given.values.items():
        if name not in allowed:
            why = (
                "accept sets that itself, or does without"
                if name in known
                else f"no option is called so{nearest(name, allowed)}"
            )
            raise InventoryError(
                f"{given.where}: {name!r:.60}: {why}; expected an option of clusterproof check, without --"
            )
        is_flag = known[name].more.get("action") == "store_true"
        if is_flag != isinstance(value, bool) or not isinstance(value, (bool, str, int, float)):
            raise InventoryError(
                f"{given.where}: {name} is {value!r:.40}; expected {'true or false' if is_flag else 'text or a number'}"
            )
        if expected := _expected(known[name], str(value)):
            raise InventoryError(f"{given.where}: {name} is {value!r:.40}; expected {expected}")
        setattr(as_typed, known[name].dest, value if is_flag else known[name].more.get("type", str)(value))
        if value is not False:
            yield f"--{name}" if is_flag else f"--{name}={value}"
    _require_sense(as_typed, given.where)


def _require_sense(option: Any, where: str) -> None:
    """Reject now what each run would reject. Raises InventoryError."""
    try:
        check_options(option)
        check_loads(option)
        check_pair_options(option)
        seconds = timeouts(option.load_timeout)
        require_time(option.dcgm_level, option.dcgm_parameters, option.stress_s, option.exact_s, seconds)
        if option.baseline:
            baseline.read(Path(option.baseline))
        find_policy(option.policy, Path.cwd())
        if option.policy:
            refuse_empty(option.policy, Path.cwd())
    except (pytest.UsageError, ValueError) as why:
        raise InventoryError(f"{where}: {str(why).removeprefix('--')}") from None


def _expected(option: table.Option, word: str) -> str:
    """What is expected instead of this value; empty if it is valid."""
    kind, choices = option.more.get("type", str), [*map(str, option.more.get("choices", ()))]
    if choices:
        return "" if word in choices else f"one of {', '.join(choices)}"
    try:
        value = kind(word) if option.dest != "pairs_budget" else perf_table.seconds_of(word)
    except ValueError:
        of_number = "a whole number" if kind is int else "a number"
        return "a time as 90s, 20m or 2h" if option.dest == "pairs_budget" else of_number
    return "a finite number" if isinstance(value, float) and not isfinite(value) else ""


def minutes(stage: Stage, options: Sequence[str]) -> float:
    """The approximate duration of one run of one batch, if these options need more than the stage's default."""
    given = {name: value for name, _, value in (word.partition("=") for word in options)}
    if stage.scope != "nodes":
        budget = given.get("--pairs-budget")
        return perf_table.seconds_of(budget) / 60 if budget else stage.minutes
    if "dcgm" not in stage.keyword:
        return stage.minutes
    more_s = float(given.get("--exact-s", EXACT_S)) - EXACT_S
    more_s += DCGM_SECONDS[int(given.get("--dcgm-level", 0)) or LoadOptions.dcgm_level]
    more_s -= DCGM_SECONDS[LoadOptions.dcgm_level]
    return stage.minutes + max(0.0, more_s) / 60
