"""Keeps equal values of many nodes only once: most of 10,000 nodes of one kind differ in little."""

from __future__ import annotations

import marshal
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence

MAX_VALUES = 200_000  # a limit: when the values of a single node fill it, all are forgotten
DEEPEST = 12  # values nested deeper are not interned


class Interning:
    """The values seen so far. Evidence is immutable, so nodes can share the objects."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}
        self._texts: dict[str, str] = {}

    def intern(self, evidence: NodeEvidence) -> NodeEvidence:
        """The same evidence, built from values of earlier nodes where they are equal."""
        collectors = {self._text(name): self._collector(collector) for name, collector in evidence.collectors.items()}
        return replace(evidence, collectors=collectors)

    def _collector(self, collector: Collected) -> Collected:
        return replace(collector, value=self._value(collector.value), detail=self._text(collector.detail))

    def _value(self, value: Any, level: int = 0) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, (dict, list)) or level > DEEPEST:
            return value
        try:  # marshal's version 2 gives equal bytes for equal values, and unlike == distinguishes 1, 1.0 and true
            key = blake2b(marshal.dumps(value, 2), digest_size=16).digest()
        except ValueError:  # nested too deeply for marshal, or an unpaired surrogate
            return value
        if key not in self._kept:
            if len(self._kept) >= MAX_VALUES:
                self._kept.clear()
            self._kept[key] = self._parts(value, level + 1)
        return self._kept[key]

    def _parts(self, value: dict[str, Any] | list[Any], level: int) -> dict[str, Any] | list[Any]:
        if isinstance(value, list):
            return [self._value(entry, level) for entry in value]
        return {self._text(name): self._value(entry, level) for name, entry in value.items()}

    def _text(self, text: str) -> str:
        if len(self._texts) >= MAX_VALUES:
            self._texts.clear()
        return self._texts.setdefault(text, text)
