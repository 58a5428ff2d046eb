"""Combines a job's files, records and dumps into one case, and lists what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterproof.plugins.case import (
    RESOLUTION_S,
    Collected,
    Event,
    Lead,
    MissingKind,
    Offset,
    clocks,
    one_line,
    scheduler,
    watchdog,
)
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.launchers import without_tasks
from clusterproof.plugins.case.output import Output
from clusterproof.plugins.case.rank_nodes import OF_TASK, SAID, RankNodes
from clusterproof.plugins.case.recorder import recorder_events, recorder_leads
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run import rank_names


def joined(name: str, builder: CaseBuilder) -> Collected:
    """Everything that was found, combined."""
    builder.outputs[:] = _without_tasks(builder.outputs)
    if len(builder.objects) > 1:
        builder.lack(f"how the job ended: there are objects of several, {listed(sorted(builder.objects))}")
    job, has_parts = builder.job, builder.job.number in builder.heterogeneous
    nodes = job.nodes
    strangers = {fact.node for fact in builder.facts}.difference(nodes) if nodes else set()
    if strangers:
        builder.lack(f"evidence of nodes on which this job did not run is left out: {listed(strangers)}")
    ranks = _ranks_of(builder.outputs)
    of_ranks = ranks.nodes
    offsets = {**clocks.by_steps(_steps(builder.outputs, of_ranks)), **builder.clocks}
    of_program = [*(event for output in builder.outputs for event in output.events)]
    events = (*builder.events, *recorder_events(builder.dumps, builder.files_of_dumps), *of_program)
    others = {*of_ranks.values(), *(event.node for event in events)}.difference(nodes, [""]) if nodes else ()
    if others:
        builder.lack(f"the job's words are of nodes on which it did not run: {listed(sorted(others))}")
    watched = [
        node for node in builder.nodes_watched if node not in builder.nodes_with_log and (not nodes or node in nodes)
    ]
    _not_there(builder, nodes, watched)
    if left_out := builder.dumps_left_out:
        builder.lack(f"other dumps of {rank_names(sorted(left_out))} are left out: {listed(left_out.values())}")
    known = frozenset((*nodes, *builder.nodes_with_log, *watched))
    last = [output.last for output in builder.outputs if output.last is not None]
    outlived = (event for output in builder.outputs for event in output.outlived)
    return Collected(
        one_line(name),
        job,
        events=tuple(_by_one_clock(_placed(events, of_ranks, known), of_program, offsets)),
        outlived=tuple(clocks.corrected_event(event, offsets) for event in _placed(outlived, of_ranks, known)),
        facts=tuple(
            replace(
                clocks.corrected_fact(fact, offsets), is_of_job=scheduler.is_of_job(fact.jobs, job.number, has_parts)
            )
            for fact in builder.facts
            if fact.node not in strangers
        ),
        leads=tuple(_leads(builder, of_ranks)),
        nodes_of_ranks=of_ranks,
        pids_of_ranks=ranks.pids,
        nodes_with_log=tuple(dict.fromkeys((*builder.nodes_with_log, *watched))),
        nodes_in_part=tuple(dict.fromkeys((*builder.nodes_in_part, *watched))),
        logs_begin={node: clocks.corrected_begin(of, offsets.get(node)) for node, of in builder.logs_begin.items()},
        nodes_checked=tuple(builder.nodes_checked),
        progress=max(_progress(builder.outputs, of_ranks, offsets), default=None),
        stepped=_stepped(builder.outputs),
        last=max(last, default=None),
        lived=max((output.lived for output in builder.outputs if output.lived is not None), default=None),
        read=tuple(number_of(count, what, _many(what)) for what, count in builder.counts.items()),
        lacks=tuple(builder.lacks),
        cluster=builder.cluster or ("k8s:" if builder.nodes_of_pods else ""),
        names={node: whole for node, whole in builder.nodes_of_pods.items() if node},
        clocks={node: off for node, off in sorted(offsets.items()) if node in nodes or not nodes},
    )


def _stepped(outputs: Sequence[Output]) -> float | None:
    """By when the last step was logged: according to the files whose steps have times, if there are any."""
    known = [(output.progress, output.stepped) for output in outputs if output.stepped is not None]
    of_times = (ends for begins, ends in known if begins is not None and ends - begins <= RESOLUTION_S)
    return max(of_times, default=max((ends for _, ends in known), default=None))


def _without_tasks(outputs: Sequence[Output]) -> list[Output]:
    """The outputs without what was taken for a rank's by its task's number, if the tasks are torchruns.

    Only one of a job's files may show that they are.
    """
    if not (any(output.are_torchruns for output in outputs) or _ranks_of(outputs).are_torchruns):
        return list(outputs)
    return [output if output.are_torchruns else _of_ranks_alone(output) for output in outputs]


def _ranks_of(outputs: Sequence[Output]) -> RankNodes:
    """The node and process of each rank according to all files."""
    whole = RankNodes()
    for output in outputs:
        nodes, pids = output.nodes_of_ranks, output.pids_of_ranks
        for rank in {**nodes, **pids}:
            whole.place(rank, nodes.get(rank, ""), output.reliability.get(rank, SAID), pids.get(rank))
    return whole


def _of_ranks_alone(output: Output) -> Output:
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


def _steps(outputs: Iterable[Output], of_ranks: Mapping[int, str]) -> Iterator[tuple[str, clocks.Times]]:
    """Each rank's node, and the times of its steps."""
    for output in outputs:
        for rank, times in output.times_of_steps.items():
            yield output.node or (of_ranks.get(rank, "") if rank is not None else ""), times


