"""The kind of each value in the evidence, declared in kinds.toml, or in redaction.toml next to its collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from clusterproof.plugins.agent.program import EVIDENCE
from clusterproof.plugins.core.strict import parse_toml

ANY = "*"


@dataclass
class ValueKind:
    """A position in a collector's value: its kind, and positions within it by key."""

    kind: str = ""
    within: dict[str, ValueKind] = field(default_factory=dict)
    is_own: bool = False  # the node's own name, not another's

    def at(self, key: str) -> ValueKind:
        """The position for a key, or a list of its names; without a kind if nothing is declared."""
        return self.within.get(key) or self.within.get(key.removeprefix("all_")) or self.within.get(ANY) or _NOWHERE


_NOWHERE = ValueKind()


def schema_of(collector: str) -> ValueKind:
    """The position of a collector's whole value."""
    return _schemas().get(collector, _NOWHERE)


def collectors() -> tuple[str, ...]:
    """The collectors with declarations."""
    return tuple(collector for collector in _schemas() if collector != "probe")


def keys() -> frozenset[str]:
    """Every key with a declaration, in any collector."""
    return frozenset(key for schema in _schemas().values() for key in _keys(schema))


def _keys(schema: ValueKind) -> Iterator[str]:
    for key, within in schema.within.items():
        yield key
        yield from _keys(within)


@cache
def _schemas() -> Mapping[str, ValueKind]:
    collectors: dict[str, ValueKind] = {}
    for file in (Path(__file__).with_suffix(".toml"), *sorted(Path(EVIDENCE).glob("*/redaction.toml"))):
        for collector, kinds in parse_toml(file.read_text(encoding="utf-8"), file.name).items():
            collectors[collector] = ValueKind()
            for kind, paths in kinds.items():
                for path in paths.split():
                    _add(collectors[collector], path, kind)
    return collectors


def _add(schema: ValueKind, path: str, kind: str) -> None:
    for key in path.split("."):
        schema = schema.within.setdefault(key, ValueKind())
    schema.kind = kind
    schema.is_own = path == "hostname"
