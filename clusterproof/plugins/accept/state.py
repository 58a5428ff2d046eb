"""The state of an acceptance after its finished runs, in order; and what runs next. Reads no files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from random import Random

from clusterproof.plugins.accept import UNKNOWN, Failure, NodeRun, OtherResult, OwnResult, StageRun, UnitSpeed
from clusterproof.plugins.accept.plan import SPEED, AcceptancePlan
from clusterproof.plugins.accept.populations import Populations
from clusterproof.plugins.accept.sequential import MIN_BESIDE, decision_of, to_measure
from clusterproof.plugins.benchmarks.pairwise.groups import FIRST_SIZE, MIN_NODES
from clusterproof.plugins.catalog.acceptance import Stage
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict

COLLECTIVES = "collectives"  # the stage for groups
MIN_OF_A_PLACE = 3  # nodes, needed to tell which of them is slow
NO_PLACES = f"the inventory has not several groups, one of them of {MIN_OF_A_PLACE} nodes or more"
NO_PAIRS = "there are not 2 nodes"
NO_GROUPS = f"there are not {MIN_NODES} nodes, or not {FIRST_SIZE} may be loaded at once"
MAX_CHANGES = 1  # to another machine or other GPUs, of a node without a declared repair
TWICE = 2  # a failure in a stage that measures speed must be confirmed


@record
class NextRun:
    """The run that is next: its stage and its nodes."""

    stage: Stage
    number: int
    nodes: tuple[str, ...]


class AcceptanceState:
    """The whole state. Runs are added in the order in which they ended."""

    def __init__(self, plan: AcceptancePlan, cluster: Cluster) -> None:
        self.plan = plan
        self.places = {target.name: target.group for target in cluster.targets}
        self.nodes = tuple(self.places)
        self.notes = cluster.notes  # such as nodes that the inventory leaves out
        self.runs: dict[str, Counter[str]] = defaultdict(Counter)  # runs by stage and node
        self.numbers: Counter[str] = Counter()  # runs by stage
        self.seen: dict[str, NodeRun] = {}
        self.earlier: dict[str, list[NodeRun]] = defaultdict(list)  # hardware that was replaced
        self.failures: dict[str, list[Failure]] = defaultdict(list)
        self.out: set[str] = set()
        self.results: dict[str, dict[tuple[str, str], list[OwnResult]]] = defaultdict(lambda: defaultdict(list))
        self.of_others: list[OtherResult] = []
        self.populations = Populations(plan)
        self.changes: Counter[str] = Counter()  # changes to another machine since a declared replacement
        self.unsettled: set[str] = set()
        self.spent_s = 0.0
        self._round: tuple[str, ...] = ()  # the nodes that remain in the current round of SPEED
        self._speed_in: dict[str, str] = {}  # the folder of a node's last SPEED run
        self._failed_at_speed: set[str] = set()  # nodes that failed a check in a SPEED run

    @property
    def removed(self) -> tuple[str, ...]:
        """Nodes with measurements that are no longer in the inventory; they count for no other node."""
        measured = (node for of_stage in self.runs.values() for node in of_stage)
        return tuple(dict.fromkeys(node for node in measured if node not in self.places))

    def discard(self, nodes: Collection[str], is_declared: bool = False) -> None:
        """Drop earlier measurements of these nodes; `is_said` if somebody declared that they were replaced."""
        self.unsettled -= set(nodes) if is_declared else set()
        for node in nodes:
            if node in self.seen:
                self.earlier[node].append(self.seen.pop(node))
            for of_stage in self.runs.values():
                of_stage.pop(node, None)
            self.populations.forget(node)
            self.failures.pop(node, None)
            self.results.pop(node, None)
            self.changes[node] *= not is_declared
            self.out -= {node} - self.unsettled
            self.of_others = [other for other in self.of_others if not other.speaks_of(node)]
        self._round = ()

    def add(self, step: NextRun, ran: StageRun, folder: str, seconds: float) -> None:
        """Add a finished run."""
        self.spent_s += seconds
        self._compare(ran.seen)
        self.numbers[step.stage.name] += 1
        of_step = frozenset(step.nodes)
        present = of_step & set(self.nodes)
        for node in step.nodes:
            is_alone = step.stage.scope != "nodes" and not present - {node}  # its partners have left the cluster
            self.runs[step.stage.name][node] += not is_alone
            seen = ran.seen.get(node)
            if seen:
                self.seen[node] = seen.completed(self.seen.get(node))
        for result in ran.results:
            if result.node in of_step and result.is_of_node:
                seen = ran.seen.get(result.node) if step.stage.name == SPEED else None
                self.results[result.node][step.stage.name, result.check].append(OwnResult(result, folder, seen))
                if step.stage.name == SPEED and result.verdict is Verdict.FAIL:
                    self._failed_at_speed.add(result.node)
            else:
                self._add_of_others(OtherResult(step.stage.name, present, folder, result))
        if step.stage.name == SPEED:
            present_nodes = [node for node in step.nodes if node in ran.seen and node in self.places]
            levels = {node: self._levels(node) for node in present_nodes}
            self.populations.add(step.number, ran.seen, {node: self.seen[node].kind for node in present_nodes}, levels)
            self._round = tuple(node for node in self._round if node not in of_step)
            if self._is_first_round_over:
                self.populations.learn()
        self._take_out(step, folder)

    def _levels(self, node: str) -> list[str]:
        """What the node has in common with some others, as text: its group in the inventory, its firmware."""
        group = {"group": self.places[node]} if self.places[node] else {}
        return [f"{what} {level}" for what, level in {**group, **self.seen[node].levels}.items()]

    @property
    def others(self) -> list[OtherResult]:
        """Findings about pairs and the cluster, and what racks, batches and all nodes have in common."""
        found = self.populations.in_common()
        folder, measured = f"runs/*-{SPEED}", frozenset(self._speed_in)
        return [*self.of_others, *(OtherResult(SPEED, measured, folder, result) for result in found)]

    @property
    def _is_first_round_over(self) -> bool:
        """Whether all nodes were measured as often as the error rates require; ignores nodes added since."""
        begun, least = self.runs[self.plan.stages[0].name], self.plan.errors.least_runs
        return all(self.runs[SPEED][node] >= least for node in self.kept if begun[node])

    def results_of(self, node: str) -> dict[tuple[str, str], list[Result]]:
        """Results on a node by stage and check, run by run; comparisons only if no population decides."""
        return {
            key: [self._besides_speed(node, own_result, self.populations.decides) for own_result in own]
            for key, own in self.results.get(node, {}).items()
        }

    def _besides_speed(self, node: str, own: OwnResult, decides: Callable[[str, UnitSpeed], bool]) -> Result:
        kind = self.seen[node].kind if own.seen else ""
        return own.seen.besides_speed(own.result, partial(decides, kind)) if own.seen else own.result

    def _compare(self, seen: Mapping[str, NodeRun]) -> None:
        """Drop measurements of hardware that is no longer there."""
        others = [node for node, now in seen.items() if self._is_other(node, now)]
        if others:
            self.discard(others)
            self._unsettle(others)
        for node, now in seen.items():
            if node in self.seen and (devices := now.gpus_replaced(self.seen[node])):
                self._forget_gpus(node, devices)
                self._unsettle([node])

    def _unsettle(self, others: Iterable[str]) -> None:
        """Stop measuring a node that changed again to another machine or other GPUs without a declared replacement."""
        self.changes.update(others)
        unsure = {node for node in others if self.changes[node] > MAX_CHANGES}
        self.unsettled |= unsure
        self.out |= unsure

    def _forget_gpus(self, node: str, devices: Collection[str]) -> None:
        """Drop measurements on or with replaced GPUs; keep those of its other GPUs, disk and pairs."""
        self.populations.forget_gpus(node, devices)
        alone = {stage.name for stage in self.plan.stages if stage.scope == "nodes"}
        for name in alone:
            self.runs[name].pop(node, None)
        for key in [key for key in self.results[node] if key[0] in alone]:
            del self.results[node][key]
        self.earlier[node].append(self.seen[node])
        self.seen[node] = replace(self.seen[node], kind=UNKNOWN)  # they may be of another model
        self._round = ()

    def _add_of_others(self, new: OtherResult) -> None:
        """Replaces the check's earlier results on the same nodes or fewer, not counting those rejected since."""

        def is_superseded(old: OtherResult) -> bool:
            is_same = (old.stage, old.result.check, old.result.node) == (new.stage, new.result.check, new.result.node)
            return is_same and old.nodes - self.out <= new.nodes

        self.of_others = [other for other in self.of_others if not is_superseded(other)]
        if new.result.verdict in (Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE):
            self.of_others.append(new)

    def _is_other(self, node: str, seen: NodeRun) -> bool:
        return node in self.seen and seen.is_other_than(self.seen[node])

    def _take_out(self, step: NextRun, folder: str) -> None:
        """Reject failed nodes of the step; and any node that is slow, which the step may have shown."""
        slow: Mapping[str, list[tuple[str, str]]] = {}
        may_fail = set(step.nodes)
        if step.stage.name == SPEED:
            self._speed_in.update(dict.fromkeys(step.nodes, folder))
            slow = self.populations.slow()
            may_fail |= {node for node in {*slow, *self._failed_at_speed} if node in self.places} - self.out
        for node in may_fail:
            failures = [*self._failed(node, step.stage), *self._slow(node, slow.get(node, ()))]
            if failures:
                self.failures[node] += failures
                self.out.add(node)

    def _failed(self, node: str, stage: Stage) -> Iterator[Failure]:
        """Which nodes failed; where a population may decide, wait for it."""
        for (name, check), own in self.results[node].items():
            if name != stage.name:
                continue
            may_fail = [own_result for own_result in own if own_result.result.verdict is Verdict.FAIL]
            outcomes = [
                (self._besides_speed(node, own_result, self.populations.may_decide), own_result.folder)
                for own_result in may_fail
            ]
            failed = [(result, folder) for result, folder in outcomes if result.verdict is Verdict.FAIL]
            if len(failed) >= (TWICE if name == SPEED else 1):
                last, folder = failed[-1]
                yield Failure(name, check, last.message, last.action, folder)

    def _slow(self, node: str, slow: Iterable[tuple[str, str]]) -> Iterator[Failure]:
        for check, words in slow:
            yield Failure(SPEED, check, words, "replace", self._speed_in[node])

    def next(self) -> NextRun | None:
        """What runs next; None if everything possible is done."""
        for stage in self.plan.stages:
            nodes = self._due_nodes(stage)
            if nodes:
                return NextRun(stage, self.numbers[stage.name], nodes)
        return None

    @property
    def kept(self) -> list[str]:
        """The nodes that were not rejected."""
        return [node for node in self.nodes if node not in self.out]

    def _due_nodes(self, stage: Stage) -> tuple[str, ...]:
        kept, runs = self.kept, self.runs[stage.name]
        if self.why_nothing_to_measure(stage, kept):
            return ()
        if stage.scope == "all":
            return _with_others(kept, [node for node in kept if not runs[node]])
        if stage.scope == "places":
            return next((place for place in self.places_of(kept) if not all(runs[node] for node in place)), ())
        if not stage.is_load:  # it compares nodes: a single node would show nothing
            return () if all(runs[node] for node in kept) else tuple(kept)
        if stage.name == SPEED:
            self._round = tuple(node for node in self._round if node not in self.out) or self._next_round(kept, runs)
            due = self._round
        else:
            fewest = min((runs[node] for node in kept), default=0)
            is_due = fewest < (self.plan.errors.least_runs if stage.is_repeated else 1)
            due = tuple(node for node in kept if is_due and runs[node] == fewest)
        return due[: self.plan.at_once(len(due))]

    def _next_round(self, kept: Sequence[str], runs: Counter[str]) -> tuple[str, ...]:
        known = {node: self.populations.decisions_on(node) for node in kept}
        least = self.plan.errors.least_runs
        decisions = {node: decision_of(of) for node, of in known.items() if of or runs[node] < least}
        due = to_measure(decisions, runs, self.plan.most_runs, self.plan.errors)
        if self.plan.at_once(len(due)) < len(due):  # else what a run has in common would look like its nodes' own
            Random(self.numbers[SPEED]).shuffle(due)  # noqa: S311 - no secret
        return tuple(due)

    def why_nothing_to_measure(self, stage: Stage, kept: Sequence[str] | None = None) -> str:
        """Why the stage has nothing to measure, for all nodes or for these; empty if it has."""
        nodes = self.nodes if kept is None else kept
        if stage.scope == "places" and not self.places_of(nodes):
            return NO_PLACES
        if stage.name == COLLECTIVES and not self.plan.largest_group(len(nodes)):
            return NO_GROUPS
        return NO_PAIRS if stage.scope == "all" and len(nodes) < 2 else ""

    def measured_in(self, stage: Stage, kept: Sequence[str]) -> frozenset[str]:
        """The nodes that the stage can measure if these are left: those in a large place, else all, or none."""
        if self.why_nothing_to_measure(stage, kept):
            return frozenset()
        return frozenset(chain(*self.places_of(kept)) if stage.scope == "places" else self.nodes)

    def places_of(self, kept: Sequence[str]) -> list[tuple[str, ...]]:
        """The nodes by place, if there are several places of some size."""
        of_place: dict[str, list[str]] = defaultdict(list)
        for node in kept:
            of_place[self.places[node]].append(node)
        large = [tuple(nodes) for nodes in of_place.values() if len(nodes) >= MIN_OF_A_PLACE]
        return large if len(of_place) > 1 else []


def _with_others(kept: Sequence[str], due: Sequence[str]) -> tuple[str, ...]:
    """The due nodes, and some others for comparison."""
    if not due:
        return ()
    healthy = [node for node in kept if node not in set(due)][: max(MIN_BESIDE, len(due))]
    return tuple(node for node in kept if node in {*due, *healthy})
