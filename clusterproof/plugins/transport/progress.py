"""How far a visit of many nodes is: who has not answered yet, in words."""

from __future__ import annotations

import threading

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within

LINE_S = 10.0  # between two lines that say who is awaited, where there is no terminal
MAX_NAMES = 60  # characters
FEW, FEW_OF_MANY, MAX_NAMED = 4, 0.1, 32  # nodes, of all, at most: only so many are named


class Awaited:
    """Who has not answered yet, in words; answers come from many threads."""

    def __init__(self, doing: str, names: list[str], *, are_named: bool) -> None:
        self._doing, self._names, self._are_named = doing, names, are_named
        self._awaited = dict.fromkeys(names)
        self._unreached = 0
        self._lock = threading.Lock()

    def answered(self, evidence: NodeEvidence) -> None:
        """Note an answer, or that there is none to come."""
        with self._lock:
            if not self._awaited:
                self._awaited, self._unreached = dict.fromkeys(self._names), 0
            self._awaited.pop(evidence.node, None)
            self._unreached += evidence.unreached is not None

    @property
    def total(self) -> int:
        """How many are asked."""
        return len(self._names)

    @property
    def done(self) -> int:
        """How many are waited for no more."""
        return len(self._names) - len(self._awaited)

    @property
    def words(self) -> str:
        """`asking the nodes: 124 of 128 done, 1 not reached; waiting for gpu[003,017]`."""
        with self._lock:
            unreached = f", {self._unreached} not reached" if self._unreached else ""
            are_few = 0 < len(self._awaited) <= min(MAX_NAMED, max(FEW, len(self._names) * FEW_OF_MANY))
            names = (
                f"; waiting for {printable(within(fold(self._awaited), MAX_NAMES))}"
                if are_few and self._are_named
                else ""
            )
            return f"{self._doing}: {self.done} of {len(self._names)} done{unreached}{names}"
