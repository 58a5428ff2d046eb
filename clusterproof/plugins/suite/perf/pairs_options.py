"""The options for pairs of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clusterproof.plugins.options.perf_table import FULL, QUICK
from clusterproof.plugins.options.perf_validate import (
    budget_s,
    check_pair_options,
    environment,
    named_pairs,
    size_bytes,
)

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.meters import MeterSettings
    from clusterproof.plugins.benchmarks.meters.baseline import BaselineFigure
    from clusterproof.plugins.benchmarks.pairwise.journal import Journal
    from clusterproof.plugins.evidence.pairs import Pair
    from clusterproof.plugins.options.parsed import Options

EARLIER = ".before"  # ends the names of measurements that another run of the same folder had


@dataclass(frozen=True, slots=True)
class PairOptions:
    """The options of pairwise tests of a run, checked."""

    which: str  # quick, full, or "" if the pairs are named
    groups: str  # doubling, all, or comma-separated sizes; "" for none
    named_pairs: tuple[tuple[str, str], ...]
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


def pair_options(option: Options) -> PairOptions:
    """The pair options of a run. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.meters import (
        MeterSettings,  # a prolog does not need it
    )
    from clusterproof.plugins.evidence.pairs import RDMA_MESH

    check_pair_options(option)
    which = option.pairs if option.pairs in (QUICK, FULL) else ""
    return PairOptions(
        which=which,
        groups=option.groups,
        named_pairs=named_pairs(option.pairs),
        at_once=option.pairs_at_once or 1_000_000,
        budget_s=budget_s(option.pairs_budget),
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
    """Reject an unreadable baseline or measurements before any load starts. Raises pytest.UsageError."""
    if option.baseline:
        baseline_figures(Path(option.baseline))
    if option.resume:
        begun_before(Path(option.resume))


def baseline_figures(path: Path | None) -> tuple[BaselineFigure, ...]:
    """A site's earlier measurements; empty if no file is named. Raises pytest.UsageError."""
    from clusterproof.plugins.benchmarks.meters import baseline  # few runs name one

    try:
        return baseline.read(path) if path else ()
    except baseline.BaselineError as problem:
        raise pytest.UsageError(str(problem)) from None


def begun_before(path: Path | None) -> list[Journal]:
    """The measurements that a run continues. Raises pytest.UsageError."""
    return [read_or_refuse(file) for file in journals_of(path)] if path else []


def journals_of(path: Path) -> list[Path]:
    """The measurement files in a folder, or the named file."""
    from clusterproof.plugins.evidence.recording import PAIRWISE_FILES

    return sorted(path.glob(PAIRWISE_FILES)) if path.is_dir() else [path] if path.exists() else []


def set_aside(folder: Path, resumed: Path | None) -> None:
    """Rename measurements of an earlier run in the folder that this one does not continue. Raises OSError."""
    continued = {file.resolve() for file in journals_of(resumed)} if resumed else set()
    for file in journals_of(folder):
        if file.resolve() not in continued:
            file.replace(f"{file}{EARLIER}")


def read_or_refuse(path: Path) -> Journal:
    """Read a journal. Raises pytest.UsageError if it is invalid."""
    from clusterproof.plugins.benchmarks.pairwise.journal import JournalError, read

    try:
        return read(path)
    except JournalError as problem:
        raise pytest.UsageError(str(problem)) from None


def pairs_among(named: Iterable[tuple[str, str]], nodes: Collection[str]) -> tuple[Pair, ...]:
    """The pairs that the user named, among these nodes. Raises pytest.UsageError."""
    from clusterproof.plugins.evidence.pairs import pair

    for names in named:
        for node in names:
            if node not in nodes:
                raise pytest.UsageError(f"--pairs names {node!r:.80}, which is not a node of this run; expected A~B,…")
    return tuple(dict.fromkeys(pair(*names) for names in named))
