"""Output of a job whose tasks are torchruns, which only one of its files may show: no task is a rank in the others."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.case import Event
from clusterproof.plugins.case.launchers import without_tasks
from clusterproof.plugins.case.output import Output
from clusterproof.plugins.case.rank_nodes import OF_TASK, SAID, RankNodes
from clusterproof.plugins.core.record import replace


def of_one_job(outputs: Sequence[Output]) -> list[Output]:
    """The same, without what was taken for a rank's by the number of a task that is a torchrun."""
    if not (any(output.are_torchruns for output in outputs) or nodes_of_ranks(outputs).are_torchruns):
        return list(outputs)
    return [output if output.are_torchruns else _without_tasks(output) for output in outputs]


def nodes_of_ranks(outputs: Sequence[Output]) -> RankNodes:
    """The node and process of each rank according to all files."""
    joined = RankNodes()
    for output in outputs:
        nodes, pids = output.nodes_of_ranks, output.pids_of_ranks
        for rank in {**nodes, **pids}:
            joined.place(rank, nodes.get(rank, ""), output.reliability.get(rank, SAID), pids.get(rank))
    return joined


def _without_tasks(output: Output) -> Output:
    tasks = {rank: node for rank, node in output.nodes_of_ranks.items() if output.reliability.get(rank) == OF_TASK}
    return replace(
        output,
        events=tuple(_of_no_task(event, tasks, output) for event in output.events),
        outlived=tuple(_of_no_task(event, tasks, output) for event in output.outlived),
        nodes_of_ranks={rank: node for rank, node in output.nodes_of_ranks.items() if rank not in tasks},
        pids_of_ranks={rank: pid for rank, pid in output.pids_of_ranks.items() if rank not in tasks},
        ended=without_tasks(output.ended),
        labelled=frozenset(),
        are_torchruns=True,
    )


def _of_no_task(event: Event, tasks: dict[int, str], output: Output) -> Event:
    """An event without its task's number, or without the node of the task that has the number of its rank."""
    if event.source in output.of_tasks:
        return replace(event, rank=None)
    is_of_task = event.rank is not None and event.node == tasks.get(event.rank)
    return replace(event, node=output.node) if is_of_task else event
