"""Reads output of ranks and launchers line by line. The job's user can write it, so it blames no node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.case import NO_TIME, Event, Span, label, one_line
from clusterproof.plugins.case.clocks import Clock, without
from clusterproof.plugins.case.exceptions import OF_MPIRUN, UNCAUGHT, Exceptions, Key, Messages, rest_of
from clusterproof.plugins.case.launchers import FirstEnd, TorchrunReport, without_tasks
from clusterproof.plugins.case.rank_nodes import OF_TASK, SAID, RankNodes
from clusterproof.plugins.case.slurms_lines import SlurmsLines
from clusterproof.plugins.case.survived import LastLines, LastStep, Steps, TracebackReader, as_logged, step_of
from clusterproof.plugins.case.watchdog import Watchdog, waited_s
from clusterproof.plugins.catalog.causes import Sign, limits, sign_of, signs
from clusterproof.plugins.core.record import field, record, replace

LONGEST_LINE = 2_000  # characters of a line that are read
LONGEST_WRAPPED = 16_000  # for a line with the prefix of its container runtime
LEFT_OUT = "[... left out ...]"  # between the beginning and the end of a long file

_RANK = re.compile(r"\[rank=?(\d{1,7})\]")
_LABEL = re.compile(  # from mpirun, from srun -l; and behind it PyTorch's own rank
    rf"\s{{0,7}}(?:(?:{OF_MPIRUN}:?|(\d{{1,7}}): ) {{0,4}})?(?:\[rank(\d{{1,7}})\]:)?"
)
_SRUN = re.compile(r"srun: error: ([\w.\[\],-]{1,1000}): tasks? (\d{1,7})([,:\d -]{0,300}): ")
_MPIRUN = re.compile(r"process rank (\d{1,7}) with PID \d{1,10} on node ([\w.-]{1,253}) exited on(?: signal|$)")
_MEGATRON = re.compile(  # of a result that it computes again, or of NaN
    r"\bRank (\d{1,7})(?:, node |: found NaN in local forward loss calculation\. Device: \d{1,3}, node: )"
    r"([A-Za-z0-9][\w.-]{0,252})(?:, device \d{1,3}, iteration \d|$)"
)
_NODE_FAILURE = re.compile(
    r"(?:Node failure on|Task launch for \S{1,64} failed on node|Remote daemon: \[\S{1,300}\] on node) "
    r"([A-Za-z0-9][\w.-]{0,252})"
)


@record
class OutputSource:
    """Which rank, node or launcher wrote a file, as far as its name says it."""

    file: str
    rank: int | None = None
    node: str = ""
    is_of_task: bool = False  # whether the rank is the number of a launcher's task


@record
class Output:
    """The contents of a file of output: signs, where ranks ran, and how far the job came."""

    events: tuple[Event, ...]
    outlived: tuple[Event, ...]  # the job continued after these
    nodes_of_ranks: dict[int, str]
    progress: float | None
    stepped: float | None  # by when the last step was logged at the latest; infinite if no time stands behind it
    last: float | None
    lived: float | None  # time of the last line that is about no end
    watchdog: Watchdog
    ended: dict[int, str]  # ranks whose end a launcher reported first, and how
    timed_out: frozenset[int]  # ranks that report that they waited
    labelled: frozenset[int] = frozenset()  # ranks whose lines the launcher labels in a file of all
    pids_of_ranks: Mapping[int, int] = field(default_factory=dict)  # according to NCCL and torchrun
    times_of_steps: Mapping[int | None, Mapping[int, float]] = field(default_factory=dict)  # the last ones of each rank
    node: str = ""  # where all of it ran
    reliability: Mapping[int, float] = field(default_factory=dict)  # of the ranks' nodes, as in rank_nodes.py
    are_torchruns: bool = False  # whether the tasks of a launcher are no ranks
    of_tasks: frozenset[str] = frozenset()  # the sources of events whose rank is a task's number


class OutputReader:
    """Reads the lines of one run, in their order."""

    def __init__(self, source: OutputSource, clock: Clock) -> None:
        self.source = source
        self.clock = clock
        self.found: dict[Key, Event] = {}
        self.open: dict[Key, None] = {}  # found since the last line with a time
        self.lines: dict[Key, int] = {}  # of each
        self.outlived: dict[Key, Event] = {}
        self.steps = Steps()
        self.ranks = RankNodes()
        self.torchrun_report = TorchrunReport(clock)
        self.exceptions = Exceptions()
        self.messages = Messages()
        self.survived = TracebackReader()
        self.untold: dict[int | None, Key] = {}  # for each rank, among the findings
        self.stamp = NO_TIME
        self.is_stamped = False  # whether the current line has a time
        self.of_slurm = SlurmsLines()
        self.last_lines = LastLines()
        self.earlier: dict[Key, Event] = {}  # long before another of that sign
        self.progress: float | None = None
        self.last_step = LastStep()
        self.watchdog = Watchdog()
        self.timed_out: set[int] = set()
        self.labelled: set[int] = set()
        self.is_of_task = False  # whether the current line's rank is a launcher's task
        self.of_tasks: set[str] = set()  # events of such lines
        self.first_end = FirstEnd()

    def take(self, number: int, line: str, wrote: str = "") -> None:
        """Process a line; `wrote` is the time that the container runtime gives it, if any."""
        self._take_stamp(self.of_slurm.time_of("" if wrote else line, self.clock.of(wrote or line), self.stamp))
        rank, node = self._source_of(line)
        if (step := step_of(line)) is not None:
            self.progress = self.stamp.begins if self.stamp.begins is not None else self.progress
            stepped = self.stamp if self.is_stamped else NO_TIME
            self.last_step.add(stepped)
            self.steps.add(number, rank, step, stepped)
        self.watchdog.take(line, rank)
        failure = self.torchrun_report.take(line)
        if failure:
            if failure.local_rank:
                self.ranks.forget_tasks()
            rank, node, self.is_of_task = failure.rank, self.source.node or failure.node, False
            self.ranks.place(rank, node, pid=failure.pid)
            node = node or self.ranks.nodes.get(rank, "")
        self.first_end.take(line, rank if failure else None)
        traceback_line = self.survived.take(number, line, rank)
        if traceback_line.is_left_out or traceback_line.is_end:
            self.exceptions.forget(rank)
            if untold := self.untold.pop(rank, None):
                self._forget(untold)
        sign = None if traceback_line.is_left_out else traceback_line.sign or sign_of("output", line)
        self.last_lines.add(rank, self.stamp if self.is_stamped else NO_TIME, sign)
        if traceback_line.is_left_out:
            return
        has_own_time = self.is_stamped and not wrote
        if not has_own_time and (vaguer := self.messages.first_of(line, rank, sign)):
            self._forget(vaguer)  # the event of an exception, of which this line of its message says more
        if sign:
            when = failure.when if failure and failure.when.is_known else None
            self._take_sign(traceback_line.sign or as_logged(line, sign), number, line, rank, node, when)
        self._take_exception(number, line, rank, node, sign)

    def _take_exception(self, number: int, line: str, rank: int | None, node: str, sign: Sign | None) -> None:
        """Keep an exception as lost until its rest arrives; one that no sign matches, in its own words."""
        if line == LEFT_OUT:
            for untold in self.untold.values():
                self._forget(untold)
            self.untold.clear()
            self.exceptions.drop_incomplete()
            self.survived = TracebackReader()
        if self.exceptions.completes(line, rank, sign):
            self._forget(self.untold.pop(rank))
            if not sign:
                self._take_sign(signs()[UNCAUGHT], number, rest_of(line), rank, node, None)
        if begun := self.exceptions.begins(line, rank, sign):
            self._take_sign(signs()[begun], number, rest_of(line), rank, node, None)
            self.untold[rank] = begun, rank, node

    def _forget(self, key: Key) -> None:
        self.found.pop(key, None)
        self.open.pop(key, None)

    def _take_stamp(self, stamp: Span) -> None:
        self.is_stamped = stamp.is_known
        if stamp.is_known:
            placed = {} if self.of_slurm.is_now else self.of_slurm.placed(stamp, self.stamp)
            for key in placed.keys() & self.found.keys():
                self.found[key] = replace(self.found[key], when=placed[key])
            for key in self.open:
                self.found[key] = replace(self.found[key], when=Span(self.found[key].when.begins, stamp.ends))
            self.open.clear()
            self.stamp = stamp
            self.last_step.take_time(stamp)

    def _set_aside(self, key: Key, to: dict[Key, Event]) -> None:
        """Keep it apart from what comes later: the first line of it, and how many there were."""
        event, before = self.found[key], to.get(key)
        to[key] = replace(before, count=before.count + event.count) if before else event
        self._forget(key)

    def _take_sign(self, sign: Sign, number: int, line: str, rank: int | None, node: str, when: Span | None) -> None:
        key = sign.name, rank, node
        waiting_s = waited_s(line) if sign.hang else 0.0
        if sign.hang and rank is not None:
            self.timed_out.add(rank)
        if key in self.found and self.steps.has_outlived(sign.name, rank, self.lines[key]):
            self._set_aside(key, self.outlived)
        elif key in self.found and self.last_lines.ran_s(self.found[key]) > limits().before_s:
            self._set_aside(key, self.earlier)
        if key in self.found:
            self.found[key] = replace(self.found[key], count=self.found[key].count + 1)
            return
        span = when or (self.stamp if self.is_stamped else Span(self.stamp.begins, None))
        self.found[key] = Event(
            sign.name,
            one_line(without(line)),
            f"{self.source.file}:{number}",
            span,
            label(node),
            rank,
            waited_s=waiting_s,
        )
        self.lines[key] = number
        if self.of_slurm.is_now:
            self.of_slurm.keys.append(key)
        if self.is_of_task:
            self.of_tasks.add(self.found[key].source)
        self.messages.begin(line, key)
        if span.ends is None:
            self.open[key] = None

    def _source_of(self, line: str) -> tuple[int | None, str]:
        """The rank and node of a line."""
        self.is_of_task = False
        rank, node = self._rank_and_node(line)
        node = self.source.node or node  # NCCL and torchrun use a pod's own name
        return rank, node or self.ranks.nodes.get(rank if rank is not None else -1, "")

    def _rank_and_node(self, line: str) -> tuple[int | None, str]:
        """The same, from the line and the name of its file."""
        if (from_launcher := self._rank_from_launcher(line)) is not None:
            return from_launcher
        if ", node" in line and (megatron := _MEGATRON.search(line)):
            of_result, node = int(megatron[1]), self.source.node or label(megatron[2])
            self.ranks.place(of_result, node)
            return of_result, node
        named, of_file = _RANK.search(line), self.source.rank
        rank, task = (None, of_file) if self.source.is_of_task else (of_file, None)
        of_mpirun, host, of_srun, own = labels.groups() if (labels := _LABEL.match(line)) else ("", "", "", "")
        node = self.source.node or label(host or "")
        if self.source.rank is None and (labelled := of_mpirun or of_srun):
            task = int(labelled)
            self.labelled.update(() if named else (task,))
        if own and task is not None and int(own) != task:
            self.ranks.forget_tasks()
        rank = int(named[1]) if named else rank
        self.is_of_task = rank is None and task is not None and not self.ranks.are_torchruns
        if (of_nccl := self.ranks.of_nccl(line, self.source.node, rank, task)) is not None:
            return of_nccl
        rank = task if self.is_of_task else rank
        if rank is not None:
            self.ranks.place(rank, node, OF_TASK if self.is_of_task else SAID)
        return rank, node

    def _rank_from_launcher(self, line: str) -> tuple[int | None, str] | None:
        """The same, for a line in which a launcher or Slurm reports whose end it was; else None."""
        if srun := _SRUN.search(line):
            is_one = not srun[3].strip(", ") and "[" not in srun[1] and "," not in srun[1]
            return self._task(int(srun[2]), label(srun[1])) if is_one else (None, "")
        if mpirun := _MPIRUN.search(line):
            return self._task(int(mpirun[1]), label(mpirun[2]))
        if (failed := _NODE_FAILURE.search(line)) or "DUE TO NODE FAILURE" in line:  # which every node reports
            return None, label(failed[1]) if failed else ""
        return None

    def _task(self, task: int, node: str) -> tuple[int | None, str]:
        """The rank that a launcher's task is, and its node; no rank if each task is a torchrun."""
        self.ranks.place(task, node, OF_TASK)
        self.is_of_task = not self.ranks.are_torchruns
        return task if self.is_of_task else None, node

    def output(self) -> Output:
        """The combined result of all lines."""
        for key in list(self.found):
            if self.steps.has_outlived(key[0], key[1], self.lines[key]):
                self._set_aside(key, self.outlived)
        are_torchruns = self.ranks.are_torchruns
        return Output(
            events=tuple(self._named((*self.earlier.values(), *self.found.values()))),
            outlived=tuple(self._named(self.outlived.values())),
            nodes_of_ranks=self.ranks.nodes,
            progress=self.progress,
            stepped=self.last_step.ends,
            last=self.stamp.ends,
            lived=self.last_lines.lived,
            watchdog=self.watchdog,
            ended=without_tasks(self.first_end.ranks) if are_torchruns else self.first_end.ranks,
            timed_out=frozenset(self.timed_out),
            labelled=frozenset(() if are_torchruns else self.labelled),
            pids_of_ranks=self.ranks.pids,
            times_of_steps=self.steps.times,
            node=self.source.node,
            reliability=self.ranks.reliability,
            are_torchruns=are_torchruns,
            of_tasks=frozenset(self.of_tasks),
        )

    def _named(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            is_of_task = self.ranks.are_torchruns and event.source in self.of_tasks
            rank, node = None if is_of_task else event.rank, event.node
            if rank is not None and (not node or node == self.ranks.forgotten.get(rank)):
                node = self.ranks.nodes.get(rank, "")
            wrote_s, ran_s = self.last_lines.wrote_s(event), self.last_lines.ran_s(event)
            yield replace(event, rank=rank, node=node, wrote_s=wrote_s, ran_s=ran_s)