def _progress(outputs: Iterable[Output], of_ranks: Mapping[int, str], offsets: Mapping[str, Offset]) -> Iterator[float]:
    """When the last steps were; corrected to one clock if the line's node is known."""
    for output in outputs:
        if output.progress is not None and not any(output.times_of_steps.values()):
            yield output.progress
    for node, times in _steps(outputs, of_ranks):
        off = offsets.get(node)
        yield from ((time - off.seconds if off else time) for time in times.values())


def _by_one_clock(
    events: Iterable[Event], of_program: Iterable[Event], offsets: Mapping[str, Offset]
) -> Iterator[Event]:
    """Correct the times written by nodes; a scheduler has its own clock."""
    theirs = {(event.source, event.sign, event.rank) for event in of_program}
    for event in events:
        own = (event.source, event.sign, event.rank) in theirs
        yield clocks.corrected_event(event, offsets) if own else event


def _placed(events: Iterable[Event], of_ranks: Mapping[int, str], nodes: frozenset[str]) -> Iterator[Event]:
    """Events with their nodes, where these can be determined."""
    for event in events:
        yield event if event.node else replace(event, node=_node(event, of_ranks, nodes))


def _node(event: Event, of_ranks: Mapping[int, str], nodes: frozenset[str]) -> str:
    """The node of an event: where its rank ran, else the job's node in its file's name."""
    if event.rank is not None and of_ranks.get(event.rank):
        return of_ranks[event.rank]
    named = nodes.intersection(re.split(r"[^A-Za-z0-9-]+", event.source))
    return next(iter(named)) if len(named) == 1 else ""


def _leads(builder: CaseBuilder, nodes: Mapping[int, str]) -> Iterator[Lead]:
    """Ranks that differ: waited for according to dumps, named by a desync, or silent where others are not."""
    # By a launcher, perhaps before it could write a dump:
    was_ended = any(output.ended or output.are_torchruns for output in builder.outputs)
    every = recorder_leads(builder.dumps, nodes, without_dump=not was_ended)
    of_dumps = [lead for lead in every if lead.rank not in builder.dumps_not_read]
    named = {lead.rank for lead in of_dumps}
    yield from of_dumps
    yield from (replace(lead, node=lead.node or nodes.get(lead.rank, "")) for lead in builder.ras_leads)
    by_watchdogs = watchdog.leads((output.watchdog for output in builder.outputs), nodes)
    yield from (lead for lead in by_watchdogs if lead.rank not in named)
    for output in builder.outputs:
        for rank, message in output.ended.items():
            yield Lead(rank, message, nodes.get(rank, ""), is_late=False)
    for rank in _silent(builder):
        yield Lead(rank, "does not say that it waited, as the others do", nodes.get(rank, ""))


def _silent(builder: CaseBuilder) -> list[int]:
    """The few ranks that do not report a timeout although the others do.

    In a file of all ranks, only a single one counts: the launcher may have killed some before they reported.
    """
    waited = {rank for output in builder.outputs for rank in output.timed_out}
    of_files = sorted(builder.ranks - waited)
    if builder.ranks:
        return of_files if waited and len(of_files) * 2 < len(builder.ranks) else []
    labelled = {rank for output in builder.outputs for rank in output.labelled}
    of_labels = sorted(labelled - waited)
    return of_labels if waited and len(of_labels) == 1 and len(labelled) > 2 else []


def _not_there(builder: CaseBuilder, nodes: Iterable[str], watched: Sequence[str]) -> None:
    """Add what a case needs but nobody left."""
    with_log = {*builder.nodes_with_log, *watched}
    without = [node for node in nodes if node not in with_log]
    if watched:
        builder.lack(f"kernel logs of {listed(watched)}, but for what a watch recorded", MissingKind.LOGS_OF_SOME)
    if not with_log:
        how = "without it no hardware is blamed (journalctl -k -o short-iso-precise)"
        builder.lack(f"no kernel log of any node: {how}", MissingKind.LOGS)
    elif without:
        builder.lack(f"no kernel log of {listed(without)}", MissingKind.LOGS_OF_SOME)
    if not (builder.jobs or builder.objects) and not any(
        source.row.read_in == ("kubernetes",) for source in builder.events
    ):
        how = "sacct, scontrol show job, kubectl get pods -o json"
        builder.lack(f"no record of the job by its scheduler ({how})", MissingKind.RECORD)
    if not builder.outputs:
        builder.lack("no output of the job", MissingKind.OUTPUT)


def _many(what: str) -> str:
    """`files of output`."""
    word, _, rest = what.partition(" of ")
    return f"{word}s of {rest}" if rest else ""
