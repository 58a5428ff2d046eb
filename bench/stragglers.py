"""How often the slow rank of a training run is named, and how often a healthy rank is.

Simulates runs of 4 to 1,024 ranks in one to eight pipeline stages, and compares with a plain rule (the tenth percentile
over steps of a rank's compute as a share of its peers'). The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import exp
from random import Random

from clusterproof.checks.run.test_pace import test_slow_rank
from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Concern, Incomplete
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from scripts.arguments import Arguments, count, share

SIZES = (4, 8, 16, 64, 256, 1024)
STEPS = (20, 50, 200)
NOISES = (0.02, 0.05, 0.10)
SLOWER = (0.05, 0.07, 0.10, 0.20, 0.50)
UNEVEN = ("uneven sequence lengths", "one busy replica")
RANKS_A_CELL = 1_024  # healthy ones
RUNS_A_CELL = 100  # with a slow rank, for runs of four ranks; fewer for more ranks
LOTTERY, MISSING, WARM_UP, SEQUENCES, BUSY = 0.005, 0.03, 3, 0.2, 1.2
GOAL_SLOWER, GOAL_NOISE = 0.10, 0.05
PROCESSES = 2


@record
class Cell:
    """Runs of one kind; `slower` is set where one rank is slow."""

    what: str
    size: int
    steps: int
    noise: float
    runs: int
    slower: float = 0.0


def cells(share: float, sizes: Sequence[int] = SIZES) -> Iterator[Cell]:
    """All cells."""
    for size in sizes:
        for steps in STEPS:
            for noise in NOISES:
                for what in ("healthy", *UNEVEN):
                    yield Cell(what, size, steps, noise, max(1, round(share * RANKS_A_CELL / size)))
                runs = max(2, round(share * RUNS_A_CELL * 4 / size))
                for slower in SLOWER:
                    yield Cell("one slow rank", size, steps, noise, runs, slower)


def simulated(cell: Cell, random: Random) -> tuple[TrainingRun, int]:
    """A run and its slow rank, or -1 if it has none."""
    stages = random.choice([count for count in (1, 2, 4, 8) if cell.size // count >= 4])
    replicas = cell.size // stages
    positions = [Position(rank, rank // replicas, rank % replicas) for rank in range(stages * replicas)]
    slow = random.randrange(len(positions)) if cell.slower else -1
    base = [1 + 0.6 * random.random() for _ in range(stages)]
    busy = random.randrange(replicas) if cell.what == "one busy replica" and stages > 1 else -1
    swing = SEQUENCES if cell.what == "uneven sequence lengths" else 0.0
    own = {
        position: base[position.stage]
        * exp(random.gauss(0, LOTTERY))
        * (1 + cell.slower * (position.rank == slow))
        * (BUSY if position.replica == busy else 1)
        for position in positions
    }
    run_data = RunData(positions={position.rank: position for position in positions})
    run_data.compute.update({(position.rank, "forward"): {} for position in positions})
    for number in range(cell.steps + 10):
        work = [exp(random.gauss(0, swing)) for _ in range(replicas)] if swing else [1.0] * replicas
        for position in positions:
            if random.random() >= MISSING:
                seconds = own[position] * work[position.replica or 0] * exp(random.gauss(0, cell.noise))
                if number < WARM_UP:
                    seconds *= 1 + 9 * random.random()
                run_data.compute[position.rank, "forward"][100 + number] = (seconds, 1)
    return TrainingRun("simulated", run_data), slow


def by_ours(run: TrainingRun) -> dict[int, str]:
    """The check's verdict on each rank that does not pass."""
    verdicts = {}
    for rank in run.ranks:
        try:
            test_slow_rank(rank)
        except (AssertionError, Concern):
            verdicts[rank.position.rank] = "named"
        except Incomplete:
            verdicts[rank.position.rank] = "incomplete"
    return verdicts


def by_plain(run: TrainingRun) -> dict[int, str]:
    """The same by the tenth percentile alone."""
    least = PACKAGED.threshold("run.slow_rank_concern")
    return {rank: "named" for rank, pace in run.paces.items() if pace.low >= least}


RULES = {"ours": by_ours, "plain": by_plain}


