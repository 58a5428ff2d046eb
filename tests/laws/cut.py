"""The law of cuts: no report of a run that ended early calls a node fit whose checks did not all end."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.builders.cuts import FULL_DISK, MAX_FAIL, SIGNALS, WORKER, Cut, Ran, cuts
from tests.builders.wheel import ROOT
from tests.laws.losses import Loss, Tried

COMMAND = (f"--cluster=replay:{ROOT / 'fixtures' / 'demo'}",)
SEED = 26
MOMENTS = 5  # for each way to cut a run
RESULTS = 1_900  # of a whole run, at least; as many failures, and tests per worker of two
LAST = {MAX_FAIL: 12, WORKER: 80}


def every_cut() -> list[Cut]:
    """Each way to cut a run, at fixed moments."""
    moments = random.Random(SEED)
    ways = [(way, is_large) for way in (*SIGNALS, MAX_FAIL) for is_large in (False, True)]
    return [
        Cut(way, moments.randrange(1, LAST.get(way, RESULTS)), is_large)
        for way, is_large in (*ways, (FULL_DISK, False), (WORKER, False))
        for _ in range(MOMENTS)
    ]


def tried(ways: list[Cut]) -> Tried:
    """Cut a run in each of these ways."""
    with tempfile.TemporaryDirectory() as folder:
        losses = [loss for ran in cuts(COMMAND, ways, Path(folder)) for loss in wrong(ran)]
    return Tried(len(ways), tuple(losses))


def wrong(ran: Ran) -> Iterator[Loss]:
    """What is wrong with a cut run."""
    where = f"{ran.cut.by} after {ran.cut.after}{' of a large run' * ran.cut.is_large}"
    expected = 1 if ran.cut.by == MAX_FAIL else 2
    if ran.called_fit:
        yield Loss("a node that is not proven", where, "", "not fit", f"{ran.called_fit} called fit: {dict(ran.fit)}")
    if ran.code != expected:
        yield Loss("exit code", where, "", str(expected), str(ran.code))
    if ran.cut.by != FULL_DISK:  # there, everything was evaluated but its reports are incomplete
        silent = [form for form, says in ran.says_so.items() if not says]
        yield from (Loss(form, where, "", "INTERRUPTED", "nothing of it") for form in silent)
