"""A training run and its ranks, the subjects of the checks in `checks/run`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.training_run import KERNELS, Dump, Position
from clusterproof.plugins.training_run.losses import Losses
from clusterproof.plugins.training_run.not_recorded import (
    NO_COMPUTE,
    NO_DUMPS,
    NO_LOSS,
    NO_RANKS,
    NO_STAGES,
    NO_STEPS,
    ONE_RANK,
)
from clusterproof.plugins.training_run.placement import Placement, Slots, on_nodes, pairs_of, placements
from clusterproof.plugins.training_run.rules.gpus import Bounds, BusyWait
from clusterproof.plugins.training_run.rules.hang import AwaitedRanks, Mismatch, Missing, awaited, mismatches, missing
from clusterproof.plugins.training_run.rules.last_rank import LastRank, recorded_by, usually_last
from clusterproof.plugins.training_run.rules.phases import TimeShare, kernels_run, shares
from clusterproof.plugins.training_run.rules.silent_ranks import silent_ranks
from clusterproof.plugins.training_run.rules.steps import StepTime, step_times, timed
from clusterproof.plugins.training_run.rules.straggler_cost import MIN_STEPS as MIN_COMPARED
from clusterproof.plugins.training_run.rules.straggler_cost import StragglerCost, common_steps, straggler_costs
from clusterproof.plugins.training_run.rules.stragglers import (
    MIN_PEERS,
    MIN_STEPS,
    Computed,
    RankPace,
    computed,
    lacking,
    later_half,
    paces,
    sizes_of_stages,
)
from clusterproof.plugins.training_run.run_data import RunData
from clusterproof.plugins.training_run.sampled_gpus import SampledGpus
from clusterproof.plugins.training_run.samples import GPU


@dataclass(frozen=True)
class TrainingRun:
    """One training run. Data that its files lack raises Incomplete, with what to collect."""

    name: str
    data: RunData
    type_name: str = ""
    gpu_uuids: tuple[str, ...] = ()
    policy: Policy = NO_POLICY
    cluster: str = ""  # the cluster named by --cluster
    nodes: tuple[Slots, ...] = ()  # its nodes with their GPUs; 0: unknown

    @property
    def unread(self) -> str:
        """The files that could not be read; empty if all were read."""
        refused = self.data.refused
        more = f", and so in {len(refused) - 1} more" if len(refused) > 1 else ""
        return f"{refused[0]}; nothing behind it was read of this file{more}" if refused else ""

    def threshold(self, name: str) -> float:
        """A threshold by `table.key` (`run.init_s`), in the unit of its row; a site's own overrides the catalogue's."""
        return Catalog.of(self.policy).threshold(name)

    @cached_property
    def placements(self) -> Mapping[int, Placement]:
        """The node and GPU of each rank, as far as known."""
        ranks = {*self.data.positions, *self.data.dumps}
        for dump in self.data.dumps.values():
            ranks.update(rank for members in dump.members.values() for rank in members)
        seen = {rank: Placement(rank, activity.node) for rank, activity in self.data.processes.latest.items()}
        known = on_nodes({**seen, **self.data.placements}, self.data.pods)
        every = placements(known, self.data.hostfile, self.nodes, ranks, self.data.left_nodes).items()
        return {rank: placement for rank, placement in every if rank not in self.data.moved}

    def where(self, rank: int) -> str:
        """`; it is gpu002, GPU 4: …` with the command that measures its pairs; empty if unknown."""
        placement = self.placements.get(rank)
        if not placement:
            return ""
        pairs = pairs_of(placement.node, [slots.node for slots in self.nodes]) if self.cluster else ""
        command = shlex.join(("pytest", "--cluster", self.cluster, "-m", "perf", "-k", "pairwise", "--pairs", pairs))
        measured_by = f": {command} measures that node" if pairs else ""
        return f"; rank {rank} is on {placement.description}{measured_by}"

    @cached_property
    def computed(self) -> Mapping[Position, Computed]:
        """The seconds that each rank computes in each step. Raises Incomplete."""
        if len(self.data.unranked) > 1:
            seen = f"{len(self.data.unranked)} {NO_RANKS}"
            raise Incomplete(seen, cause=seen)
        computed_by_position = computed(self.data)
        if not computed_by_position:
            none = NO_STAGES if any(name == KERNELS for _, name in self.data.parts) else NO_COMPUTE
            raise Incomplete(none, cause=none)
        steps = max(len(seconds) for seconds in computed_by_position.values())
        if steps < MIN_STEPS:
            few = f"{number_of(steps, 'step')}; expected at least {MIN_STEPS}: trace more of them"
            raise Incomplete(few, cause=few)
        return computed_by_position

    @cached_property
    def paces(self) -> Mapping[int, RankPace]:
        """Each rank relative to the others of its stage, by its number. Raises Incomplete."""
        return {pace.position.rank: pace for pace in paces(self.computed)}

    @cached_property
    def later_paces(self) -> Mapping[int, RankPace]:
        """The same for the later half of the run, if it has enough steps."""
        ranks = paces(later_half(self.computed))
        return {pace.position.rank: pace for pace in ranks if pace.steps >= MIN_STEPS and pace.peers + 1 >= MIN_PEERS}

    @cached_property
    def straggler_costs(self) -> list[StragglerCost]:
        """For each stage the rank that costs the others most, the costliest first. Raises as `ranks`."""
        if not self.data.steps:
            raise Incomplete(NO_STEPS, cause=NO_STEPS)
        _ = self.ranks
        lasted = {step.step: step.seconds for step in self.every_step if step.times == 1}
        costs = straggler_costs(self.computed, lasted)
        if not costs:
            steps = len(common_steps(self.computed, lasted))
            few = f"{steps} steps whose duration and compute are known; expected at least {MIN_COMPARED}: log more"
            raise Incomplete(few, cause=few)
        return costs

    def timed(self, least: int, least_lines: int) -> Sequence[StepTime]:
        """Its steps after the warm-up, for each kind with so many, without checkpoints. Raises Incomplete."""
        if not self.data.steps:
            raise Incomplete(NO_STEPS, cause=NO_STEPS)
        return timed(self.every_step, least, least_lines)

    @cached_property
    def every_step(self) -> Sequence[StepTime]:
        """All its steps in order, each as long as on most ranks, without checkpoints."""
        return step_times(self.data)

    @property
    def step_count(self) -> int:
        """The number of different steps in its files."""
        computed = {step for cells in self.data.compute.values() for step in cells}
        return max(sum(step.times for step in self.every_step), len(computed.union(*self.data.steps.values())))

    @cached_property
    def silent(self) -> Mapping[int, str]:
        """The ranks that stop logging, or never log, while most do; each as text."""
        return silent_ranks(self.data)

    @cached_property
    def uncompared(self) -> Mapping[int, str]:
        """The same, with the ranks that lack an operation of their stage. Raises Incomplete."""
        return {**lacking(self.data, self.computed), **self.silent}

    @property
    def before_steps(self) -> tuple[float, float] | None:
        """How long nodes were sampled before the first step, and in total (s); None if unknown."""
        span, loop = self.data.samples.span, self.data.loop
        if not span or not loop or not span[0] <= loop.began < loop.ended <= span[1]:
            return None
        return loop.began - span[0], span[1] - span[0]

    def share(self, kind: str, *, is_steady: bool = False) -> TimeShare:
        """The rank with the largest share of time spent on parts of a kind. Raises Incomplete."""
        return self.shares(kind, is_steady=is_steady)[0]

    def shares(self, kind: str, *, is_steady: bool = False) -> list[TimeShare]:
        """For all ranks that timed such parts the share of their time, the largest first. Raises Incomplete."""
        return shares(self.data, kind, is_steady=is_steady)

    @property
    def traced_gpus(self) -> list[TimeShare]:
        """How long any kernel ran, for ranks with traces, the smallest share first, if no GPU was sampled."""
        return [] if self.data.samples.of(GPU) else kernels_run(self.data)

    @cached_property
    def sampled(self) -> SampledGpus:
        """The utilization of its GPUs. Raises Incomplete if not sampled often enough."""
        return SampledGpus(self.data.samples)

    @cached_property
    def awaited(self) -> AwaitedRanks | None:
        """The ranks whose processes differ from most, which wait; None if none waits. Raises Incomplete."""
        return awaited(self.data.processes, self.threshold("run.hung_s"), gpus_wait_s=self._gpus_wait_s())

    @cached_property
    def spin(self) -> BusyWait | None:
        """The longest time in which all GPUs in use only waited; None if there was none. Raises Incomplete."""
        bounds = Bounds(self.threshold("run.hung_power_percent"), self.threshold("run.hung_traffic_mb_s"))
        return self.sampled.hang_evidence.spin(bounds)

    def _gpus_wait_s(self) -> float:
        try:
            return self.spin.seconds if self.spin else 0.0
        except (Incomplete, NotApplicable):
            return 0.0  # this is unknown

    @cached_property
    def missing(self) -> Missing:
        """The ranks for which the others wait. Raises Incomplete."""
        return missing(self.dumps)

    @cached_property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """Where ranks call different collectives. Raises Incomplete."""
        return mismatches(self.dumps)

    @property
    def dumps(self) -> Mapping[int, Dump]:
        """The Flight Recorder dump of each rank. Raises Incomplete."""
        if not self.data.dumps:
            raise Incomplete(NO_DUMPS, cause=NO_DUMPS)
        return self.data.dumps

    @property
    def losses(self) -> Losses:
        """Its losses and gradient norms. Raises Incomplete."""
        if not self.data.losses.losses:
            says_more = self.data.losses.norms or self.data.losses.skips
            raise Incomplete(NO_LOSS, cause="" if says_more else NO_LOSS)
        return self.data.losses

    @cached_property
    def usually_last(self) -> LastRank | None:
        """Who comes last to the largest share of a communicator's collectives; None if nobody. Raises Incomplete."""
        return usually_last(recorded_by(self.data), self.threshold("run.certain_errors"))

    @property
    def median_swing(self) -> float:
        """How far the ninetieth percentile of a rank's compute is above its median. Raises as `ranks`."""
        if len(self.computed) < 2:
            raise NotApplicable(ONE_RANK)
        if not self.paces:
            raise NotApplicable("one rank a stage: there is no other to compare it with")
        return median(pace.median_swing for pace in self.paces.values())

    @property
    def ranks(self) -> tuple[RankOfRun, ...]:
        """Its ranks, if some have enough peers to be compared. Raises Incomplete, NotApplicable."""
        sizes = sizes_of_stages(self.computed)
        if len(self.computed) < 2:
            raise NotApplicable(ONE_RANK)
        most = max(sizes.values())
        if most < MIN_PEERS:
            observed = f"{most} rank{'s' * (most > 1)} a stage; expected {MIN_PEERS}, of which one can be the odd one"
            few = f"{observed}: trace more data-parallel ranks"
            raise Incomplete(few, cause=few)
        lacking = (self.data.positions[rank] for rank in self.uncompared if rank in self.data.positions)
        positions = {*self.computed, *(position for position in lacking if position.stage in sizes)}
        return tuple(RankOfRun(position, self) for position in sorted(positions, key=lambda position: position.rank))


@record
class RankOfRun:
    """One rank of a run, and its peers."""

    position: Position
    run: TrainingRun

    @property
    def label(self) -> str:
        """`rank 12`."""
        return f"rank {self.position.rank}"

    def threshold(self, name: str) -> float:
        """The threshold of its run."""
        return self.run.threshold(name)

    @property
    def later_pace(self) -> RankPace | None:
        """Its compute time in the later half of the run relative to its peers. Raises Incomplete."""
        return self.run.later_paces.get(self.position.rank)

    @property
    def pace(self) -> RankPace:
        """Its compute time relative to its peers. Raises Incomplete."""
        pace = self.run.paces.get(self.position.rank)
        peers = pace.peers + 1 if pace else sizes_of_stages(self.run.computed)[self.position.stage]
        if peers < MIN_PEERS:
            raise Incomplete(f"{peers} ranks in its stage; expected at least {MIN_PEERS}: trace more of them")
        if pace is None or pace.steps < MIN_STEPS:
            few = f"{pace.steps if pace else 0} steps in common with its peers; expected at least {MIN_STEPS}"
            raise Incomplete(f"{few}: trace more of them")
        return pace