def run(cell: Cell) -> tuple[Cell, Counter[str]]:
    """Count what each rule says: `ours: slow named`, `ours: healthy incomplete`, …"""
    random = Random(f"{cell.what} {cell.size} {cell.steps} {cell.noise} {cell.slower}")
    counts: Counter[str] = Counter()
    for _ in range(cell.runs):
        run, slow = simulated(cell, random)
        for name, rule in RULES.items():
            verdicts = rule(run)
            if slow >= 0:
                counts[f"{name}: slow {verdicts.pop(slow, 'missed')}"] += 1
            counts.update(f"{name}: healthy {word}" for word in verdicts.values())
            counts[f"{name}: healthy"] += len(run.data.positions) - (slow >= 0)
    return cell, counts


def simulate(share: float, sizes: Sequence[int] = SIZES, processes: int = PROCESSES) -> dict[Cell, Counter[str]]:
    """Simulate every cell."""
    if processes < 2:
        return dict(map(run, cells(share, sizes)))
    with ProcessPoolExecutor(processes) as pool:
        return dict(pool.map(run, cells(share, sizes)))


def summed(by_cell: dict[Cell, Counter[str]], **of: object) -> Counter[str]:
    """The counts of all cells that match: `noise=0.05`."""
    counts_of_cells = (
        counts for cell, counts in by_cell.items() if all(getattr(cell, key) == value for key, value in of.items())
    )
    return sum(counts_of_cells, Counter[str]())


def table(by_cell: dict[Cell, Counter[str]]) -> str:
    """The confusion table, in Markdown."""
    head = ["one rank is slower by", "noise", "named", "incomplete", "missed", "named by the plain rule"]
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for slower in SLOWER:
        for noise in NOISES:
            counts = summed(by_cell, slower=slower, noise=noise)
            shares = [_share(counts, "ours", word) for word in ("named", "incomplete", "missed")]
            rows.append(
                " | ".join((f"| {slower:.0%}", f"{noise:.0%}", *shares, f"{_share(counts, 'plain', 'named')} |"))
            )
    head = ["nobody is slow", "noise", "healthy ranks", "named", "incomplete", "named by the plain rule"]
    rows += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for what in ("healthy", *UNEVEN, "one slow rank"):
        for noise in NOISES:
            counts = summed(by_cell, what=what, noise=noise)
            keys = ("ours: healthy", "ours: healthy named", "ours: healthy incomplete", "plain: healthy named")
            rows.append(f"| {what} | {noise:.0%} | " + " | ".join(f"{counts[key]:,}" for key in keys) + " |")
    return "\n".join(rows)


def _share(counts: Counter[str], rule: str, word: str) -> str:
    total = sum(counts[f"{rule}: slow {answer}"] for answer in ("named", "incomplete", "missed"))
    return f"{counts[f'{rule}: slow {word}'] / total:.1%}" if total else "–"


def figures(by_cell: dict[Cell, Counter[str]]) -> dict[str, float]:
    """The figures that the goals concern."""
    goal, whole = summed(by_cell, slower=GOAL_SLOWER, noise=GOAL_NOISE), summed(by_cell)
    slow = sum(goal[f"ours: slow {word}"] for word in ("named", "incomplete", "missed"))
    return {
        "named_10pct_at_5pct": goal["ours: slow named"] / slow,
        "healthy_ranks": whole["ours: healthy"],
        "flagged": whole["ours: healthy named"],
    }


def main(arguments: Sequence[str]) -> None:
    """Print the tables, and the figures as one JSON object."""
    parser = Arguments("scripts/simulate stragglers", __doc__)
    parser.add_argument("share", type=share, nargs="?", default=1.0, help="0.1: a tenth of the cases")
    parser.add_argument("--ranks", type=count, default=SIZES[-1], help=f"of the largest runs (default {SIZES[-1]})")
    option = parser.parse_args(arguments)
    by_cell = simulate(option.share, [size for size in SIZES if size <= option.ranks] or SIZES[:1])
    print(table(by_cell))
    for steps in STEPS:
        counts = summed(by_cell, slower=GOAL_SLOWER, noise=GOAL_NOISE, steps=steps)
        arguments = ", ".join(f"{_share(counts, 'ours', word)} {word}" for word in ("named", "incomplete", "missed"))
        print(f"10 % at 5 % noise in {steps} steps: {arguments}")
    print(json.dumps(figures(by_cell)))


if __name__ == "__main__":
    main(sys.argv[1:])
