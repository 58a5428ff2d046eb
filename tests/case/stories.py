"""Labelled cases: a story is what a job, its scheduler and its nodes wrote; a circumstance, how that was kept.

A story is a row of `stories/*.toml`: `label` and `node` are the right answer, `source` is its origin. Times are in
seconds since the first fault. Ranks are 0 to 7, two on each of n1 to n4; x9 is another node.

    output     `RANK +SECONDS TEXT`; the rank may be {all}, {peers} (all but 0), or launcher
    kernel     `NODE +SECONDS TEXT` in its kernel log; kernel_undated: without times; messages: in a syslog file
    cascade    how the others end: watchdog, watchdog_of_groups, peers, abort, torchrun
    dies       `RANK CODE`: reported by the launcher
    confirmed  the cause that somebody confirmed, where the log does not say it
    late       written after the held-aside set was drawn, or together with the sign it shows: never held aside
    end        `STATE CODE +SECONDS`: Slurm's record; silent: ranks without output; dumps_without: who leaves no dump
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from clusterproof.plugins.core.record import field, record

STORIES = Path(__file__).parent / "stories"
SEED = 33
HELD_ASIDE = 0.4  # share of the stories, by this seed; rules are not written from these
CIRCUMSTANCES = 2  # of each story with everything kept; in one more, something was lost
LAYOUTS = ("files", "labelled", "one")  # a file for each rank, `srun -l`, `[rank3]:` in one file
STAMPS = ("logging", "iso", "glog", "none")
KERNELS = ("iso", "ctime", "syslog", "journal")
RECORDS = ("scontrol", "sacct", "table")
ALL = "all"
LOSSES = ("rank 0 alone", "no kernel log", "no record", "clocks apart", "cut")  # what was lost, or how
NAMES = ("gpu{:03d}", "ip-10-0-3-{}", "node{}.cluster.example", "jean-zay-iam{}")


@record
class Circumstance:
    """How a story's evidence was kept."""

    layout: str
    stamps: str
    kernel: str
    record: str
    generation: int  # of the messages of NCCL and PyTorch: 0 the oldest, 2 the newest
    name: str
    kept: str
    started: float  # seconds since 1970 at the first fault


@record
class Story:
    """A row of the tables."""

    name: str
    label: str
    source: str
    data: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def node(self) -> str:
        """The number in the story of the node to blame; empty if there is none."""
        return str(self.data.get("node", ""))


@record
class LabelledCase:
    """A story in one circumstance."""

    story: Story
    circumstance: Circumstance

    @property
    def name(self) -> str:
        """The name of its folder."""
        of = self.circumstance
        kept = of.kept.replace(" ", "_")
        return f"{self.story.name}-{of.layout}-{of.stamps}-{of.kernel}-{of.record}-{of.generation}-{kept}"

    def node(self, number: str) -> str:
        """The name here of the story's node n3."""
        return self.circumstance.name.format(int(number[1:]))


def stories() -> list[Story]:
    """All stories, by name."""
    collected = []
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for file in sorted(STORIES.glob("*.toml")):
        for name, row in toml.loads(file.read_text("utf-8")).items():
            collected.append(Story(name, row["label"], row["source"], row))
    return sorted(collected, key=lambda story: story.name)


def held_aside(seed: int = SEED) -> frozenset[str]:
    """The names of the stories that rules are not written from."""
    names = [story.name for story in stories() if not story.data.get("late")]
    return frozenset(Random(seed).sample(names, round(len(names) * HELD_ASIDE)))


def cases(seed: int = SEED) -> Iterator[LabelledCase]:
    """Each story in some circumstances, seeded by its name: adding a story changes no other's."""
    for story in stories():
        chance = Random(f"{seed} {story.name}")
        drawn: dict[str, LabelledCase] = {}
        while len(drawn) <= CIRCUMSTANCES:
            kept = ALL if len(drawn) < CIRCUMSTANCES else chance.choice(LOSSES)
            case = LabelledCase(story, _drawn(story, chance, kept))
            drawn.setdefault(case.name, case)
        yield from drawn.values()


def _drawn(story: Story, chance: Random, kept: str) -> Circumstance:
    return Circumstance(
        layout=chance.choice(LAYOUTS if kept != LOSSES[0] else LAYOUTS[:1]),
        stamps=chance.choice(STAMPS[:-1] if story.data.get("needs_times") else STAMPS),
        kernel=chance.choice(KERNELS),
        record=chance.choice(RECORDS),
        generation=chance.randrange(3),
        name=chance.choice(NAMES),
        kept=kept,
        started=1_772_352_000.0 + chance.randrange(20_000_000),
    )
