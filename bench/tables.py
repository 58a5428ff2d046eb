"""The simulation's figures, as tables for people and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field

from bench.noisy import Figures
from bench.tally import Tally

OURS = "clusterproof"
GOAL_NOISE = 0.02
GOAL_EFFECT = 0.07

Key = tuple[str, float | None, float, int]  # fault, how much slower, noise, nodes


@dataclass
class Tallies:
    """The tallies of all rules and cells."""

    cells: dict[str, dict[Key, Tally]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, key: Key, rule: str, tally: Tally) -> None:
        """Add one."""
        self.cells[rule][key] = tally

    def sum(
        self,
        rule: str,
        what: str | None = None,
        slower: float | None = None,
        noise: float = GOAL_NOISE,
        size: int | None = None,
    ) -> Tally:
        """The sum of all that match; None matches any."""
        total = Tally()
        for (of_what, of_slower, of_noise, of_size), tally in self.cells[rule].items():
            if (
                what in (None, of_what)
                and slower in (None, of_slower)
                and noise == of_noise
                and size in (None, of_size)
            ):
                total += tally
        return total

    def values(self, index: int) -> list[object]:
        """The distinct values of one part of the keys, in order."""
        return list(dict.fromkeys(key[index] for key in self.cells[OURS] if key[index] is not None))


def tables(tallies: Tallies, most_for_a_sweep: int) -> str:
    """All tables, one after the other."""
    rules = list(tallies.cells)
    effects = sorted(float(str(each)) for each in tallies.values(1))
    noises = sorted(float(str(each)) for each in tallies.values(2))
    sizes = sorted(int(str(each)) for each in tallies.values(3))
    kinds = [str(each) for each in tallies.values(0) if each != "slow nodes"]

    def by_effect(show: Callable[[Tally], str], noise: float) -> Iterator[list[str]]:
        for effect in effects:
            shown = (show(tallies.sum(rule, "slow nodes", effect, noise)) for rule in rules)
            yield [f"{effect:.0%} slower", *shown]

    parts = [
        _table(
            f"Slow nodes that were named ({GOAL_NOISE:.0%} noise, 5 % outliers, {sizes[0]} to {sizes[-1]} nodes; "
            f"the full sweep up to {most_for_a_sweep} nodes only, for its cost)",
            ["", *rules],
            by_effect(lambda tally: f"{tally.detection:.2%}", GOAL_NOISE),
        ),
        _table(
            "Healthy nodes that were flagged beside them",
            ["", *rules],
            [
                *by_effect(_flagged, GOAL_NOISE),
                ["most rounds", *(str(tallies.sum(rule).rounds) for rule in rules)],
                ["mean rounds", *(f"{tallies.sum(rule).mean_rounds:.2f}" for rule in rules)],
            ],
        ),
        _table(
            f"{OURS}: slow nodes named, healthy ones flagged, by noise",
            ["", *(f"{noise:.0%} noise" for noise in noises)],
            (
                [f"{effect:.0%} slower"]
                + [_both(tallies.sum(OURS, "slow nodes", effect, noise)) for noise in noises]
                for effect in effects
            ),
        ),
        _table(
            f"{OURS}: nodes {GOAL_EFFECT:.0%} slower, by the size of the cluster",
            ["", *(f"{noise:.0%} noise" for noise in noises)],
            (
                [f"{size} nodes"]
                + [_both(tallies.sum(OURS, "slow nodes", GOAL_EFFECT, noise, size)) for noise in noises]
                for size in sizes
            ),
        ),
        _table(
            "Clusters whose fault was named for what it is, and nothing else was",
            ["", *rules, f"{OURS} said instead"],
            (
                [
                    kind,
                    *(f"{tallies.sum(rule, kind).kind_right:.2%}" for rule in rules),
                    _instead(tallies.sum(OURS, kind)),
                ]
                for kind in kinds
            ),
        ),
        _table(
            "Healthy nodes that were flagged there", ["", *rules],
            ([kind, *(_flagged(tallies.sum(rule, kind)) for rule in rules)] for kind in kinds),
        ),
    ]  # fmt: skip
    return "\n\n".join(parts)


def noise_table(figures_by_noise: Mapping[str, Figures]) -> str:
    """A table of the results under noise."""
    heads = ["", "7% named", "10% named", "nothing said of 10%", "healthy flagged", "with a link flagged", "left open"]
    rows = [
        [name, *(f"{share:.4%}" if share and share < 0.001 else f"{share:.2%}" for share in astuple(of))]
        for name, of in figures_by_noise.items()
    ]
    return _table("Under noise that is nobody's fault (16, 64 and 256 nodes, no place known)", heads, rows)


def _flagged(tally: Tally) -> str:
    return f"{tally.flagged} of {tally.healthy}"


def _both(tally: Tally) -> str:
    return f"{tally.detection:.2%}, {_flagged(tally)}"


def _instead(tally: Tally) -> str:
    return ", ".join(f"{wrong} {count}" for wrong, count in tally.wrong.most_common()) or "-"


def _table(title: str, heads: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    lines = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join([title, *("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)])


def figures(tallies: Tallies) -> dict[str, object]:
    """The figures that the goals concern."""
    ours, *peers = ({"rule": rule, **_figures_of(tallies, rule)} for rule in tallies.cells)
    return {**_without_name(ours), "peers": {str(peer["rule"]): _without_name(peer) for peer in peers}}


def _without_name(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != "rule"}


def _figures_of(tallies: Tallies, rule: str) -> dict[str, object]:
    whole, of_nodes = tallies.sum(rule), tallies.sum(rule, "slow nodes", GOAL_EFFECT)
    return {
        "detected_7pct": round(of_nodes.detection, 5),
        "false_positive_rate": round(whole.false_positive_rate, 7),
        "kind_right": round((whole.kinds_right + of_nodes.found) / (whole.kinds + of_nodes.slow), 5),
        "rounds_max": whole.rounds,
        "rounds_mean": round(whole.mean_rounds, 3),
    }
