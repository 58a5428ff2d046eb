"""The data of a run's files, added as they are read: seconds by rank, name and step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.training_run import (
    COMPUTE,
    INIT,
    OTHER,
    REST,
    UNKNOWN,
    CpuCount,
    CutFile,
    DataLoader,
    Dump,
    NoDuration,
    Operation,
    OtherLine,
    OutOfRange,
    Position,
    RunError,
    Step,
    StepLoop,
    TimeSpent,
    Unranked,
    kind_of,
)
from clusterproof.plugins.training_run.collectives import Arrivals, CollectiveCall, Traced
from clusterproof.plugins.training_run.losses import Loss, Losses
from clusterproof.plugins.training_run.placement import OnNode, Placement, Slots
from clusterproof.plugins.training_run.rank_processes import RankProcesses, RankSeen
from clusterproof.plugins.training_run.samples import GpuLost, Sample, Samples

MAX_CELLS = 2_000_000  # about 300 MB; 1,000 ranks of 500 steps with two kinds of compute are half of it
MAX_RANKS = 100_000
MAX_NAMES = 20_000  # of kernels and operators

Fact = (
    Operation
    | Step
    | TimeSpent
    | CollectiveCall
    | Traced
    | Loss
    | Placement
    | Slots
    | OnNode
    | Dump
    | Sample
    | OutOfRange
    | OtherLine
    | GpuLost
    | RankSeen
    | DataLoader
    | StepLoop
    | CpuCount
    | CutFile
    | NoDuration
    | Unranked
)

Seconds = dict[int, tuple[float, int]]  # by step: the mean, and the count; a line may stand for many steps


@dataclass
class RunData:
    """All data of a run; its size does not grow with how often an operation is repeated in a step."""

    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # only read up to a line: the file, the line and why
    cut: list[str] = field(default_factory=list)  # files that break off
    no_durations: Counter[str] = field(default_factory=Counter)  # by file: steps without duration
    out_of_range: dict[str, tuple[str, int]] = field(default_factory=dict)  # by file: the first, and how many
    other_lines: dict[str, tuple[str, int]] = field(default_factory=dict)  # the same of lines that are no samples
    empty: list[str] = field(default_factory=list)  # files without any data of the run
    positions: dict[int, Position] = field(default_factory=dict)
    compute: dict[tuple[int, str], Seconds] = field(default_factory=dict)  # by rank and operation
    parts: dict[tuple[int, str], Seconds] = field(default_factory=dict)  # by rank and part of a step
    steps: dict[int, Seconds] = field(default_factory=dict)  # by rank
    starts: dict[int, tuple[int, float]] = field(default_factory=dict)  # by rank: how many, the seconds of the longest
    saves: dict[int, int] = field(default_factory=dict)  # by rank: checkpoints, if a line may stand for several
    work: dict[int, str] = field(default_factory=dict)  # by step: the size of its work, if that may change
    unnamed: set[int] = field(default_factory=set)  # ranks that the files do not name
    of_run: set[int] = field(default_factory=set)  # those of them that log what is of all ranks
    unranked: list[str] = field(default_factory=list)  # files that do not name their rank
    dumps: dict[int, Dump] = field(default_factory=dict)  # by rank
    samples: Samples = field(default_factory=Samples)
    kinds: dict[tuple[int, str], float] = field(default_factory=dict)  # seconds by rank and kind of operation or part
    spent: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)  # by kind and name, of all ranks
    loaders: dict[int, DataLoader] = field(default_factory=dict)  # by rank
    loop: StepLoop | None = None  # of all files together
    cores: dict[str, int] = field(default_factory=dict)  # by node
    placements: dict[int, Placement] = field(default_factory=dict)  # by rank
    moved: dict[int, list[str]] = field(default_factory=dict)  # by rank: its former places, for a restarted job
    left: set[str] = field(default_factory=set)  # nodes on which such a rank was
    hostfile: list[Slots] = field(default_factory=list)
    pods: dict[str, str] = field(default_factory=dict)  # the node of each; empty if it was on several
    arrivals: Arrivals = field(default_factory=Arrivals)
    traced: Arrivals = field(default_factory=Arrivals)  # of traces
    losses: Losses = field(default_factory=Losses)
    processes: RankProcesses = field(default_factory=RankProcesses)
    cells: int = 0

    @property
    def left_nodes(self) -> set[str]:
        """The nodes on which moved ranks were."""
        return {self.pods.get(node) or node for node in self.left}

    def add(self, facts: Iterable[Fact], where: str) -> None:
        """Add the contents of a file. Raises RunError."""
        self.files.append(where)
        take: Mapping[type, Callable[[Any, str], None]] = {
            Operation: self._operation,
            Step: self._step,
            Sample: lambda sample, _: self.samples.add(sample),
            OutOfRange: lambda wrong, where: _count(self.out_of_range, wrong.message, where),
            OtherLine: lambda other, where: _count(self.other_lines, other.words, where),
            GpuLost: lambda gpu, _: self.samples.lose(gpu),
            CollectiveCall: lambda call, _: self.arrivals.add(call),
            Traced: lambda fact, _: self.traced.add(fact.call),
            Loss: self.losses.add,
            TimeSpent: self._spent,
            Placement: self._placement,
            Slots: lambda slots, _: self.hostfile.append(slots),
            OnNode: self._on_node,
            Unranked: lambda _, where: self.unranked.append(where),
            Dump: self._dump,
            DataLoader: lambda loader, _: self.loaders.update({loader.rank: loader}),
            StepLoop: self._loop,
            CpuCount: lambda fact, _: self.cores.update({fact.node: max(fact.count, self.cores.get(fact.node, 0))}),
            RankSeen: lambda seen, _: self.processes.add(seen),
            CutFile: lambda _, where: self.cut.append(where),
            NoDuration: lambda _, where: self.no_durations.update((where,)),
        }
        has_facts = False
        for fact in facts:
            take[type(fact)](fact, where)
            has_facts = True
        if not has_facts:
            self.empty.append(where)

    def _operation(self, operation: Operation, where: str) -> None:
        self._add_position(operation.position, where)
        self._count(operation.position.rank, operation.name, operation.seconds)
        self._compute(operation.position.rank, operation.name, operation.step, operation.seconds, where)

    def _loop(self, loop: StepLoop, _where: str) -> None:
        known = self.loop or loop
        self.loop = StepLoop(min(known.began, loop.began), max(known.ended, loop.ended))

    def _dump(self, dump: Dump, where: str) -> None:
        if dump.rank in self.dumps:
            raise RunError(f"{where}: rank {dump.rank} has a dump already; expected the dumps of one moment")
        self.dumps[dump.rank] = dump

    def _on_node(self, pod: OnNode, _where: str) -> None:
        if self.pods.setdefault(pod.host, pod.node) != pod.node:
            self.pods[pod.host] = ""

    def _placement(self, placement: Placement, _where: str) -> None:
        known = self.placements.get(placement.rank)
        if placement.rank in self.moved or (known and known != placement):
            moved = self.moved.setdefault(placement.rank, [])
            moved += [location for of in (known, placement) if of and (location := of.description) not in moved]
            self.left.update(of.node for of in (known, placement) if of)
            self.placements.pop(placement.rank, None)  # its steps are from several
        else:
            self.placements[placement.rank] = placement

    def _spent(self, spent: TimeSpent, _where: str) -> None:
        key = spent.kind, spent.name
        if key not in self.spent and len(self.spent) >= MAX_NAMES:
            key = spent.kind, REST
        seconds, times = self.spent.get(key, (0.0, 0))
        self.spent[key] = seconds + spent.seconds, times + spent.times

    def rank_words(self, rank: int) -> str:
        """`rank 3`; with a remark if its files do not name the rank."""
        is_unsaid = rank in self.unnamed or (rank == 0 and len(self.unranked) > 1)
        return "a rank that its files do not name" if is_unsaid else f"rank {rank}"

    def _add_position(self, position: Position, where: str) -> None:
        known = self.positions.setdefault(position.rank, position)
        unsaid = Position(position.rank)
        if known == unsaid and position != unsaid:
            self.positions[position.rank] = position  # another file has more data
        elif known is not position and position not in (known, unsaid):
            seen, other = (f"stage {named.stage}, data-parallel rank {named.replica}" for named in (position, known))
            raise RunError(
                f"{where}: rank {position.rank} is of {seen}, and of {other} before; expected files of one run"
            )
        if len(self.positions) > MAX_RANKS:
            raise RunError(f"{where}: more than {MAX_RANKS:,} ranks; expected fewer")

    def _count(self, rank: int, name: str, seconds: float) -> None:
        key = rank, kind_of(name)
        self.kinds[key] = self.kinds.get(key, 0.0) + seconds

    def _compute(self, rank: int, name: str, step: int, seconds: float, where: str, times: int = 1) -> None:
        if kind_of(name) in (COMPUTE, UNKNOWN):
            self._keep(self.compute.setdefault((rank, name), {}), step, seconds, where, times)

    def _step(self, step: Step, where: str) -> None:
        self._add_position(step.position, where)
        rank = step.position.rank
        self._keep(self.steps.setdefault(rank, {}), step.step, step.seconds, where, step.times)
        if step.work:
            self.work[step.step] = step.work
        if step.is_unnamed or step.is_of_run:
            self.unnamed.add(rank)
        if step.is_of_run:
            self.of_run.add(rank)
        if step.saves:
            self.saves[rank] = self.saves.get(rank, 0) + step.saves
        start = step.times * sum(seconds for name, seconds in step.parts.items() if kind_of(name) == INIT)
        if start:
            starts, longest = self.starts.get(rank, (0, 0.0))
            self.starts[rank] = starts + 1, max(longest, start)
        for name, seconds in step.parts.items():
            self._count(rank, name, seconds * step.times)
            self._compute(rank, name, step.step, seconds, where, step.times)
            if kind_of(name) not in (COMPUTE, UNKNOWN, OTHER):
                cells = self.parts.setdefault((rank, name), {})
                if seconds or not cells or step.step in cells:  # zero parts take no space
                    self._keep(cells, step.step, seconds, where, step.times)

    def _keep(self, cells: Seconds, step: int, seconds: float, where: str, times: int = 1) -> None:
        before = cells.get(step)
        if before is None:
            cells[step] = (seconds, times)
            self.cells += 1
            if self.cells > MAX_CELLS:
                many = f"more than {MAX_CELLS:,} ranks × steps × operations"
                raise RunError(f"{where}: {many}; expected fewer: give a part of the run")
        else:
            mean, count = before
            cells[step] = (mean + (seconds - mean) * times / (count + times), count + times)


def _count(left_out: dict[str, tuple[str, int]], message: str, where: str) -> None:
    first, count = left_out.get(where, (message, 0))
    left_out[where] = first, count + 1
