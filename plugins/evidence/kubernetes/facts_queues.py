"""Kueue's flavors as Kubernetes has them, typed."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, flag, objects, text, texts, whole


@record
class UnlabelledLevel(Reported):
    """A level of a topology whose label some nodes of a flavor lack; `nodes` are the first of them."""

    level = Field(text)
    nodes = Field(texts)
    count = Field(whole)


def _levels(data: object) -> tuple[UnlabelledLevel, ...]:
    return tuple(map(UnlabelledLevel, objects(data)))


@record
class Flavor(Reported):
    """A flavor: the labels that its nodes have, how many such there are, and its topology (empty: none)."""

    name = Field(text)
    labels = Field(text)
    nodes = Field(whole)
    topology = Field(text)
    has_topology = Field(flag)
    unlabelled = Field(_levels)
