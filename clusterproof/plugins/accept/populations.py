"""All populations of an acceptance: by kind of hardware, measurement and what was measured; what they say of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from math import log

from clusterproof.plugins.accept import NodeRun
from clusterproof.plugins.accept.plan import AcceptancePlan
from clusterproof.plugins.accept.sequential import Decision, JudgedUnit, Population, decision_of
from clusterproof.plugins.catalog import acceptance

OF_NO_GPU = ("fs_bandwidth",)  # measurements
Key = tuple[str, str, str]  # kind of hardware, measurement, what was measured


class Populations:
    """What was measured of all nodes. Runs are added in the order in which they ended."""

    def __init__(self, plan: AcceptancePlan) -> None:
        self.plan = plan
        self.by_key: dict[Key, Population] = {}
        self._nodes: dict[tuple[str, str], set[str]] = defaultdict(set)  # by kind and measurement

    def add(self, number: int, seen: Mapping[str, NodeRun], kinds: Mapping[str, str]) -> None:
        """Take in a run of the nodes whose hardware `kinds` has."""
        values: dict[Key, dict[tuple[str, str], float]] = defaultdict(dict)
        for node in kinds:
            for name, what, device, speed in seen[node].units():
                values[kinds[node], name, what][node, device] = log(speed)
                self._nodes[kinds[node], name].add(node)
        tries = max((len(list(of.units())) for of in seen.values()), default=1)
        for key, of_key in values.items():
            if key not in self.by_key:
                least = self.plan.floors.get(key[1])
                self.by_key[key] = Population(self.plan.errors, 1, log(least) if least else None)
            self.by_key[key].tries = max(self.by_key[key].tries, tries)
            self.by_key[key].add(number, of_key)

    def learn(self) -> None:
        """Decide, where it is not known yet what is usual and enough was measured."""
        for population in self.by_key.values():
            population.learn()

    def forget(self, node: str) -> None:
        """What was measured of a node is of another machine."""
        for population in self.by_key.values():
            population.forget(node)
        for nodes in self._nodes.values():
            nodes.discard(node)

    def forget_gpus(self, node: str, devices: Collection[str]) -> None:
        """What was measured on these GPUs of a node, or with them, is of others."""
        for (_, name, _), population in self.by_key.items():
            if name not in OF_NO_GPU:
                population.forget(node, {*devices, ""})

    def of_node(self, node: str, kind: str) -> Iterator[tuple[Key, Population, list[JudgedUnit]]]:
        """What a node is held to, and how its units stand: what most nodes of its kind were measured by, and itself.

        What few were measured by, and nothing can be said of, counts only where it has nothing that most have.
        """
        asked = {
            key: population
            for key, population in self.by_key.items()
            if key[0] == kind and (node in population.nodes or self._is_common(key))
        }
        known = {key[1] for key, population in asked.items() if node in population.nodes and self._is_common(key)}
        for key, population in asked.items():
            if population.reference or self._is_common(key) or key[1] not in known:
                yield key, population, [judged for unit, judged in population.judged.items() if unit[0] == node]

    def _is_common(self, key: Key) -> bool:
        return 2 * len(self.by_key[key].nodes) > len(self._nodes[key[:2]])

    def decide(self, kind: str, seen: NodeRun, check: str) -> bool:
        """Whether it is known what is usual of all that this check measured of a node in a run."""
        return all(population and population.decides for population in self._of_check(kind, seen, check))

    def may_decide(self, kind: str, seen: NodeRun, check: str) -> bool:
        """Whether that is known, or may be once more was measured."""
        of_check = self._of_check(kind, seen, check)
        return all(population and (population.decides or not population.is_learned) for population in of_check)

    def _of_check(self, kind: str, seen: NodeRun, check: str) -> Iterator[Population | None]:
        names = [name for name in seen.speeds if acceptance.measures()[name].check == check]
        return (self.by_key.get((kind, name, what)) for name in names for what in seen.speeds[name])

    def decision_on(self, node: str, kind: str) -> Decision:
        """Of a node by all that it is held to; of one that is held to nothing it is open."""
        return decision_of(decision_of(judged.decision for judged in own) for _, _, own in self.of_node(node, kind))

    def is_judged(self, node: str) -> bool:
        """Whether another run can decide anything: some of its values are open."""
        return any(unit[0] == node for population in self.by_key.values() for unit in population.judged)

    def slow(self, node: str) -> Iterator[tuple[str, str]]:
        """The check that measured what is slow of a node, and how slow it is, in words."""
        for (_, name, what), population in self.by_key.items():
            for (of, device), judged in population.judged.items():
                if of == node and judged.decision is Decision.BAD:
                    row = acceptance.measures()[name]
                    where = f"GPU {device}, " if device else ""
                    message = (
                        f"{row.title}: {where}{what}: {1 - judged.share:.1%} slower than is usual or due, "
                        f"in {judged.runs} runs; expected less than {self.plan.errors.slower:.1%}"
                    )
                    yield row.check, message
