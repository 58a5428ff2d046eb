"""Which pairs to measure next: first rounds that treat all nodes alike, then rounds that retest suspects.

Pure: equal nodes, settings and measurements give the same next round, so that a run can be resumed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from math import inf
from random import Random

from clusterproof.plugins.benchmarks.pairwise import (
    RETEST_ROUNDS,
    Round,
    by_pair,
    full,
    is_inside,
    nodes_of,
    quick,
    rounds_of_circle,
)
from clusterproof.plugins.benchmarks.pairwise.mesh import MeshLimits
from clusterproof.plugins.benchmarks.pairwise.mesh_rounds import retest_round
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, slow_together
from clusterproof.plugins.benchmarks.pairwise.screen import Suspicion, screen
from clusterproof.plugins.benchmarks.pairwise.slow_places import SlowPlace
from clusterproof.plugins.benchmarks.pairwise.suspects import decided, too_noisy, undecided
from clusterproof.plugins.evidence.pairs import Measurement, Pair, pair

FIRST_ROUNDS = 4
FURTHER_ROUNDS = 8  # for nodes still undecided by then
LINK_RETESTS = 3  # of a suspect pair, whose nodes are not used otherwise meanwhile
MAX_CONTROLS = 16  # pairs of good nodes in a retest round: they show the effect of fewer pairs at once
MIN_PAIRS = 8  # in a retest round after the first, however small the cluster: needed to know what is normal
SAMPLED_OF_A_PLACE = 3  # nodes of a slow place that are retested in each round


@dataclass(frozen=True)
class PairPlan:
    """The nodes and how to measure them; `asked` are the only pairs, if the user named them.

    `absent` are planned nodes that cannot be measured. `first_rounds` is how many of the first rounds there is time
    for, None for all.
    """

    nodes: tuple[str, ...]
    places: Mapping[str, str]
    min_effect: float
    is_full: bool = False
    asked: tuple[Pair, ...] = ()
    seed: int = 0
    absent: frozenset[str] = frozenset()
    first_rounds: int | None = None
    mesh: MeshLimits | None = None  # if RDMA devices exchange a few bytes instead of measuring bandwidth

    def __post_init__(self) -> None:
        if not 0 < self.min_effect < inf:  # a journal may say so: nothing would be slow enough
            raise ValueError(f"min_effect is {self.min_effect}")

    @cached_property
    def first(self) -> list[Round]:
        """The rounds that do not depend on measurements."""
        return [
            tuple(both for both in pairs if not self.absent & set(both)) for pairs in self.planned[: self.first_rounds]
        ]

    @cached_property
    def planned(self) -> list[Round]:
        """The first rounds for all nodes, including absent ones, regardless of time."""
        if self.asked:
            return disjoint(self.asked)
        if self.is_full:
            return full(self.nodes, self.places)
        return quick(self.nodes, self.places, FIRST_ROUNDS, Random(self.seed))  # noqa: S311 - no secret

    @cached_property
    def settings(self) -> AnalysisSettings:
        """The settings for the analysis."""
        is_full = self.is_full and not self.asked  # counted, as all pairs of thousands of nodes are too many to list
        rounds = rounds_of_circle(len(self.nodes)) if is_full else len(self.planned)
        return AnalysisSettings(self.min_effect, self.places, len(range(rounds)[: self.first_rounds]))


def plan(
    nodes: Sequence[str],
    places: Mapping[str, str],
    min_effect: float,
    is_full: bool = False,
    named_pairs: Sequence[Pair] = (),
    seed: int = 0,
) -> PairPlan:
    """A plan for these nodes. `places` maps nodes to rack, UltraServer or zone as far as known."""
    ordered = tuple(sorted(nodes))
    known = {node: places.get(node, "") for node in ordered}
    return PairPlan(
        ordered, known if len(set(known.values())) > 1 else {}, min_effect, is_full, tuple(named_pairs), seed
    )


def disjoint(pairs: Iterable[Pair]) -> list[Round]:
    """Arrange these pairs in rounds that use each node at most once."""
    rounds: list[list[Pair]] = []
    busy: dict[str, set[int]] = defaultdict(set)  # the rounds of each node
    first: Counter[str] = Counter()  # in which it is not busy
    for link in pairs:
        later = count(max(first[node] for node in link))
        number = next(number for number in later if not any(number in busy[node] for node in link))
        rounds += [[]] if number == len(rounds) else []
        rounds[number].append(link)
        for node in link:
            busy[node].add(number)
            first[node] = next(number for number in count(first[node]) if number not in busy[node])
    return [tuple(made) for made in rounds]


def next_round(plan: PairPlan, measurements: Sequence[Measurement]) -> tuple[int, Round]:
    """The number of the next round and its unmeasured pairs, the most informative first; none at the end."""
    first = plan.first
    last = len(first) + (0 if plan.asked else RETEST_ROUNDS if plan.mesh else RETEST_ROUNDS + FURTHER_ROUNDS)
    latest = max((measurement.round for measurement in measurements), default=0)
    for number in (*range(len(first)), *range(max(len(first), latest), last)):  # retests are complete then
        before = [measurement for measurement in measurements if measurement.round < number]
        pairs = first[number] if number < len(first) else retests(plan, before, number)
        measured = {measurement.pair for measurement in measurements if measurement.round == number}
        left = tuple(both for both in pairs if both not in measured)
        if left or (not pairs and number >= len(first)):
            return number, left
    return last, ()


def retests(plan: PairPlan, measurements: Sequence[Measurement], number: int) -> Round:
    """A round of suspects with good partners, suspect pairs, and good pairs; at most half as many at once.

    A node that is certainly slow is no longer measured. Further rounds only measure undecided nodes, unless the noise
    would hide any slow node.
    """
    if plan.mesh:
        present = [node for node in plan.nodes if node not in plan.absent]
        return retest_round(measurements, present, plan.places, plan.mesh)
    settings = plan.settings
    screened = screen(measurements, settings)
    nodes = len(nodes_of(measurements))
    links: Sequence[Pair] = ()
    places: Sequence[SlowPlace] = ()
    if number < settings.first_rounds + RETEST_ROUNDS:
        wanted = {*screened.failing, *(screened.slow.keys() - decided(screened, nodes, settings))}
        links, places = screened.links, screened.places
    elif screened.reference is None or too_noisy(screened, settings):
        return ()
    else:
        wanted = undecided(screened, nodes, settings)
    suspects = [node for node in _suspects(screened) if node in wanted]
    is_first_of_them = number == settings.first_rounds
    if not (suspects or links or places or is_first_of_them):
        return ()
    most = max((measurement.at_once for measurement in measurements), default=1)
    if most < 2 and not (suspects or links):
        return ()
    draw = _Draw(plan, measurements, screened, number)
    draw.again(links, len(suspects))
    draw.retest(suspects)
    draw.sample(places)
    half = max(1, most // 2)
    draw.controls(half if is_first_of_them else max(half, MIN_PAIRS), MAX_CONTROLS)
    return tuple(draw.pairs)


def _suspects(screened: Suspicion) -> list[str]:
    slow = sorted(screened.slow, key=lambda node: (screened.slow[node], node))
    return list(dict.fromkeys([*screened.failing, *slow]))


class _Draw:
    """A round under construction: every node at most once."""

    def __init__(self, plan: PairPlan, measurements: Sequence[Measurement], screened: Suspicion, number: int) -> None:
        self.pairs: list[Pair] = []
        self.of_pair = by_pair(screened.values)
        self.settings = plan.settings
        self.places = plan.places
        self.is_even = (number - plan.settings.first_rounds) % 2 == 0  # links have priority, even with suspect ends
        self.across = number % 2 == 1  # alternates between partners of another place and of the same place
        self.met = {measurement.pair for measurement in measurements}
        self.busy: set[str] = set()
        of_slow_places = {node for place in screened.places for node in place.nodes}
        self.bad = {*_suspects(screened)}
        self.links = set(screened.links)
        in_links = {node for link in screened.links for node in link}
        unfit = self.bad | of_slow_places | plan.absent
        good = [node for node in plan.nodes if node not in unfit]
        self.random = Random(f"{plan.seed} {number}")  # noqa: S311 - no secret
        self.random.shuffle(good)
        again = [measurement.pair for measurement in measurements if measurement.round >= plan.settings.first_rounds]
        self.retested = Counter(again)
        used = Counter(node for both in again for node in both.nodes)
        good.sort(key=lambda node: (node in in_links, used[node]))  # the first are better kept for their own retest
        self.good = good

    def retest(self, suspects: Sequence[str]) -> None:
        """Pair each suspect with its own good partner, a new one if possible."""
        for node in suspects:
            new = partial(self._is_new, node)
            self._add(node, (partial(self._is_new_there, node), new, _anybody))

    def again(self, links: Sequence[Pair], suspects: int) -> None:
        """Suspect pairs unchanged, leaving a good partner for every suspect."""
        left_pairs = (len(self.good) - suspects) // 2
        left = [
            link
            for link in links
            if self.retested[link] < LINK_RETESTS and (self.is_even or not self.bad & set(link.nodes))
        ]
        for link in self._by_turns(left):
            if not self.busy & set(link.nodes) and len(self.pairs) < left_pairs:
                self._take(link)

    def _by_turns(self, links: Sequence[Pair]) -> list[Pair]:
        """Leave out half of those that were repeatedly slow together, drawn anew each time: they may share a path."""
        taken: set[Pair] = set()
        for link in self.random.sample(links, len(links)):
            often = slow_together(link, self.of_pair, self.settings).keys() & links
            if not often or 2 * len(often & taken) < len(often):
                taken.add(link)
        return [link for link in links if link in taken]

    def sample(self, places: Iterable[SlowPlace]) -> None:
        """A few nodes of each of these places with good partners elsewhere."""
        for place in places:
            free = [node for node in place.nodes if node not in self.busy and node not in self.bad]
            for node in free[:SAMPLED_OF_A_PLACE]:
                self._add(node, (partial(self._is_across, node),))

    def controls(self, capacity: int, most: int) -> None:
        """Pairs of good nodes, as many as fit."""
        for _ in range(min(most, capacity - len(self.pairs))):
            node = next((node for node in self.good if node not in self.busy), None)
            if node is None:
                return
            self._add(node, (partial(self._is_there, node), _anybody))

    def _add(self, node: str, wishes: Sequence[Callable[[str], bool]]) -> None:
        free = [other for other in self.good if other not in self.busy and other != node]
        free = [other for other in free if pair(node, other) not in self.links]  # some are left out on purpose
        partner = next((other for wish in wishes for other in free if wish(other)), None)
        if partner is not None and node not in self.busy:
            self._take(pair(node, partner))

    def _take(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.busy.update(pair.nodes)

    def _is_new(self, node: str, other: str) -> bool:
        return pair(node, other) not in self.met

    def _is_there(self, node: str, other: str) -> bool:
        return self._is_across(node, other) == self.across

    def _is_new_there(self, node: str, other: str) -> bool:
        return self._is_new(node, other) and self._is_there(node, other)

    def _is_across(self, node: str, other: str) -> bool:
        return not is_inside(pair(node, other), self.places)


def _anybody(_node: str) -> bool:
    return True
