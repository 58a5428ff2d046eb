"""Additional data on the demo cluster's page, so that a newcomer sees every picture.

Nineteen earlier runs, measurements between nodes, and a training run with a slow rank; all of it simulated, as the page
says. It affects no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports.history import FINE, Entry, Pair, Past, PastRun
from clusterproof.reports.history.past import read_past
from clusterproof.reports.run import Run

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
    from clusterproof.plugins.training_run.run import TrainingRun

PICTURES = DEMO / "pictures"
HISTORY, PAIRS, STEPS = "history.sqlite", "pairwise.jsonl", "steps.jsonl"
RUNS = 20
DAY_S = 86_400.0
WORDS = "simulated here: the runs before it, the bandwidth between nodes, the training run"


def is_demo(run: Run) -> bool:
    """Whether the run is over the packaged cluster, not redacted."""
    return (
        not run.is_redacted
        and run.cluster.connection == "replay"
        and run.cluster.settings.get("recording") == str(DEMO)
    )


def with_pictures(run: Run) -> Run:
    """The demo's run with simulated data where it has none; any other run unchanged, also if files are missing."""
    if not is_demo(run):
        return run
    with suppress(ClusterproofError, OSError):
        run = replace(run, past=_past(run, read_past(PICTURES / HISTORY, run.cluster.name, RUNS)))
        if run.between is None:
            run = replace(run, between=_between(PICTURES / PAIRS))
        if run.training is None:
            run = replace(run, training=_training(PICTURES / STEPS))
    return run


def _past(run: Run, simulated: Past) -> Past:
    """The simulated earlier runs, a day apart, with the demo's own run as the last."""
    own = run.past if run.past and run.past.runs else _only(run)
    before = simulated.runs[-(RUNS - len(own.runs)) :] if len(own.runs) < RUNS else ()
    numbers = {old.number: index - len(before) for index, old in enumerate(before)}
    first = own.runs[0].began
    earlier = (replace(old, number=numbers[old.number], began=first + numbers[old.number] * DAY_S) for old in before)
    tracks: dict[Pair, tuple[Entry, ...]] = {
        pair: tuple(replace(entry, run=numbers[entry.run]) for entry in track if entry.run in numbers)
        for pair, track in simulated.tracks.items()
    }
    passed = tuple(Entry(number, Verdict.PASS, Verdict.PASS) for number in numbers.values())
    now = own.runs[-1].number
    fine = {(result.check, result.node) for result in run.results if result.verdict in FINE}
    for pair in dict.fromkeys((*tracks, *own.tracks)):
        later = own.tracks.get(pair, ())
        if not later and pair in fine:
            later = (Entry(now, Verdict.PASS, Verdict.PASS),)
        tracks[pair] = (*tracks.get(pair, passed), *later)
    measured = {
        pair: (
            *((numbers[number], measured) for number, measured in series if number in numbers),
            *own.measured.get(pair, ()),
        )
        for pair, series in simulated.measured.items()
    }
    return Past((*earlier, *own.runs), tracks, own.identities, measured)


def _only(run: Run) -> Past:
    """A history of this run alone, if there is no history."""
    began = run.began.timestamp()
    nodes = len({result.node for result in run.results if result.is_of_node})
    entries: Mapping[Pair, tuple[Entry, ...]] = {
        (result.check, result.node): (Entry(1, result.verdict, result.verdict),)
        for result in run.results
        if result.verdict not in FINE
    }
    return Past((PastRun(run.cluster.name, began, began + run.seconds, nodes=nodes, number=1),), entries)


def _between(path: Path) -> PairwiseRun:
    from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
    from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun  # few runs measure pairs
    from clusterproof.plugins.benchmarks.pairwise.journal import read

    return PairwiseRun((Campaign(read(path)),))


def _training(path: Path) -> TrainingRun:
    from clusterproof.plugins.training_run.reading import read_run  # few runs evaluate a training run

    return replace(read_run([str(path)]), name="llama-70b")
