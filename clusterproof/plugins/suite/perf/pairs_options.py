"""What the command line says of pairs of nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.options.perf_table import ALL, DOUBLING, FEWEST_NODES, FULL, QUICK, seconds_of

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.meters import MeterSettings
    from clusterproof.plugins.benchmarks.meters.baseline import BaselineFigure
    from clusterproof.plugins.benchmarks.pairwise.journal import Journal
    from clusterproof.plugins.evidence.pairs import Pair
    from clusterproof.plugins.options.parsed import Options

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class PairOptions:
    """The options of a run, checked."""

    which: str  # quick, full, or "" where the pairs are named
    groups: str  # doubling, all, or sizes with a comma between; "" for none
    asked: tuple[tuple[str, str], ...]
    at_once: int
    budget_s: float
    run_s: float
    seed: int | None
    resume: Path | None
    meter: str
    settings: MeterSettings
    launcher: str
    baseline: Path | None
    save_baseline: Path | None


def check_pair_options(option: Options) -> None:
    """Refuse what makes no sense, in any run. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--pairs-at-once", option.pairs_at_once, 1),
        ("--pair-timeout", option.pair_timeout, 1),
        ("--ranks-per-node", option.ranks_per_node, 1),
    ):
        if value is not None and not value >= least:
            raise pytest.UsageError(f"{flag} is {value:g}; expected at least {least:g}")
    for flag, text in (
        ("--mpirun-options", option.mpirun_options),
        ("--srun-options", option.srun_options or ""),
        ("--meter-options", option.meter_options),
    ):
        _check_words(flag, text)
    check_groups(option.groups)
    seconds(option.pairs_budget)
    size_bytes(option.meter_size)
    environment(option.meter_env)
    _asked(option.pairs)


def pair_options(option: Options) -> PairOptions:
    """The options of a run that measures pairs. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.meters import (
        MeterSettings,  # a prolog has no time for what it does not need
    )
    from clusterproof.plugins.evidence.pairs import RDMA_MESH

    check_pair_options(option)
    which = option.pairs if option.pairs in (QUICK, FULL) else ""
    return PairOptions(
        which=which,
        groups=option.groups,
        asked=_asked(option.pairs),
        at_once=option.pairs_at_once or 1_000_000,
        budget_s=seconds(option.pairs_budget),
        run_s=option.pair_timeout,
        seed=option.pairs_seed,
        resume=Path(option.resume) if option.resume else None,
        meter=option.meter or (RDMA_MESH if option.keyword.strip() == RDMA_MESH else ""),
        settings=MeterSettings(
            collective=option.collective,
            size_bytes=size_bytes(option.meter_size),
            ranks_per_node=option.ranks_per_node or 0,
            program=option.meter_program,
            options=option.meter_options,
            environment=environment(option.meter_env),
        ),
        launcher=option.launcher or "",
        baseline=Path(option.baseline) if option.baseline else None,
        save_baseline=Path(option.save_baseline) if option.save_baseline else None,
    )


def check_pair_files(option: Options) -> None:
    """Refuse a baseline and measurements that cannot be read, before anything is loaded. Raises pytest.UsageError."""
    if option.baseline:
        baseline_figures(Path(option.baseline))
    if option.resume:
        begun_before(Path(option.resume))


def baseline_figures(path: Path | None) -> tuple[BaselineFigure, ...]:
    """What a site measured before; empty where it names no file. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.meters import baseline  # what few runs name

    try:
        return baseline.read(path) if path else ()
    except baseline.BaselineError as problem:
        raise pytest.UsageError(str(problem)) from None


def begun_before(path: Path | None) -> list[Journal]:
    """The measurements that a run goes on with. Raises pytest.UsageError."""
    return [read_or_refuse(file) for file in journals_of(path)] if path else []


def journals_of(path: Path) -> list[Path]:
    """The files of measurements in a folder, or the one that is named."""
    from clusterproof.plugins.evidence.recording import PAIRWISE_FILES

    return sorted(path.glob(PAIRWISE_FILES)) if path.is_dir() else [path] if path.exists() else []


def read_or_refuse(path: Path) -> Journal:
    """A journal. Raises pytest.UsageError where it is none."""
    from clusterproof.plugins.benchmarks.pairwise.journal import JournalError, read

    try:
        return read(path)
    except JournalError as problem:
        raise pytest.UsageError(str(problem)) from None


def _check_words(flag: str, text: str) -> None:
    """Refuse words that no shell could take apart. Raises pytest.UsageError."""
    try:
        shlex.split(text)
    except ValueError as problem:
        raise pytest.UsageError(f"{flag} is {text!r:.80}: {problem}; expected words as a shell takes them") from None


def asked_pairs(asked: Iterable[tuple[str, str]], nodes: Collection[str]) -> tuple[Pair, ...]:
    """The pairs that a person named, of these nodes. Raises pytest.UsageError."""
    from clusterproof.plugins.evidence.pairs import pair

    for names in asked:
        for node in names:
            if node not in nodes:
                raise pytest.UsageError(f"--pairs names {node!r:.80}, which is not a node of this run; expected A~B,…")
    return tuple(dict.fromkeys(pair(*names) for names in asked))


def _asked(text: str) -> tuple[tuple[str, str], ...]:
    return () if text in (QUICK, FULL) else tuple(_named(text))


def _named(text: str) -> Iterable[tuple[str, str]]:
    for word in text.split(","):
        first, _, other = (part.strip() for part in word.partition("~"))
        if not first or not other or first == other:
            raise pytest.UsageError(f"--pairs is {word!r:.80}; expected quick, full, or A~B,… with two nodes each")
        yield first, other


def check_groups(text: str) -> None:
    """Refuse what `--groups` does not take. Raises pytest.UsageError."""
    sizes = text.split(",") if text not in ("", DOUBLING, ALL) else []
    if not all((re.fullmatch(r"\d{1,5}", size) and int(size) >= FEWEST_NODES) or size == ALL for size in sizes):
        raise pytest.UsageError(
            f"--groups is {text!r:.80}; expected doubling, all, or sizes of {FEWEST_NODES} nodes and more, as 4,16,all"
        )


def seconds(text: str) -> float:
    """The seconds of `--pairs-budget`. Raises pytest.UsageError."""
    try:
        return seconds_of(text)
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None


def size_bytes(text: str) -> int:
    """The bytes of `--meter-size`, 0 where it is not given. Raises pytest.UsageError."""
    size = re.fullmatch(r"(\d{1,15})([KMG]?)", text.upper())
    if text and (not size or not int(size[1])):
        raise pytest.UsageError(f"--meter-size is {text!r:.40}; expected bytes, or a number with K, M or G")
    return int(size[1]) * _BYTES[size[2]] if size else 0


def environment(text: str) -> dict[str, str]:
    """The variables of `--meter-env`. Raises pytest.UsageError."""
    try:
        variables = [word.partition("=") for word in shlex.split(text)]
    except ValueError as problem:
        raise pytest.UsageError(f"--meter-env is {text!r:.80}: {problem}; expected K=V …") from None
    for name, equals, _ in variables:
        if not equals or not re.fullmatch(r"[A-Za-z_]\w{0,99}", name):
            raise pytest.UsageError(f"--meter-env has {name!r:.80}; expected K=V …")
    return {name: value for name, _, value in variables}
