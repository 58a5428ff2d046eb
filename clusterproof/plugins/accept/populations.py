"""All populations of an acceptance: by kind of hardware, measurement and what was measured; what they say of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from math import log

from clusterproof.plugins.accept import OF_MODEL, NodeRun, UnitSpeed
from clusterproof.plugins.accept.plan import AcceptancePlan
from clusterproof.plugins.accept.sequential import Decision, JudgedUnit, Population, decision_of, is_of_one, joined
from clusterproof.plugins.catalog import acceptance

OF_NO_GPU = ("fs_bandwidth",)  # measurements
Key = tuple[str, str, str]  # kind of hardware, measurement, what was measured


class Populations:
    """What was measured of all nodes. Runs are added in the order in which they ended."""

    def __init__(self, plan: AcceptancePlan) -> None:
        self.plan = plan
        self.by_key: dict[Key, Population] = {}
        self._nodes: dict[tuple[str, str], set[str]] = defaultdict(set)  # by kind and measurement
        self._ways: dict[Key, set[Key]] = defaultdict(set)  # the populations of GPUs that are not as near to others
        self._joined: set[Key] = set()  # those of which it does not matter how near they are

    def add(self, number: int, seen: Mapping[str, NodeRun], kinds: Mapping[str, str]) -> None:
        """Take in a run of the nodes whose hardware `kinds` has."""
        values: dict[Key, dict[tuple[str, str], float]] = defaultdict(dict)
        for node in kinds:
            for one in seen[node].speeds:
                key = self._key(kinds[node], one)
                values[key][node, one.device] = log(one.speed)
                self._ways[kinds[node], one.measurement, one.of_model].add(key)
                self._nodes[kinds[node], one.measurement].add(node)
        tries = max((len(of.speeds) for of in seen.values()), default=1)
        for key, of_key in values.items():
            if key not in self.by_key:
                least = self.plan.floors.get(key[1])
                self.by_key[key] = Population(self.plan.errors, 1, log(least) if least else None)
            self.by_key[key].tries = max(self.by_key[key].tries, tries)
            self.by_key[key].add(number, of_key)

    def _key(self, kind: str, one: UnitSpeed) -> Key:
        whole = kind, one.measurement, one.of_model
        return whole if not one.way or whole in self._joined else (*whole[:2], f"{one.of_model}, {one.way}")

    def learn(self) -> None:
        """Decide, where it is not known yet what is usual and enough was measured."""
        for whole, keys in self._ways.items():
            apart = [self.by_key[key] for key in keys if key in self.by_key]
            if len(apart) > 1 and is_of_one(apart):
                of_all = joined(apart)
                for key in keys:
                    self.by_key.pop(key, None)
                self.by_key[whole] = of_all
                self._ways[whole] = {whole}
                self._joined.add(whole)
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

    def decides(self, kind: str, one: UnitSpeed) -> bool:
        """Whether it is known what is usual of what was measured."""
        population = self.by_key.get(self._key(kind, one))
        return population is not None and population.decides

    def may_decide(self, kind: str, one: UnitSpeed) -> bool:
        """Whether that is known, or may be: once more was measured, or the GPU's model is known as on other nodes."""
        population = self.by_key.get(self._key(kind, one))
        if population and (population.decides or not population.is_learned):
            return True
        of_models = one.what + OF_MODEL
        return not one.model and any(
            what.startswith(of_models) for of, name, what in self.by_key if (of, name) == (kind, one.measurement)
        )

    def decision_on(self, node: str, kind: str) -> Decision:
        """Of a node by all that it is held to; of one that is held to nothing it is open."""
        return decision_of(decision_of(judged.decision for judged in own) for _, _, own in self.of_node(node, kind))

    def is_judged(self, node: str) -> bool:
        """Whether another run can decide anything: some of its values are open."""
        return any(unit[0] == node for population in self.by_key.values() for unit in population.judged)

    def slow(self) -> Mapping[str, list[tuple[str, str]]]:
        """By node the checks that measured what is slow of it, and how slow it is, in words."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for (_, name, what), population in self.by_key.items():
            for (node, device), judged in population.judged.items():
                if judged.decision is Decision.BAD:
                    row = acceptance.measures()[name]
                    where = f"GPU {device}, " if device else ""
                    message = (
                        f"{row.title}: {where}{what}: {1 - judged.share:.1%} slower than is usual or due, "
                        f"in {judged.runs} runs; expected less than {self.plan.errors.slower:.1%}"
                    )
                    found[node].append((row.check, message))
        return found
