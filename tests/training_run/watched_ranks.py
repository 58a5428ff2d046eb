"""Made-up `clusterproof watch` samples of rank processes, every ten seconds."""

from __future__ import annotations

from collections.abc import Callable

from clusterproof.plugins.training_run.rank_processes import RankLook, RankSeen
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData
from tests.training_run.watched import Change, readings

BEGAN_S, EVERY_S = 1_763_600_000.0, 10.0
JOB = "gpu001:29500"
WAITS, SLEEPS, COMPUTES = ("S", "futex_do_wait", 0.0), ("S", "hrtimer_nanosleep", 0.0), ("R", "", 1.0)
STOPPED, READS = ("T", "do_signal_stop", 0.0), ("D", "folio_wait_bit_common", 0.0)
STARVED = ("R", "", 0.01)  # by other programs on the machine
Doing = tuple[str, str, float]  # state, wait channel, share of a CPU used
Seen = Callable[[int, int], Doing | None]  # by rank and minute; None once it has ended


def training(rank: int, minute: int) -> Doing:
    """A rank that trains well: it waits in some samples, and always computes in between."""
    return ("S", "futex_do_wait", 0.4) if (rank + minute) % 3 else ("R", "", 0.4)


def hanging(**others: Doing | None) -> Seen:
    """All ranks train for five minutes; then some do as given (`rank3`), and the others wait."""
    return lambda rank, minute: training(rank, minute) if minute < 5 else others.get(f"rank{rank}", WAITS)


def seen(
    doing: Seen,
    *,
    ranks: int = 4,
    size: int = 4,
    minutes: int = 20,
    nodes: Callable[[int], str] = lambda _: "gpu001",
    gpus: Change | None = None,
    size_of_agents: int = 0,
    by_node: bool | None = None,
) -> TrainingRun:
    """The run with these samples, and on request its GPUs' samples.

    With a `size_of_agents` each node has a torchrun, to which Kubeflow gives the number of its pod as RANK.
    The nodes are read at once, or `by_node`, the last one first if that is true.
    """
    data, used, looks = RunData(), dict.fromkeys(range(ranks), 5.0), list[RankSeen]()
    pods = sorted({nodes(rank) for rank in range(ranks)} if size_of_agents else ())
    for number in range(int(60 / EVERY_S) * minutes):
        looks += [
            RankSeen(node, BEGAN_S + number * EVERY_S, RankLook(pod, size_of_agents, JOB, "S", "do_wait", 1.0))
            for pod, node in enumerate(pods)
            if (node, size_of_agents) != (nodes(pod), size)  # else the sampler takes that rank's process for both
        ]
        for rank in range(ranks):
            now = doing(rank, int(number * EVERY_S / 60))
            if now is None:
                continue
            state, wait, share = now
            used[rank] += share * EVERY_S
            look = RankLook(rank, size, JOB, state, wait, used[rank])
            looks.append(RankSeen(nodes(rank), BEGAN_S + number * EVERY_S, look))
    if by_node is not None:
        looks.sort(key=lambda look: look.node, reverse=by_node)
    data.add(looks, "made up")
    if gpus:
        data.add(readings(gpus, minutes), "made up")
    return TrainingRun("made-up", data)
