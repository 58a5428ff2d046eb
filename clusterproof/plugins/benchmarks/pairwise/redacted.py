"""A journal without the names of nodes and places: for `--redact`, where a recording has the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.evidence.pairwise.model import pair
from clusterproof.plugins.evidence.pairwise.reading import Reading


def without_names(run: PairwiseRun, shown: Mapping[str, str], text: Callable[[str], str]) -> PairwiseRun:
    """The same measurements. `shown` has the word for each node, `text` what may be shown of a text."""
    campaigns = tuple(replace(campaign, journal=_journal(campaign.journal, shown, text)) for campaign in run.campaigns)
    return PairwiseRun(campaigns, why_not=text(run.why_not))


def _journal(journal: Journal, shown: Mapping[str, str], text: Callable[[str], str]) -> Journal:
    plan = journal.plan
    words = {node: shown.get(node, f"unknown-{number}") for number, node in enumerate(plan.nodes, start=1)}
    known = sorted({place for place in plan.places.values() if place})
    places = {place: f"place-{number}" for number, place in enumerate(known, start=1)}
    return replace(
        journal,
        plan=replace(
            plan,
            nodes=tuple(words.values()),
            places={words[node]: places.get(place, "") for node, place in plan.places.items() if node in words},
            asked=tuple(pair(*(words[node] for node in one)) for one in plan.asked if set(one) <= words.keys()),
            absent=frozenset(words[node] for node in plan.absent if node in words),
        ),
        absent={words[node]: text(why) for node, why in journal.absent.items() if node in words},
        measurements=tuple(
            replace(one, pair=pair(*(words[node] for node in one.pair)), reading=_reading(one.reading, words, text))
            for one in journal.measurements
        ),
        ended=None if journal.ended is None else text(journal.ended),
    )


def _reading(data: Reading, words: Mapping[str, str], text: Callable[[str], str]) -> Reading:
    return replace(
        data,
        network=text(data.network),
        problem=text(data.problem),
        culprit=words.get(data.culprit, ""),
        hosts=tuple(map(text, data.hosts)),
        command=text(data.command),
    )
