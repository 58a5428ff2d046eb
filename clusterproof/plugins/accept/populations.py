"""All populations of an acceptance, by hardware and measurement, and the decisions on nodes that they lead to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log

from clusterproof.plugins.accept import OF_MODEL, NodeRun, UnitSpeed
from clusterproof.plugins.accept.factors import share_of
from clusterproof.plugins.accept.plan import AcceptancePlan
from clusterproof.plugins.accept.population import Levels, Unit
from clusterproof.plugins.accept.sequential import Decision, JudgedUnit, Population, as_fast, joined
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.core.message import format_pair, number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.robust import median
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.gpu_peers import UNKNOWN_WAYS

WITHOUT_GPU = ("fs_bandwidth",)  # measurements
LOOK_AT = "compare what they share: inlet temperature, power limits, clocks, firmware"
LEAST_CHANCE = 0.0001  # that is shown: a smaller one would look like none
Key = tuple[str, str, str]  # kind of hardware, measurement, what was measured


class Populations:
    """All measurements of all nodes. Runs are added in the order in which they ended."""

    def __init__(self, plan: AcceptancePlan) -> None:
        self.plan = plan
        self.by_key: dict[Key, Population] = {}
        self._nodes: dict[tuple[str, ...], set[str]] = defaultdict(set)  # by kind, measurement; and what was measured
        self._apart: dict[Key, set[Key]] = defaultdict(set)  # by what was measured: by how near GPUs are to the others
        self._levels: dict[str, Sequence[str]] = {}  # by node
        self._joined: dict[Key, Key] = {}  # of such a population, that of which it is: it is as fast

    def add(self, number: int, seen: Mapping[str, NodeRun], kinds: Mapping[str, str], levels: Levels) -> None:
        """Take in a run of the nodes whose hardware `kinds` has, and `levels` their racks and batches."""
        self._levels |= levels
        values: dict[Key, dict[Unit, float]] = defaultdict(dict)
        in_doubt: dict[Key, set[Unit]] = defaultdict(set)
        for node in kinds:
            for speed in seen[node].speeds:
                key = self._key(kinds[node], speed)
                values[key][node, speed.device] = log(speed.speed)
                whole = kinds[node], speed.measurement, speed.of_model
                self._apart[whole].add(key)
                self._nodes[whole].add(node)
                self._nodes[whole[:2]].add(node)
                if UNKNOWN_WAYS in speed.path:
                    in_doubt[key].add((node, speed.device))
        tries = max((len(of.speeds) for of in seen.values()), default=1)
        for key, of_key in values.items():
            if key not in self.by_key:
                least = self.plan.floors.get(key[1])
                self.by_key[key] = Population(self.plan.errors, 1, log(least) if least else None, self._levels)
            self.by_key[key].tries = max(self.by_key[key].tries, tries)
            self.by_key[key].in_doubt |= in_doubt[key]
            self.by_key[key].add(number, of_key)

    def _key(self, kind: str, speed: UnitSpeed) -> Key:
        own = kind, speed.measurement, f"{speed.of_model}, {speed.path}" if speed.path else speed.of_model
        return self._joined.get(own, own)

    def learn(self) -> None:
        """Decide what is usual where that is still open and enough was measured."""
        for whole, keys in self._apart.items():
            joinable = as_fast({key: self.by_key[key] for key in keys})
            if joinable:
                of_all = joined([self.by_key.pop(key) for key in joinable])
                due = min(joinable) if whole in keys - joinable else whole
                self.by_key[due] = of_all
                self._apart[whole] = (keys - joinable) | {due}
                self._joined |= dict.fromkeys(joinable, due)
        for population in self.by_key.values():
            population.learn()

    def forget(self, node: str) -> None:
        """Drop a node's measurements: they are of another machine."""
        for population in self.by_key.values():
            population.forget(node)
        for nodes in self._nodes.values():
            nodes.discard(node)

    def forget_gpus(self, node: str, devices: Collection[str]) -> None:
        """Drop measurements on or with these GPUs of a node: they were replaced."""
        for (_, name, _), population in self.by_key.items():
            if name not in WITHOUT_GPU:
                population.forget(node, {*devices, ""})

    def judged_populations(self, node: str, kind: str) -> Iterator[tuple[Key, Population, Sequence[JudgedUnit]]]:
        """The decisions on a node's units: for the measurements that most nodes of its kind have, and for the node
        itself.

        An undecidable unit counts only if its GPU, or the node, has no other measurement that most have.
        """
        of_kind = [whole for whole in self._apart if whole[0] == kind]
        common = {whole for whole in of_kind if 2 * len(self._nodes[whole]) > len(self._nodes[whole[:2]])}
        known = {whole[1] for whole in common if node in self._nodes[whole]}
        for whole in of_kind:
            apart = {key: self.by_key[key] for key in sorted(self._apart[whole])}
            own = {key: population for key, population in apart.items() if node in population.nodes}
            judged = {
                device for population in own.values() if population.reference for device in population.nodes[node]
            }
            for key, population in own.items():
                is_due = population.nodes[node] - judged if whole in common else whole[1] not in known
                if population.reference or is_due:
                    yield key, population, population.judged_units(node)
            if whole in common and not own:
                yield *max(apart.items(), key=lambda of: len(of[1].nodes)), ()

    def decides(self, kind: str, speed: UnitSpeed) -> bool:
        """Whether it is known what is usual for this measurement."""
        population = self.by_key.get(self._key(kind, speed))
        return population is not None and population.decides

    def may_decide(self, kind: str, speed: UnitSpeed) -> bool:
        """Whether that is known, or may become known: with more runs, or once the GPU's model is known."""
        population = self.by_key.get(self._key(kind, speed))
        if population and (population.decides or not population.is_learned):
            return True
        of_models = speed.what + OF_MODEL
        return not speed.model and any(
            what.startswith(of_models) for of, name, what in self.by_key if (of, name) == (kind, speed.measurement)
        )

    def decisions_on(self, node: str) -> set[Decision]:
        """Decisions on a node in comparison with others: while some are open, another run may decide."""
        return {judged.decision for population in self.by_key.values() for judged in population.judged_units(node)}

    def slow(self) -> Mapping[str, list[tuple[str, str]]]:
        """By node, the checks that measured slow devices, and how slow they are, as text."""
        slow: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (_, name, what), population in self.by_key.items():
            for (node, device), judged in population.judged.items():
                if judged.decision is Decision.BAD:
                    row = acceptance.measures()[name]
                    where = f"GPU {device}, " if device else ""
                    how_slow = self._slowness(node, population, judged)
                    message = f"{row.title}: {where}{what}: {how_slow}"
                    slow[node].append((row.check, message))
        return slow

    def _slowness(self, node: str, population: Population, judged: JudgedUnit) -> str:
        """How slow a unit is, and what is expected; between good and bad, it is nearer to bad than chance explains."""
        by, bad = 1 - judged.share, self.plan.errors.slower
        shown, limit = _percents(by, bad)
        slower = f"{shown} slower than is usual{population.group_note(node) or ' or due'}, in {judged.runs} runs"
        if by < bad:
            return f"{slower}: more like a bad one, {limit} slower, than like a good one; expected to be like good ones"
        return f"{slower}; expected less than {limit}"

    def in_common(self) -> Iterator[Result]:
        """What racks, batches and all nodes have in common, each as a finding; a bad rack is a failure."""
        for (_, name, what), population in self.by_key.items():
            row, title = acceptance.measures()[name], f"{acceptance.measures()[name].title}, {what}"
            for shift in population.shifts:
                (seen, due), chance = _differs(shift.by), max(shift.chance, LEAST_CHANCE)
                message = (
                    f"{title}: its {number_of(shift.nodes, 'node')} are {seen} than the other "
                    f"{len(population.nodes) - shift.nodes}, by chance in {chance:.2%} of clusters at most; {due}"
                )
                may_be_bad = population.judged.keys() - population.in_doubt
                is_bad = any(shift.levels[0] in population.levels.get(node, ()) for node, _ in may_be_bad)
                verdict = Verdict.FAIL if is_bad and shift.by <= -self.plan.errors.effect else Verdict.CONCERN
                yield Result(row.check, ", ".join(shift.levels), verdict, message=message, subject="cluster")
            if fast := population.far_faster:
                seen, least = _percents(share_of(median(fast.values())), self.plan.errors.slower)
                of = f"{fold(fast)} are {seen} faster than is usual of its {number_of(len(population.nodes), 'node')}"
                message = f"{title}: {of}, so most may be slow; expected less than {least}: {LOOK_AT}"
                yield Result(row.check, "all nodes", Verdict.CONCERN, message=message, subject="cluster")
            if population.below_floor is not None:
                seen, due = _differs(population.below_floor)
                of = f"what is usual of its {number_of(len(population.nodes), 'node')}"
                message = f"{title}: {of} is {seen} than the floor of the plan; {due}"
                yield Result(row.check, "all nodes", Verdict.CONCERN, message=message, subject="cluster")
            if population.drift is not None:
                seen, due = _differs(population.drift)
                message = f"{title}: all nodes were {seen} in the last runs than in the first; {due}"
                yield Result(row.check, "all nodes", Verdict.CONCERN, message=message, subject="cluster")


def _differs(by: float) -> tuple[str, str]:
    """`4.1% slower`, and what is expected instead."""
    shown, least = _percents(share_of(by), acceptance.common().least)
    return f"{shown} {'slower' if by < 0 else 'faster'}", f"expected less than {least}: {LOOK_AT}"


def _percents(share: float, limit: float) -> tuple[str, str]:
    """Both in percent with one decimal, or as many as distinguish them."""
    shown, limit_shown = f"{share:.1%}", f"{limit:.1%}"
    if shown == limit_shown and share != limit:
        shown, limit_shown = (f"{percent}%" for percent in format_pair(100 * share, 100 * limit, 1))
    return shown, limit_shown
